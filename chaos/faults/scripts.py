"""What people do to a server's scripts."""

from __future__ import annotations

import threading
from contextlib import suppress
from random import Random

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.world import World
from tests.servers import RunningServer
from tests.worlds.waiting import eventually

ENDLESS = "while true do end"


class ScriptsFlushed:
    """`SCRIPT FLUSH`: each relay has to load its scripts again."""

    name = "scripts flushed"
    seconds = 0.0, 0.0

    def strike(self, world: World, chance: Random) -> None:
        chance.choice(world.servers.masters).control.script_flush()

    def heal(self, world: World) -> None:
        """There is nothing to heal."""


class ForeignScript:
    """Somebody's script does not end, and a server answers BUSY to all others until a person kills it."""

    name = "foreign script endless, killed"
    seconds = 0.1, 2.0

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(world.servers.masters)
        self._limit = TimeLimit(self._server)
        self._foreign = threading.Thread(target=run_endlessly, args=[self._server])
        self._foreign.start()
        eventually(lambda: is_busy(self._server), "the server runs nothing but that script")

    def heal(self, world: World) -> None:
        self._server.control.script_kill()
        self._foreign.join()
        self._limit.restore()


class ScriptsKilled:
    """A person kills whatever script runs for longer than a millisecond, Relay's own, again and again. A
    server does not kill one that has written already."""

    name = "scripts killed"
    seconds = 0.2, 2.0

    def __init__(self) -> None:
        self.killed = 0
        """How many have been."""

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(world.servers.masters)
        self._limit = TimeLimit(self._server)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._kill)
        self._thread.start()

    def _kill(self) -> None:
        with self._server.client() as client:
            while not self._leaving.wait(0.0005):
                with suppress(redis.ResponseError):  # NOTBUSY, UNKILLABLE
                    client.script_kill()
                    self.killed += 1

    def heal(self, world: World) -> None:
        self._leaving.set()
        self._thread.join()
        self._limit.restore()
        world.note("scripts killed", count=self.killed)


class TimeLimit:
    """How long a script runs before a server listens to others (milliseconds): 1, until it is restored."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._before = str(server.control.config_get("lua-time-limit")["lua-time-limit"])
        server.control.config_set("lua-time-limit", "1")

    def restore(self) -> None:
        self._server.control.config_set("lua-time-limit", self._before)


def run_endlessly(server: RunningServer) -> None:
    with (
        server.client(socket_timeout=None, retry=Retry(NoBackoff(), 0)) as client,
        suppress(redis.ResponseError),  # it was killed
    ):
        client.eval(ENDLESS, 0)


def is_busy(server: RunningServer) -> bool:
    try:
        server.control.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False
