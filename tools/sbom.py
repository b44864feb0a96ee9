"""Write what Relay is made of, as CycloneDX.

    make sbom                    an installed daemon, into build/relay.cdx.json
    make sbom IMAGE=relay.tar    an image that `docker save` wrote, into build/relay-image.cdx.json

The daemon and its pins are installed into an empty venv, as the image has them; cyclonedx-bom stands in
another one and looks at it. So neither the suite's tools nor the reader itself is in the list. An image is
read by trivy, which lists the packages of its base, too, and needs no network for that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "relay.cdx.json"
OF_IMAGE = ROOT / "build" / "relay-image.cdx.json"
TRIVY = ROOT / ".venv-kube" / "bin" / "trivy"
OURS = "opt/relay/"
"""Where the image has Relay and its pins; what is elsewhere is its base's."""

SUBJECT = "relay-timers"


def main(*archives: str) -> None:
    """Write it, and exit with 1 where it does not have the pins."""
    TARGET.parent.mkdir(exist_ok=True)
    for archive in archives:
        of_image(Path(archive))
    if archives:
        return
    with tempfile.TemporaryDirectory(prefix="relay-sbom-") as place:
        reader, subject = Path(place, "reader"), Path(place, "subject")
        venv.create(reader, with_pip=True)
        venv.create(subject, with_pip=False)
        pip = [str(reader / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "-q", "-r", str(ROOT / "tools" / "sbom_requirements.txt")])
        constraints = str(ROOT / "constraints.txt")
        python = str(subject / "bin" / "python")
        _run([*pip, "--python", python, "install", "-q", "-c", constraints, f"{ROOT}[daemon]"])
        _run(
            [
                str(reader / "bin" / "cyclonedx-py"),
                *("environment", python, "--pyproject", str(ROOT / "pyproject.toml")),
                *("--mc-type", "application", "--output-reproducible", "--output-file", str(TARGET)),
            ]
        )
    _told(TARGET, components(json.loads(TARGET.read_text(encoding="utf-8"))))


def of_image(archive: Path) -> None:
    """Write what an image is made of, and exit with 1 where what is ours does not have the pins."""
    if not TRIVY.exists():
        sys.exit("trivy reads images, and is not there: run make kube-tools")
    asked = ("--quiet", "--offline-scan", "--format", "cyclonedx", "--output", str(OF_IMAGE))
    _run([str(TRIVY), "image", *asked, "--input", str(archive)])
    bom = json.loads(OF_IMAGE.read_text(encoding="utf-8"))
    ours = [
        each for each in bom["components"] if each.get("purl", "").startswith("pkg:pypi/") and _is_ours(each)
    ]
    _told(OF_IMAGE, components({"components": ours}), f" of ours among {len(bom['components'])}")


def _is_ours(component: dict[str, Any]) -> bool:
    paths = [each["value"] for each in component.get("properties", ()) if each["name"].endswith(":FilePath")]
    return any(path.startswith(OURS) for path in paths)


def _told(target: Path, found: dict[str, str], more: str = "") -> None:
    if wrong := unpinned(found) or ([] if found else ["nothing at all"]):
        sys.exit(f"{target} has what constraints.txt has not: {', '.join(wrong)}")
    print(f"{target.relative_to(ROOT)}: {len(found)} components{more}")


def components(bom: dict[str, object]) -> dict[str, str]:
    """The versions of what is listed, by name as packagers compare it."""
    listed = bom.get("components", [])
    assert isinstance(listed, list)
    return {plain(each["name"]): each["version"] for each in listed if plain(each["name"]) != SUBJECT}


def unpinned(found: dict[str, str]) -> list[str]:
    """Those that are not as constraints.txt says."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    return sorted(f"{name} {version}" for name, version in found.items() if pins.get(name) != version)


def plain(name: str) -> str:
    """A package's name as packagers compare it."""
    return re.sub(r"[-_.]+", "-", name.lower())


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
