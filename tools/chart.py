"""Write what of the Helm chart follows from elsewhere, or check that it is up to date.

python tools/chart.py            write it
python tools/chart.py --check    exit 1, with a diff, if any of it has drifted

- `values.schema.json`: tools/chart_schema.yaml, with the schema of `config` made from relay/settings/tree.py
- `README.md`: tools/chart_readme.md, with a table made from the comments of values.yaml
- `files/`: copies of the alert rules and the dashboard, since a chart reads only what lies within it
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relay.settings.rules import DISPATCHED  # noqa: E402
from relay.settings.tree import Settings  # noqa: E402
from tools.chart_values import table  # noqa: E402

CHART = ROOT / "deploy" / "helm" / "relay"
SCHEMA = ROOT / "tools" / "chart_schema.yaml"
README = ROOT / "tools" / "chart_readme.md"
COPIED = {
    "files/relay-rules.yaml": "deploy/prometheus/relay-rules.yaml",
    "files/relay-dashboard.json": "deploy/grafana/relay-dashboard.json",
}

OWNED = (
    ("redis", "url"),
    ("redis", "username"),
    ("redis", "password"),
    ("redis", "sentinel_password"),
    ("grpc", "listen"),
    ("grpc", "socket_mode"),
    ("http",),
    ("stop_last",),
    ("recurrences",),
)
"""Settings that the chart makes from other values, and that `config` therefore does not take."""

DROPPED = {"title", "default", "unit", "format", "writeOnly"}
TOPIC = "^[^{}\\x00-\\x1f\\x7f-\\x9f]{1,256}$"
"""A topic's name; see `relay.core.validate.name`."""


def config_schema() -> dict[str, Any]:
    """The schema of `config`: the settings tree without what the chart owns, with nothing to look up."""
    whole = Settings.model_json_schema()
    schema: dict[str, Any] = _plain(whole, whole["$defs"])
    for path in OWNED:
        level = schema
        for name in path[:-1]:
            level = level["properties"][name]
        del level["properties"][path[-1]]
    topics = schema["properties"]["topics"]
    topic = topics["additionalProperties"]
    topic["dependencies"] = {name: _of_dispatch(name) for name in DISPATCHED}
    topics["patternProperties"] = {TOPIC: topic}
    topics["additionalProperties"] = False
    return schema


def _of_dispatch(name: str) -> dict[str, Any]:
    """What a topic with the section `name` has to be: see `relay.settings.rules.section_fits`."""
    return {"properties": {"dispatch": {"const": name}}, "required": ["dispatch"]}


def _plain(node: Any, definitions: dict[str, Any]) -> Any:
    """`node` with every $ref resolved, and without what only a reader of the Python tree needs."""
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        found = _plain(definitions[name], definitions)
        if name == "DeadLetterSettings":  # `dead_letters: off`; see `relay.settings.rules.on_or_off`
            found["type"] = ["object", "boolean"]
        return found
    return {
        key: {name: _plain(inner, definitions) for name, inner in value.items()}
        if key == "properties"
        else _plain(value, definitions)
        for key, value in node.items()
        if key not in DROPPED and key != "$defs"
    }


def schema() -> str:  # see 0037
    """The whole of values.schema.json."""
    whole = _there(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))
    whole["properties"]["config"] = config_schema()
    return json.dumps(_strict(whole), indent=2, ensure_ascii=False) + "\n"


OPTIONAL = ("global", "enabled")
"""Values that Helm sets, and that values.yaml does not have."""


def _there(node: dict[str, Any], root: bool = True) -> dict[str, Any]:
    """What has a default may be replaced, and not be taken away by `null`, unless it may be empty anyway."""
    inner = node.get("properties")
    if not isinstance(inner, dict):
        return node
    inner = {name: _there(value, root=False) for name, value in inner.items()}
    needed = [
        name for name, value in inner.items() if not (root and name in OPTIONAL) and not _may_be_empty(value)
    ]
    return {**node, "properties": inner, "required": [*dict.fromkeys([*node.get("required", ()), *needed])]}


def _may_be_empty(node: dict[str, Any]) -> bool:
    if node.get("type") == "string":
        return "minLength" not in node and re.search(node.get("pattern", ""), "") is not None
    kind = node.get("type")
    return (
        "null" in kind if isinstance(kind, list) else kind in ("array", "object") and "properties" not in node
    )


def _strict(node: Any) -> Any:
    """Every object whose properties are told takes no others, unless it says so itself."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {key: _strict(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "type" in node:
        strict.setdefault("additionalProperties", False)
    return strict


def readme() -> str:
    """The whole of the chart's README.md."""
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    return README.read_text(encoding="utf-8").replace("{{ values }}\n", table(values))


def wanted() -> dict[Path, str]:
    """Each file that is made, and what has to stand in it."""
    made = {CHART / "values.schema.json": schema(), CHART / "README.md": readme()}
    for name, source in COPIED.items():
        if (ROOT / source).exists():
            made[CHART / name] = (ROOT / source).read_text(encoding="utf-8")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the made parts of the chart, or check them.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if anything has drifted")
    check = parser.parse_args().check
    drifted = False
    for path, text in wanted().items():
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if check and there != text:
            drifted = True
            name = str(path.relative_to(ROOT))
            lines = there.splitlines(True), text.splitlines(True)
            sys.stderr.writelines(difflib.unified_diff(*lines, name, "what it is made from"))
        elif there != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if drifted:
        sys.exit("the chart has drifted: run python tools/chart.py")


if __name__ == "__main__":
    main()
