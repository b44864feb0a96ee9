"""Python programs as processes of their own, forked from one that has imported Relay already.

A relay imports for 0.6 s of CPU before it does anything, and the suite starts hundreds. The fork server of
`multiprocessing` imports once for each worker of the suite, and forks: the child is a process like any other,
with an id, signals, files and variables of its own, and runs `python -m MODULE` from there on. That Relay
also starts from nothing is shown by tests/cli/test_dev.py and by the pages that tests/docs/test_console.py
types.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from tests.worlds.waiting import make_one_try

PRELOAD = [
    "relay.app",
    "relay.cli.commands",
    "relay.cli.daemon.serve",
    "relay.client",
    "relay.client.push.health",
    "relay.settings",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "tests.worlds.relay.application",
    "tests.worlds.relay.warm",
]
"""Imported before the forks. Nothing of it may start a thread or read a setting."""

MODULES = frozenset(
    (
        "relay.cli",
        "tests.worlds.relay.application",
        *(f"chaos.load.{name}" for name in ("application", "client", "operator")),
        *(f"tests.e2e.{name}" for name in ("peer", "push_application", "traced_producer")),
    )
)
"""What may be forked. A program that changes something before it imports Relay, as the wrong clocks of
tests/promises do, has to start from nothing."""

SET_BY_IMPORT = ("GRPC_VERBOSITY",)
"""Variables that Relay's modules set as they are imported."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOAD)


class Given:
    """A file that this process has open, on its way to a child."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _taken, (DupFd(self._file),)


def _taken(given: Any) -> int:
    """The child's number for the file."""
    return int(given.detach())


class Forked:
    """What `subprocess.Popen` is, for a module: `arguments` are its name and its argv. `files` are open files
    of this process by the number that the child has them under; without 0 it reads nothing. With `one_try` it
    makes each call once, as `make_one_try` says."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        files: Mapping[int, int],
        one_try: bool = False,
    ) -> None:
        given = {number: Given(file) for number, file in files.items()}
        self._process = _context.Process(
            target=_run, args=(list(arguments), str(cwd), dict(env), given, one_try), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], cwd: str, env: dict[str, str], files: dict[int, int], one_try: bool) -> None:
    """What happens in the child: become `python -m MODULE …` with these files and variables."""
    for name in os.environ.keys() - env.keys() - set(SET_BY_IMPORT):
        del os.environ[name]
    os.environ.update(env)
    os.chdir(cwd)
    for number, file in files.items():
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (multiprocessing closed the other one)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if one_try:
        make_one_try()
    module, *sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
