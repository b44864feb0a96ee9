"""The scripts of `lua/people`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from relay.store.keys import ACTIONS
from relay.store.server.scripts import Argument, Call
from relay.store.verbs.terms import Mixed, Words, by_hand


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


def stats(topic: str) -> Call[StatsReply]:
    """How a topic stands."""
    return Call("people/stats", topic, (), StatsReply._make)


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
