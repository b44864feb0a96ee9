"""The scripts of `lua/people`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from relay.core.recurring.forecast import Window
from relay.store.keys import ACTIONS
from relay.store.server.scripts import Argument, Call
from relay.store.verbs.recur import PAGE_BYTES
from relay.store.verbs.terms import Mixed, Words, by_hand

MOST_RECORDS = 1_000
"""The most records of leases and retries of a partition that a forecast looks at, to tell what is leased."""

MOST_RECURRENCES = 500
"""The most recurrences of a partition that a forecast reads."""


class StatsReply(NamedTuple):
    """What `people/stats` answers."""

    now: bytes
    timers: int
    due: int
    first: bytes
    leases: int
    dead: int
    oldest: bytes
    paused: bytes
    minute: int
    hour: int
    day: int
    cold: Words


def stats(topic: str) -> Call[StatsReply]:
    """How a topic stands."""
    return Call("people/stats", topic, (), StatsReply._make)


class ForecastReply(NamedTuple):
    """What `people/forecast` answers. `leased` is None if leases are not told apart, `until` if all
    recurrences were read. `recurrences` has four words of each; see `say_recurrence`."""

    since: int
    overdue: int
    leased: int | None
    later: int
    until: int | None
    timers: Sequence[int]
    recurrences: Words

    @classmethod
    def read(cls, reply: Mixed) -> Self:
        """Read what the script says."""
        since, overdue, leased, later, until, intervals, *rest = reply
        return cls(
            int(since),
            overdue,
            None if leased == b"" else leased,
            later,
            int(until) if until else None,
            rest[:intervals],
            rest[intervals:],
        )


def forecast(topic: str, window: Window, since: int | None) -> Call[ForecastReply]:
    """What falls due from `since` on; None means now."""
    begins: Argument = "" if since is None else since
    asked = (begins, window.horizon, window.resolution, MOST_RECORDS, MOST_RECURRENCES, PAGE_BYTES)
    return Call("people/forecast", topic, asked, ForecastReply.read)


def pause(topic: str, word: Literal["at", "in", "end"], value: int) -> Call[bytes]:
    """The reply: the end of the pause, if there is one."""
    return Call("people/pause", topic, (word, value), hints=True, by=by_hand())


def letters(topic: str, limit: int, cursor: str, max_bytes: int, at_once: int) -> Call[Mixed]:
    """The reply: whether there is more; then of each its id and its fields."""
    return Call("people/letters", topic, (limit, cursor, max_bytes, at_once))


def redrive(topic: str, dead_ids: Sequence[str]) -> Call[Words]:
    """The reply: of each a word, and the timer_id or the group."""
    return Call("people/redrive", topic, dead_ids, hints=True, by=by_hand())


def purge(topic: str, dead_ids: Sequence[str]) -> Call[int]:
    """The reply: how many were there."""
    return Call("people/purge", topic, dead_ids, by=by_hand())


def record(keep: int, once: str, written: Sequence[Argument]) -> Call[Mixed]:
    """Append to the action log. The reply: the entry's id, how many were removed."""
    return Call("people/record", ACTIONS, (keep, once, *written))


def trim(topic: str, max_count: int, max_age: int) -> Call[int]:
    """The reply: how many were removed."""
    return Call("people/trim", topic, (max_count, max_age))
