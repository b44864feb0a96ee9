"""Write what an installed Relay is made of, as CycloneDX: `make sbom`, into build/relay.cdx.json.

The daemon and its pins are installed into an empty venv, as the image has them; cyclonedx-bom stands in
another one and looks at it. So neither the suite's tools nor the reader itself is in the list.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "relay.cdx.json"
SUBJECT = "relay-timers"


def main() -> None:
    """Write it, and exit with 1 where it does not have the pins."""
    TARGET.parent.mkdir(exist_ok=True)
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
    found = components(json.loads(TARGET.read_text(encoding="utf-8")))
    if wrong := unpinned(found):
        sys.exit(f"{TARGET} has what constraints.txt has not: {', '.join(wrong)}")
    print(f"{TARGET.relative_to(ROOT)}: {len(found)} components")


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
    main()
