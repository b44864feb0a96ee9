"""Test what users install: the built wheel, in empty venvs, far from the clone.

1. The wheel holds every file of relay/ and lua/, and both commands.
2. The base install alone imports relay.client and its testing, warnings as errors, with the pinned versions
   and with the oldest grpcio and protobuf that pyproject.toml allows; and it brings nothing of the daemon.
   With the extra `rules` alone, recurrences run in its testing.
3. With its extras, some tests meet what a wheel may lack: the scripts run on a real Valkey, data files are
   found, and the command, the daemon as a process, applications by stream and by push, both clients and the
   shipped test double work. The rest of the suite does not depend on how Relay was installed, and has passed
   in the clone.
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
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
OLDEST = ("grpcio==1.74.0", "protobuf==6.31.1")
COPIED = ("tests", "bench", "chaos", "examples", "pyproject.toml")

PROVING = (
    "tests/contract",  # every verb of the store, so its Lua files
    "tests/store/test_scripts.py",
    "tests/settings/test_load.py",
    "tests/cli/test_daemon.py",
    "tests/cli/test_dev.py::test_port_moves_all_three_and_what_it_prints_is_enough",
    "tests/console/test_doors.py",  # with templates and assets
    "tests/web/test_openapi.py",
    "tests/telemetry/test_metrics.py",
    "tests/client/test_testing.py",
    "tests/client/test_testing_recurrences.py",
    "tests/rpc/test_server.py",
    "tests/e2e/test_life.py",
    "tests/e2e/test_push_application.py",
    "tests/e2e/test_sync_client.py::test_the_life_of_a_timer",
)
"""The part of the suite that shows whether the wheel works."""

TEST_TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "psutil", "jsonschema")
"""What these tests need beside the wheel; the rest of the extra `test` is checkers and peers."""

IMPORT_CLIENT = """
import importlib.util, relay.client, relay.client.testing
for name in ("redis", "pydantic", "anyio", "opentelemetry", "cronsim", "dateutil", "tzdata"):
    assert importlib.util.find_spec(name) is None, f"the base install brought {name}"
"""
RECUR = """
from relay.client.testing import SyncInMemoryRelay
with SyncInMemoryRelay() as relay:
    relay.client.recur("r", topic="t", cron="30 2 * * *", zone="Europe/Berlin")
    relay.advance(days=2)
    assert relay.client.recurrences.get("t", "r").left_out == {"overlap": 1}
"""
IS_INSTALLED = """
import pathlib, sys, relay
package = pathlib.Path(relay.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not the installed one"
"""
LOAD_SCRIPTS = """
import pathlib, redis, relay
from relay.cli.daemon.embedded import embedded_valkey
from relay.store.server.manifest import verbs
from relay.store.server.scripts import source, variants
assert (pathlib.Path(relay.__file__).parent / "lua").is_dir()
with embedded_valkey(None) as url, redis.Redis.from_url(url) as client:
    for verb in verbs():
        for name in variants(verb):
            client.script_load(source(name))
print(len(verbs()), "scripts and their forms for layouts and journals are taken by Valkey")
"""


def say(text: str) -> None:
    print(f"wheel-test: {text}", flush=True)


def run(*command: str | Path, cwd: Path) -> None:
    """Run without the clone on any path; ends this program with the command's exit code if it fails."""
    leading_back = ("PYTHON", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(leading_back)}
    env["RELAY_TEST_SERVER"] = "valkey"
    code = subprocess.run(command, cwd=cwd, env=env, check=False).returncode
    if code:
        say(f"failed ({code}): {' '.join(map(str, command))[:200]}")
        sys.exit(code)


def make_venv(where: Path, *packages: str) -> Path:
    """An empty venv with these packages, which this program's pip installs; returns its Python."""
    venv.create(where, with_pip=False)
    python = where / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "-q", *packages, cwd=where)
    return python


def build_wheel(out: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def check_files(wheel: Path) -> None:
    """Every file of the package is in the wheel, and so are the scripts and the commands."""
    say("its files")
    sources = {"relay": "relay", "lua": "relay/lua"}
    wanted = {
        f"{inside}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, inside in sources.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    missing = wanted - held
    if not any(name.endswith(".data/scripts/relay-pipeline.py") for name in held):
        missing.add("relay-pipeline.py beside the command relay")
    if missing:
        say(f"the wheel lacks {', '.join(sorted(missing))}")
        sys.exit(1)


def check_base(wheel: Path, work: Path) -> None:
    for name, pins in (("pinned", CONSTRAINTS), ("oldest", OLDEST)):
        say(f"base install, {name}: {' '.join(OLDEST) if pins is OLDEST else 'constraints.txt'}")
        python = make_venv(work / f"base-{name}", *pins, str(wheel))
        run(python, "-W", "error", "-c", IMPORT_CLIENT, cwd=work)
    say("with the extra rules: recurrences in memory")
    python = make_venv(work / "rules", *CONSTRAINTS, f"{wheel}[rules]")
    run(python, "-W", "error", "-c", RECUR, cwd=work)


def check_suite(wheel: Path, work: Path, options: list[str]) -> None:
    say("the part of the suite that shows it, on the wheel with its extras")
    python = make_venv(work / "full", *CONSTRAINTS, f"{wheel}[dev]", *TEST_TOOLS)
    away = work / "suite"
    away.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, away / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        elif source.exists():
            shutil.copy(source, away / name)
    run(python, "-c", IS_INSTALLED, cwd=away)
    run(python.with_name("relay"), "--version", cwd=away)
    run(python, "-c", LOAD_SCRIPTS, cwd=away)
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
        check_files(wheel)
        check_base(wheel, work)
        check_suite(wheel, work, ["-n", workers, "--dist=loadgroup"])
    say(f"passed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
