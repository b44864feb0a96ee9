"""Generate relay/v1 and relay/journal from proto/relay, or check that what is committed would be generated.

    python tools/stubs.py            write the stubs
    python tools/stubs.py --check    exit 1, with a diff, if they have drifted

The generator has a venv of its own (.venv-stubs) and is an old one on purpose: code made by grpcio-tools 1.74
loads on protobuf 6.31.1 up to 7.x, today's refuses the older runtimes and would break users' applications.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PACKAGES = (Path("relay/v1"), Path("relay/journal/v1"))
PARENTS = ("relay/journal/__init__.py",)
VENV = ROOT / ".venv-stubs"
PINS = ("grpcio-tools==1.74.0", "grpcio==1.74.0", "protobuf==6.31.1", "setuptools==80.9.0")
INIT = '"""Generated from proto/{} by tools/stubs.py: do not edit."""\n'


def generator() -> Path:
    """The Python of .venv-stubs, made on first use and again when the pins change."""
    python, stamp = VENV / "bin" / "python", VENV / "pins"
    if stamp.exists() and stamp.read_text() == "\n".join(PINS) and python.exists():
        return python
    if sys.version_info >= (3, 14):
        sys.exit("stubs: grpcio-tools 1.74 has wheels for Python 3.11 to 3.13 only; run it with one of them")
    venv.create(VENV, clear=True, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary=:all:", *PINS],
        check=True,
    )
    stamp.write_text("\n".join(PINS))
    return python


def generate(out: Path) -> dict[str, str]:
    """Generate into `out`; returns path → content for all packages."""
    protos = sorted(
        str(p.relative_to(PROTO)) for package in PACKAGES for p in (PROTO / package).glob("*.proto")
    )
    if not protos:
        sys.exit(f"stubs: no .proto file in {PROTO}")
    subprocess.run(
        [
            *(generator(), "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{PROTO}"),
            *(f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")),
            *protos,
        ],
        check=True,
    )
    files = {str(p.relative_to(out)): p.read_text() for p in out.rglob("*.py*")}
    # protoc makes an empty service module for a file that declares no service.
    used = {
        name: text
        for name, text in files.items()
        if not name.endswith("_pb2_grpc.py") or "def __init__(self, channel)" in text
    }
    inits = (*(f"{package}/__init__.py" for package in PACKAGES), *PARENTS)
    return {**{name: INIT.format(Path(name).parent) for name in inits}, **used}


def committed() -> dict[str, str]:
    found = [p for package in PACKAGES for p in (ROOT / package).glob("*.py*") if p.is_file()]
    found += [ROOT / name for name in PARENTS if (ROOT / name).exists()]
    return {str(p.relative_to(ROOT)): p.read_text() for p in found}


def write(fresh: dict[str, str]) -> None:
    for stale in committed().keys() - fresh.keys():
        (ROOT / stale).unlink()
    for name, text in fresh.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
    print(f"stubs: wrote {len(fresh)} files to {', '.join(map(str, PACKAGES))}")


def drift(fresh: dict[str, str]) -> list[str]:
    """A unified diff from what is committed to what is fresh; empty if they agree."""
    old = committed()
    lines: list[str] = []
    for name in sorted(old.keys() | fresh.keys()):
        before, after = old.get(name, "").splitlines(), fresh.get(name, "").splitlines()
        lines += difflib.unified_diff(
            before, after, f"committed/{name}", f"generated/{name}", n=1, lineterm=""
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate relay/v1 from proto/relay/v1.")
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as out:
        fresh = generate(Path(out))
    if not check:
        write(fresh)
    elif lines := drift(fresh):
        print(*(line[:160] for line in lines[:60]), sep="\n")
        sys.exit("stubs: the stubs have drifted from proto/relay: run `make stubs`")


if __name__ == "__main__":
    main()
