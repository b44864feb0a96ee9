"""A Valkey whose scripts run by Lua 5.4."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import redis

from tests.servers import Kind, RunningServer, free_port
from tests.worlds.lua54.line import Lua54Line


class Lua54Server(RunningServer):
    """Clients meet the line that stands before the server."""

    def __init__(
        self, kind: Kind, path: Path, port: int, config: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        super().__init__(kind, path, port, config, environment)
        self._behind = RunningServer(kind, path, free_port(), config, environment)
        self._line: Lua54Line | None = None

    @property
    def pid(self) -> int:
        return self._behind.pid

    @property
    def running(self) -> bool:
        return self._behind.running

    @property
    def log(self) -> str:
        return self._behind.log

    def client(self, **options: object) -> redis.Redis:
        return super().client(**{"protocol": 2, **options})

    def start(self) -> None:
        """As any; see `RunningServer.start`."""
        if not self.running:
            self._behind.start()
            self._line = Lua54Line(self.port, self._behind.port)

    def stop(self) -> None:
        super().stop()
        self._behind.stop()

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        if self._line is not None:
            self._line.close()
            self._line = None
        self._behind._end(how)
