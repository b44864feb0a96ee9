"""Test what users install: the built wheel, in empty venvs, far from the clone.

1. The base install alone imports relay.client and its testing, warnings as errors, with the pinned versions
   and with the oldest grpcio and protobuf that pyproject.toml allows; and it brings nothing of the daemon.
2. With its extras, the tests that meet what a wheel may lack pass against it: each Lua file, every
   command, the daemon as a process with applications by stream and by push, both clients, the
   shipped test double, settings, metrics and traces. The rest does not depend on how Relay was installed, and
   has passed in the clone; neither does the kind of server, so all of it runs on Valkey alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
OLDEST = ("grpcio==1.74.0", "protobuf==6.31.1")
COPIED = ("tests", "bench", "examples", "pyproject.toml")

PROVING = (
    "tests/contract",  # every verb, so every Lua file
    "tests/dispatch",
    "tests/store/test_scripts.py",
    "tests/store/test_connect.py",
    "tests/settings",
    "tests/cli",
    "tests/web",
    "tests/telemetry",
    "tests/client/test_calls.py",
    "tests/client/test_push.py",
    "tests/client/test_testing.py",
    "tests/client/test_lifecycle.py",
    "tests/rpc/test_server.py",
    "tests/e2e/test_life.py",
    "tests/e2e/test_push_application.py",
    "tests/e2e/test_sync_client.py",
)
"""The part of the suite that shows whether the wheel holds all that it should."""

IMPORT_CLIENT = """
import importlib.util, relay.client, relay.client.testing
for name in ("redis", "pydantic", "anyio", "opentelemetry"):
    assert importlib.util.find_spec(name) is None, f"the base install brought {name}"
"""
IS_INSTALLED = """
import pathlib, sys, relay
from relay.cli import main  # the entry point of the `relay` command
package = pathlib.Path(relay.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not the installed one"
assert list((package / "lua").rglob("*.lua")), "the wheel carries no lua/"
assert (package / "py.typed").exists(), "the wheel carries no py.typed"
"""


def say(text: str) -> None:
    print(f"wheel-test: {text}", flush=True)


def run(*command: str | Path, cwd: Path) -> None:
    """Run without the clone on any path; ends this program with the command's exit code if it fails."""
    leading_back = ("PYTHON", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(leading_back)}
    code = subprocess.run(command, cwd=cwd, env=env, check=False).returncode
    if code:
        say(f"failed ({code}): {' '.join(map(str, command))[:200]}")
        sys.exit(code)


def make_venv(where: Path, *packages: str) -> Path:
    """An empty venv with these packages; returns its Python."""
    venv.create(where, with_pip=True)
    python = where / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages, cwd=where)
    return python


def build_wheel(out: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def check_base(wheel: Path, work: Path) -> None:
    for name, pins in (("pinned", CONSTRAINTS), ("oldest", OLDEST)):
        say(f"base install, {name}: {' '.join(OLDEST) if pins is OLDEST else 'constraints.txt'}")
        python = make_venv(work / f"base-{name}", *pins, str(wheel))
        run(python, "-W", "error", "-c", IMPORT_CLIENT, cwd=work)


def check_suite(wheel: Path, work: Path, options: list[str]) -> None:
    say("the part of the suite that shows it, on the wheel with its extras")
    python = make_venv(work / "full", *CONSTRAINTS, f"{wheel}[dev,test]")
    away = work / "suite"
    away.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, away / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        elif source.exists():
            shutil.copy(source, away / name)
    run(python, "-c", IS_INSTALLED, cwd=away)
    run(
        python,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow and not checkout",
        "-k",
        "not redis-",
        *options,
        *PROVING,
        cwd=away,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Test the built wheel outside the clone.")
    parser.add_argument("--workers", default="2", help="pytest-xdist workers")
    workers = parser.parse_args().workers
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relay-wheel-") as directory:
        work = Path(directory).resolve()
        wheel = build_wheel(work)
        check_base(wheel, work)
        check_suite(wheel, work, ["-n", workers, "--dist=loadgroup"])
    say(f"passed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
