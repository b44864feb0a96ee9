"""The daemon's own code on two real servers, one script or command at a time.

A coroutine of the daemon's runs until it would send something, and hands that out as a `Step`. The test
decides what becomes of it, and when. So nothing here needs an event loop, and each run is the same each time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError

from relay.core.instants import SECOND
from relay.store.keys import KeyNames
from relay.store.server.errors import translated_errors
from relay.store.server.scripts import Argument, Call, Prepared
from relay.store.server.server import Server
from tests.worlds.scripts.rules import Break
from tests.worlds.scripts.texts import texts

if TYPE_CHECKING:
    from redis import Redis

    from tests.servers import RunningServer

R = TypeVar("R")

TOPIC = "t"
CLOCK = "now"
"""The key of the clock on each server."""


def until() -> int:
    """An instant by which no call is over that is sent now: that is told by the servers' own clocks."""
    return (int(time.time()) + 60) * SECOND


_NUMBER = re.compile(rf":{TOPIC}#(\d+)")


class Step:
    """Something that is to be sent: a script call, or a command. `verb` is the name of either, `number` the
    partition that it is about."""

    def __init__(self, verb: str, key: str, command: tuple[Argument, ...], prepared: Prepared | None = None):
        self.verb = verb
        self.command = command
        self.prepared = prepared
        self.number = _number(key)

    def __await__(self) -> Generator[Step, Any, Any]:
        return (yield self)

    def __str__(self) -> str:
        args = self.prepared.args if self.prepared else self.command[1:]
        by = self.prepared.last if self.prepared else ()
        return f"{self.number}:{self.verb} {[*args, *by]}"


def _number(key: str) -> int:
    """The partition that has a key."""
    found = _NUMBER.search(key)
    return int(found[1]) if found else 0


def node(number: int) -> int:
    """The server that has a partition. Timers move from 0 to 1 of two, and from 0 to 2 and 1 to 3 of four:
    always to the other one."""
    return (number ^ number >> 1) & 1


class Seam(Server):
    """A server of which each call is a `Step`."""

    async def _run(self, prepared: Prepared, topic: str) -> tuple[Any, float]:
        command, verb = prepared.command(until()), prepared.script.name.partition("+")[0]
        with translated_errors():
            return await Step(verb, prepared.keys[0], command, prepared), 0.0

    async def ask(self, *command: Argument) -> Any:
        with translated_errors():
            return await Step(str(command[0]), str(command[1]), command)

    async def each(self, calls: Sequence[Call[R]]) -> list[R | Exception]:
        results: list[R | Exception] = []
        for call in calls:
            reply: R = await self.call(call)
            results.append(reply)
        return results


@lru_cache(maxsize=4)
def clocked(rooms: tuple[str, ...], *breaks: Break) -> Mapping[str, str]:
    """All scripts, reading the time from one key on each server; those in `rooms` have `breaks` applied."""
    scripts = texts(rooms, *breaks)
    return {name: text.replace("KEYS[1] .. ':now'", f"'{CLOCK}'") for name, text in scripts.items()}


async def in_turn(work: Callable[[Any], Awaitable[Any]], parts: Sequence[Any]) -> list[Any]:
    """`for_each`, one part after the other."""
    return [await work(part) for part in parts]


class Nodes:
    """The two servers."""

    def __init__(self, servers: Sequence[RunningServer]) -> None:
        self.url = servers[0].url
        self.clients: list[Redis] = [server.client() for server in servers]

    def empty(self) -> None:
        for client in self.clients:
            client.flushdb()

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def set_clock(self, now: int) -> None:
        for client in self.clients:
            client.set(CLOCK, now)

    def of(self, number: int) -> Redis:
        """The one that has a partition."""
        return self.clients[node(number)]

    def run(self, step: Step) -> Any:
        """Do what is to be sent. Raises what Redis answers."""
        client = self.of(step.number)
        try:
            return client.execute_command(*step.command)
        except NoScriptError:
            assert step.prepared is not None
            return client.execute_command(*step.prepared.command(until(), known=False))

    def key(self, name: str, number: int) -> str:
        """A key of a partition, whatever the layout is."""
        return KeyNames().key(name, f"{TOPIC}#{number} 1 2")
