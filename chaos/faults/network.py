"""Lines between applications, relays and servers, in rows with `lines`: cut, slow, narrow, half open, and
bytes that arrive after their sender is gone."""

from __future__ import annotations

from random import Random

from chaos.load.client import PAYLOAD
from chaos.world import Line, World


def lines_of(world: World) -> list[Line]:
    """All lines: from each relay to each server, and from each application to its relay."""
    return [*world.to_relays.values(), *(each for its in world.to_servers.values() for each in its.values())]


class LinesCut:
    """All connections of a line break; new ones are taken at once."""

    name = "connections cut"
    seconds = 0.0, 0.0

    def strike(self, world: World, chance: Random) -> None:
        chance.choice(lines_of(world)).cut_all()

    def heal(self, world: World) -> None:
        """There is nothing to heal."""


class LineDelayed:
    """What goes by a line arrives later, either way, by up to a second for each way."""

    name = "line delayed"
    seconds = 0.5, 3.0

    def strike(self, world: World, chance: Random) -> None:
        self._line = chance.choice(lines_of(world))
        self._line.slow(delay=chance.choice([0.02, 0.1, 0.5, 1.0]))

    def heal(self, world: World) -> None:
        self._line.slow()


class LineNarrow:
    """A line passes a few kilobytes a second on each connection."""

    name = "line narrow"
    seconds = 0.5, 3.0

    def strike(self, world: World, chance: Random) -> None:
        self._line = chance.choice(lines_of(world))
        self._line.slow(rate=chance.choice([2_000.0, 10_000.0, 50_000.0]))

    def heal(self, world: World) -> None:
        self._line.slow()


class HalfOpen:
    """Something between both ends has forgotten their connections, and tells neither; new ones are taken. It
    speaks up at last, or one end has given up before."""

    name = "connections half open"
    seconds = 0.5, 5.0

    def strike(self, world: World, chance: Random) -> None:
        self._line = chance.choice(lines_of(world))
        self._line.forget_all()

    def heal(self, world: World) -> None:
        self._line.remember()


class BytesHeldBack:
    """What a relay or an application sends waits on its way. In half of the cases the sender is cut off
    meanwhile; it goes on by a new connection, and what it had sent arrives after that: a ghost."""

    name = "bytes held back"
    seconds = 0.05, 8.0  # callers wait for 3

    def strike(self, world: World, chance: Random) -> None:
        self._line = chance.choice(lines_of(world))
        self._line.hold("")
        self._hang_up = chance.random() < 0.5

    def heal(self, world: World) -> None:
        if self._hang_up:
            self._line.hang_up()
        self._line.release()


class CallsHeldBack:
    """Calls that store timers wait on their way to a server, each on a connection of its own, until callers
    have given them up and repeated them by the other relay. Then they arrive, behind what was answered since,
    and the last turns of recurrences behind those of the other relay. All else passes, so a relay has the
    server's time, and goes on calling."""

    name = "calls held back"
    seconds = 3.5, 8.0  # callers wait for 3

    def strike(self, world: World, chance: Random) -> None:
        its = chance.choice(list(world.to_servers.values()))
        self._line = chance.choice(list(its.values()))
        self._line.hold(PAYLOAD)

    def heal(self, world: World) -> None:
        self._line.hang_up()
        self._line.release()


LINES = LinesCut, LineDelayed, LineNarrow, HalfOpen, BytesHeldBack, CallsHeldBack
"""All faults of lines."""
