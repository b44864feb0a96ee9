"""Somebody who watches servers and the machine, for what the judge has to know beside what callers say."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.ledger import Ledger
from tests.servers import RunningServer

PACE = 0.05
"""Seconds between two looks at a server."""
MACHINE_PACE = 1.0
TICK = 100.0
"""Units of /proc/stat in a second."""


class Look(NamedTuple):
    """What a server said of itself."""

    sent: float
    """When it was asked (monotonic)."""
    heard: float
    master: int
    """The port of its master; 0 if it says that it is one itself."""
    offset: int
    """Of its replication stream: how much it has written, or taken."""
    buffered: bool
    """Whether it has changes that are in none of its files yet."""


class Witness:
    """Reads the clock and the replication of each server all the time, one thread for each, into a ledger.

    Nothing of it is Relay's. A server that is away or stands still is looked at again when it is back. Where
    it sees that a replica has become a master, asked for or not, it writes down from when on what the old
    master had answered for is lost.
    """

    def __init__(self, servers: Sequence[RunningServer], ledger: Ledger) -> None:
        self._servers = servers
        self._ledger = ledger
        self._leaving = threading.Event()
        self._looks: dict[int, list[Look]] = defaultdict(list)
        self._replaced: dict[int, float] = {}
        """Masters whose place was taken, and since when at least; until they know, they go on answering."""
        self._threads = [threading.Thread(target=self._watch, args=(server,)) for server in servers]
        self._threads.append(threading.Thread(target=self._watch_machine))

    # ------------------------------------------------------------- what was safe until when

    def _replicated(self, master: int, held: int) -> float:
        """Until when (monotonic) all that this master had answered for was within so much of its stream."""
        looks = self._looks[master]
        return max((each.sent for each in looks if each.offset <= held), default=0.0)

    def written(self, server: RunningServer, by: float = math.inf) -> float:
        """Until when all that this server had answered for was in its file, in the hands of the kernel, at a
        moment."""
        looks = self._looks[server.port]
        return max((each.sent for each in looks if not each.buffered and each.heard <= by), default=0.0)

    # ---------------------------------------------------------------------------- the threads

    def _watch(self, server: RunningServer) -> None:
        # Without tries of its own, which would wait longer and longer while the server is away.
        once = Retry(NoBackoff(), 0)
        client = server.client(socket_timeout=0.5, socket_connect_timeout=0.5, retry=once)
        before: float | None = None
        while not self._leaving.wait(PACE):
            asked = time.monotonic()
            try:
                self._look(server, client)
            except redis.ConnectionError:
                self.silent(server.port, asked)
                before = asked
            except (redis.RedisError, OSError):
                if before is not None:  # once it may be slow, and answer others all the same
                    self.silent(server.port, before)
                before = asked
            else:
                before = None
        client.close()

    def _look(self, server: RunningServer, client: redis.Redis) -> None:
        sent = time.monotonic()
        seconds, micros = client.time()
        heard = time.monotonic()
        about: dict[str, Any] = client.info("replication", "persistence")
        master = int(about.get("master_port", 0))
        offset = about["slave_repl_offset"] if master else about["master_repl_offset"]
        buffered = bool(about.get("aof_buffer_length", 0))
        self._ledger.write(
            "clock",
            port=server.port,
            time=seconds + micros / 1e6,
            sent=sent,
            heard=heard,
            master=not master,
            full=about.get("aof_last_write_status") == "err",
        )
        self.take(server.port, Look(heard, time.monotonic(), master, offset, buffered))

    def take(self, port: int, look: Look) -> None:
        """The server on this port has said this of itself."""
        looks = self._looks[port]
        looks.append(look)
        if len(looks) > 1:
            self._note_change(port, *looks[-2:])

    def silent(self, port: int, at: float) -> None:
        """Nobody had an answer from this port at this moment: no process was there, or it stood still."""
        if port in self._replaced and not self._alone(port):
            self._replaced[port] = max(self._replaced[port], at)

    def _alone(self, port: int) -> list[float]:
        """When this server was heard as a master after its place was taken."""
        since = self._replaced[port]
        return [each.heard for each in self._looks[port] if each.sent > since and not each.master]

    def _note_change(self, port: int, before: Look, now: Look) -> None:
        if before.master and not now.master:
            safe = self._replicated(before.master, before.offset)
            alive = self._looks[before.master][-1].heard
            self._ledger.write("loss", safe=safe, why="lag", lag=max(alive - safe, 0.0))
            self._replaced[before.master] = before.heard
        elif not before.master and now.master and port in self._replaced:
            split = now.heard - min(self._alone(port), default=now.heard)
            self._ledger.write("loss", safe=self._replaced.pop(port), why="split", lag=split)

    def _watch_machine(self) -> None:
        before = Machine.read()
        while not self._leaving.wait(MACHINE_PACE):
            now = Machine.read()
            self._ledger.write("load", **now.since(before))
            before = now

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        for thread in self._threads:
            thread.join()


class Machine(NamedTuple):
    """The processors of this machine since it was started (seconds, all processors together)."""

    total: float
    idle: float
    stolen: float
    """What the hypervisor gave to others."""
    waiting: float
    """While at least one process was ready to run and had no processor."""

    @classmethod
    def read(cls) -> Machine:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, idle, wait, irq, soft, steal, *_ = (int(each) / TICK for each in fields)
        total = user + nice + system + idle + wait + irq + soft + steal
        return cls(total, idle + wait, steal, sum(_stalls()))

    def since(self, before: Machine) -> dict[str, float]:
        """The parts of the time between, from 0 to 1."""
        total = max(self.total - before.total, 1e-9)
        return {
            "busy": round(1 - (self.idle - before.idle) / total, 3),
            "stolen": round((self.stolen - before.stolen) / total, 3),
            "waiting": round((self.waiting - before.waiting) / MACHINE_PACE, 3),
        }


def _stalls() -> Iterator[float]:
    """The line "some" of the kernel's pressure on processors, where it has one."""
    with suppress(OSError):
        for line in Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines():
            if line.startswith("some"):
                yield int(line.rpartition("total=")[2]) / 1e6
