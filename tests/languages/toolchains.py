"""What builds the examples in other languages: Go and Java of the machine, Node.js by pip."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from relay.conformance.scenes import SCENES
from tests.chaos import CHAOS
from tests.e2e.node import NODE, NPM
from tests.missing import DEBIAN, skip
from tests.worlds.relay.processes import ROOT

GO_EXAMPLE = ROOT / "examples" / "go"
JAVA_EXAMPLE = ROOT / "examples" / "java"
TYPESCRIPT_EXAMPLE = ROOT / "examples" / "typescript"
BUF = ROOT / ".venv" / "bin" / "buf"
GO_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin")
PATIENCE = 900.0
"""Seconds for a step of a build: a first one compiles gRPC and all below it."""


class BuildFailed(RuntimeError):
    """A toolchain's command failed; the message is its own."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time builds in a folder."""
    with (folder / "README.md").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(folder: Path, *command: str | Path, path: str = "", **environment: str) -> str:
    """Run a command of a build, and return its output. Raises BuildFailed."""
    found = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", **environment}
    done = subprocess.run(
        command, cwd=folder, env=found, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BuildFailed(f"{' '.join(map(str, command))}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def go() -> Path:
    """Return the folder that has the command `go`. Skips the test if no folder has it."""
    found = shutil.which("go", path=":".join([os.environ["PATH"], *GO_PLACES]))
    if found is None:
        skip("Go", f"apt-get install {DEBIAN['go']}")
    return Path(found).parent


def go_run(*words: str) -> str:
    """A command of Go in its example."""
    return built(
        GO_EXAMPLE, go() / "go", *words, path=str(go()), GOTOOLCHAIN="local", GOFLAGS="-buildvcs=false"
    )


def java() -> str:
    """Return the command `java`. Skips the test if there is none, or no Maven."""
    if shutil.which("javac") is None or shutil.which("mvn") is None:
        skip("a JDK and Maven", f"apt-get install {DEBIAN['java']}")
    return "java"


def maven_run(*words: str) -> str:
    """A command of Maven in the Java example."""
    java()
    return built(JAVA_EXAMPLE, "mvn", "--batch-mode", "--no-transfer-progress", "--quiet", *words)


def npm_run(*words: str) -> str:
    """A command of npm in the TypeScript example."""
    return built(TYPESCRIPT_EXAMPLE, NODE, NPM, *words, path=str(NODE.parent))


SPARED = () if CHAOS else ("push-redelivery", "push-connection", "push-batch", "push-batch-receipts")
"""Scenes that only `make chaos` plays to examples whose runtimes take most of a second to start. These
examples keep nothing between calls or connections, and have no batches."""


def conformance(client: str, *without: str, patience: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Judge a client by all scenes, or by all but some."""
    command = ["-m", "relay.cli", "conformance", "--client", client, "--patience", f"{patience:g}"]
    for each in SCENES if without else ():
        command += [] if each.name in without else ["--scene", each.name]
    return subprocess.run(
        [ROOT / ".venv" / "bin" / "python", *command], cwd=ROOT, capture_output=True, text=True, timeout=800,
        check=False,
    )  # fmt: skip


def output(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a built program to its end."""
    return subprocess.run(
        command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip
