"""The tools that read charts and manifests (`tools/kube_tools.py`), and what they make of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.missing import skip

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "relay"
EXAMPLES = ROOT / "deploy" / "examples"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
TOOLS = ROOT / ".venv-kube" / "bin"

HELMS = ("helm3", "helm4")
RELEASE = "shop"

Doc = dict[str, Any]


def tool(name: str) -> str:
    """The path of a tool; the test skips where it is missing."""
    path = TOOLS / name
    if not path.exists():
        skip(name, "make kube-tools")
    return str(path)


@dataclass(frozen=True)
class Ran:
    """What a tool left."""

    code: int
    out: str
    err: str


def run(*command: str | Path, stdin: str = "", cwd: Path | None = None) -> Ran:
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=cwd,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def helm(version: str, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> Ran:
    """Run `helm3` or `helm4`; `values` go through standard input."""
    more = ("--values", "-") if values is not None else ()
    return run(tool(version), *arguments, *more, stdin=json.dumps(values or {}))


MONITORING = "monitoring.coreos.com/v1"


def template(
    version: str,
    values: Path | Mapping[str, Any] | None = None,
    *,
    chart: Path = CHART,
    kube: str = "1.33.0",
    apis: Iterable[str] = (MONITORING,),
    notes: bool = False,
    release: str = RELEASE,
) -> Ran:
    """`helm template`."""
    arguments: list[str | Path] = [
        "template",
        release,
        chart,
        "--kube-version",
        kube,
        "--namespace",
        "default",
    ]
    for api in apis:
        arguments += ["--api-versions", api]
    if notes:
        arguments += ["--show-only", "templates/NOTES.txt"]
    if isinstance(values, Path):
        return helm(version, *arguments, "--values", values)
    return helm(version, *arguments, values=values)


def rendered(version: str, values: Path | Mapping[str, Any] | None = None, **options: Any) -> list[Doc]:
    """The objects that `helm template` prints; fails with its words where it refuses."""
    ran = template(version, values, **options)
    assert ran.code == 0, ran.err
    return documents(ran.out)


def documents(text: str) -> list[Doc]:
    return [doc for doc in yaml.safe_load_all(text) if doc]


def one(docs: Iterable[Doc], kind: str, name: str | None = None) -> Doc:
    """The only object of a kind, or of a kind and name."""
    (found,) = [doc for doc in docs if doc["kind"] == kind and name in (None, doc["metadata"]["name"])]
    return found


def kinds(docs: Iterable[Doc]) -> list[str]:
    return sorted(doc["kind"] for doc in docs)


def pod_specs(docs: Iterable[Doc]) -> list[tuple[str, Doc]]:
    """Every pod that the objects make: a name to tell it by, and its spec."""
    found = []
    for doc in docs:
        spec = doc.get("spec", {})
        spec = spec["jobTemplate"]["spec"] if doc["kind"] == "CronJob" else spec
        spec = spec if doc["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
        if "containers" in spec:
            found.append((f"{doc['kind']}/{doc['metadata']['name']}", spec))
    return found


def containers(spec: Doc) -> list[Doc]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


@cache
def umbrella() -> Path:
    """The umbrella chart with its dependency built, in a directory that lives as long as this process."""
    import atexit
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="relay-umbrella-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shutil.copytree(CHART, place / "helm" / "relay")
    shutil.copytree(EXAMPLES / "umbrella", place / "examples" / "umbrella")
    chart = place / "examples" / "umbrella"
    ran = run(tool("helm4"), "dependency", "build", chart)
    assert ran.code == 0, ran.err
    return chart


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, as Helm lays them."""
    result: dict[str, Any] = {}
    for layer in values:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def load(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def names(paths: Sequence[Path]) -> list[str]:
    return [path.name.removesuffix("-values.yaml") for path in paths]
