"""Where the peers that don't live beside relay come from: each gets a folder under build/bench."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from functools import cache
from importlib.metadata import version
from pathlib import Path

Command = tuple[str, ...]
Installed = tuple[Command, str]
"""The command, to which the argument is added, and the peer's version."""

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "bench"
PATIENCE = 600
"""Seconds that an install may take."""


class Missing(Exception):
    """What the peer needs is not on this machine; the message says what."""


@cache
def beside(name: str, package: str) -> Installed:
    """A Python peer that the extra `bench` brings."""
    return (sys.executable, "-m", f"bench.peers.{name}"), version(package)


@cache
def apart(name: str, requirement: str) -> Installed:
    """A Python peer that needs other versions than relay: in a venv of its own."""
    folder = BUILD / name
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement)
        (folder / "installed").touch()
    return (str(python), "-m", f"bench.peers.{name}"), requirement.partition("==")[2]


@cache
def by_npm(name: str) -> Installed:
    """A peer in JavaScript, with the version that its package.json says."""
    node, npm = _tool("node", "Node.js"), _tool("npm", "npm")
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "peer.mjs"):
        shutil.copy(HERE / name / file, folder / file)
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    if any(_installed_by_npm(folder, package) != wanted[package] for package in wanted):
        _run(npm, "install", "--silent", "--no-package-lock", "--no-audit", "--no-fund", cwd=folder)
    return (node, str(folder / "peer.mjs")), str(wanted[name])


@cache
def by_go(name: str, module: str) -> Installed:
    """A peer in Go, with the version that its go.mod says."""
    go = _tool("go", "a Go toolchain")
    program = BUILD / name
    _run(go, "build", "-o", program, ".", cwd=HERE / name)
    lines = (HERE / name / "go.mod").read_text(encoding="utf-8").splitlines()
    (required,) = (line.split()[-1] for line in lines if line.startswith(f"require {module} "))
    return (str(program),), required.removeprefix("v")


def _installed_by_npm(folder: Path, name: str) -> str | None:
    file = folder / "node_modules" / name / "package.json"
    if not file.exists():
        return None
    found: str = json.loads(file.read_text(encoding="utf-8"))["version"]
    return found


def _tool(name: str, called: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{called} is not on this machine")
    return found


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Missing(f"{Path(command[0]).name} took more than {PATIENCE} s") from None
    except subprocess.CalledProcessError as failure:
        last = failure.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Missing(f"{Path(command[0]).name} failed: {' '.join(last)}") from None
