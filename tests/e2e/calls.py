"""The calls of all handlers, the applications' and the peers', as they themselves wrote them down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.worlds.relay.processes import Event, Journal


@dataclass
class Call:
    """One call of a handler: when it began, and when it ended if it did. Seconds since 1970."""

    timer_id: str
    pid: int
    start: float
    end: float | None
    version: int
    """What the header of this name says; 0 without one."""


@dataclass(frozen=True)
class Death:
    """A kill: from then on nothing was settled that `pid` held.

    `pid` is a worker of the peer's, or an application whose relay was killed.
    """

    pid: int
    at: float


def calls(journal: Journal) -> dict[str, list[Call]]:
    """Of each timer, in the order in which they began."""
    found: dict[str, list[Call]] = defaultdict(list)
    for event in sorted(journal.events(), key=lambda event: event.at):
        if event.event == "start":
            call = Call(event.timer_id, event.pid, event.at, None, version_of(event))
            found[event.timer_id].append(call)
        elif event.event == "end":
            # One process may have begun it twice: an end belongs to the first that has none.
            key = (event.pid, version_of(event))
            running = (c for c in found[event.timer_id] if c.end is None and (c.pid, c.version) == key)
            next(running).end = event.at
    return found


def version_of(event: Event) -> int:
    return int((event.headers or {}).get("version", 0))


def cut_off(call: Call, deaths: Sequence[Death], slack: float) -> bool:
    """Whether its holder died before it was settled: while it ran, or up to `slack` seconds later."""
    return any(
        death.pid == call.pid and call.start <= death.at and (call.end is None or death.at < call.end + slack)
        for death in deaths
    )
