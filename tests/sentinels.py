"""A master, two replicas and three Sentinels, all real, for tests that take the master away."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Self, cast

import redis

from tests.servers import Kind, RunningServer, ServerFailed, ServerMissing, binary, free_port, start_server
from tests.worlds.waiting import eventually

MASTER = "mymaster"
DOWN_AFTER = 1000
"""Milliseconds without an answer after which a Sentinel takes a server for dead that is to be missed."""

PATIENT = 120_000
"""The same where none is to be missed: on a busy machine a master that is well may stand still for seconds,
and would be replaced."""

REPLICATED = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}


def until_answered(ask: Callable[[], Any], what: str, timeout: float = 150.0) -> Any:
    """Ask until the answer is true, and return it; servers that are away meanwhile are asked again."""

    def ask_again() -> Any:
        with suppress(redis.RedisError, OSError):
            return ask()
        return None

    return eventually(ask_again, what, timeout)


class Sentinel:
    """One Sentinel process."""

    def __init__(
        self, kind: Kind, master_port: int, config: Mapping[str, str], *, down_after: int = PATIENT
    ) -> None:
        path = binary(kind)
        if path is None:
            raise ServerMissing(kind)
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="relay-sentinel-"))
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            f"logfile {self.directory / 'log'}",
            f"sentinel monitor {MASTER} 127.0.0.1 {master_port} 2",
            f"sentinel down-after-milliseconds {MASTER} {down_after}",
            f"sentinel failover-timeout {MASTER} 10000",
            f"sentinel parallel-syncs {MASTER} 2",
            *(f"{name} {value}" for name, value in config.items()),
        ]
        file = self.directory / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [path, file, "--sentinel"], stdin=quiet, stdout=quiet, stderr=quiet, cwd=self.directory
        )

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=60.0, **options)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        rmtree(self.directory, ignore_errors=True)


class Group:
    """Waits until everybody knows everybody; `with` ends all of it.

    A master that does not answer is replaced after `down_after` milliseconds, and sooner once a test waits
    for a `new_master`.
    """

    def __init__(
        self, kind: Kind = "valkey", config: Mapping[str, str] | None = None, *, down_after: int = PATIENT
    ) -> None:
        self._stack = ExitStack()
        self._down_after = down_after
        try:
            self.servers = [
                self._stack.enter_context(start_server(kind, config=REPLICATED | dict(config or {})))
                for _ in range(3)
            ]
            for replica in self.servers[1:]:
                with replica.client() as client:
                    client.replicaof("127.0.0.1", self.servers[0].port)
            until_answered(lambda: self.connected(self.servers[0]) == 2, "two replicas are connected")
            self.sentinels = [self._sentinel(kind) for _ in range(3)]
            until_answered(self._complete, "the Sentinels know everybody")
        except BaseException:
            self._stack.close()
            raise

    def _sentinel(self, kind: Kind) -> Sentinel:
        for _ in range(5):  # another process may take a port before it is bound
            sentinel = Sentinel(kind, self.servers[0].port, {}, down_after=self._down_after)
            try:
                until_answered(lambda: sentinel.client().ping(), "a Sentinel answers", 20.0)  # noqa: B023
            except AssertionError:
                sentinel.stop()
            else:
                self._stack.callback(sentinel.stop)
                return sentinel
        raise ServerFailed("no Sentinel starts")

    def _complete(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                state = cast("dict[str, Any]", client.execute_command("SENTINEL MASTER", MASTER))
                if (state["num-slaves"], state["num-other-sentinels"]) != (2, 2):
                    return False
        return True

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER}/0"

    def master(self) -> RunningServer:
        """The server that a majority of the Sentinels call the master."""
        ports = [self.named(sentinel) for sentinel in self.sentinels]
        best = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == best)

    @staticmethod
    def named(sentinel: Sentinel) -> int:
        """The port of the server that a Sentinel calls the master."""
        with sentinel.client() as client:
            reply = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(cast("list[bytes]", reply)[1])

    def new_master(self, old: RunningServer) -> RunningServer:
        """Wait for a master that is not `old`, and that says so itself."""

        def found() -> RunningServer | None:
            server = self.master()
            return server if server is not old and self.role(server) == "master" else None

        self._take_for_dead_after(DOWN_AFTER)
        new = cast("RunningServer", until_answered(found, "there is a new master"))
        self._take_for_dead_after(self._down_after)
        return new

    def _take_for_dead_after(self, milliseconds: int) -> None:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                client.execute_command("SENTINEL SET", MASTER, "down-after-milliseconds", milliseconds)

    @staticmethod
    def role(server: RunningServer) -> str:
        with server.client(socket_timeout=5.0) as client:
            return str(cast("dict[str, Any]", client.info("replication"))["role"])

    @staticmethod
    def connected(server: RunningServer) -> int:
        """How many replicas are in step with it."""
        with server.client() as client:
            info = cast("dict[str, Any]", client.info("replication"))
        return sum(info[f"slave{n}"]["state"] == "online" for n in range(info["connected_slaves"]))

    def fail_over(self) -> None:
        """SENTINEL FAILOVER: a live master is made a replica, and a majority knows it.

        The race: on a busy machine a replica does not answer for a second, when the Sentinel looks for one to
        promote. Then it gives up, and nobody begins again, since the master lives. So it is asked again, for
        as long as it names the old master itself; one that is at it says INPROG.
        """
        first, old = self.sentinels[0], self.master()

        def replaced() -> bool:
            if self.named(first) == old.port:
                with first.client() as client, suppress(redis.ResponseError):
                    client.execute_command("SENTINEL", "FAILOVER", MASTER)
            return self.master() is not old

        until_answered(replaced, "the master is replaced")

    def covered(self, client: redis.Redis, replicas: int = 2) -> bool:
        """Whether so many replicas have everything that the client's server had been told till now.

        Replication is one ordered stream, so WAIT after a write of ours covers all writes before it,
        whoever made them.
        """
        client.set("waited", 1)
        return client.wait(replicas, 500) >= replicas

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
