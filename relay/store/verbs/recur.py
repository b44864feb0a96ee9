"""The scripts of `lua/recur`, for recurrences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from relay.store.keys import CALENDARS
from relay.store.server.scripts import Argument, Call
from relay.store.verbs.terms import Words, by_hand, flag

PAGE_BYTES = 4 << 20
"""The content after which a reply ends, roughly."""


def turn(partition: str, max_waiting: int, turns: Iterable[Argument]) -> Call[Words]:
    """Write turns. The reply: a word for each."""
    return Call("recur/turn", partition, (max_waiting, *turns), hints=True, by=by_hand())


class Keeping(NamedTuple):
    """The arguments of `recur/keep`; see its header."""

    recurrence_id: str
    stood: Argument
    rule: Argument
    stands: Argument
    look: Argument
    before: Argument
    following: Argument
    reason: str


def keep(partition: str, keeping: Keeping) -> Call[bytes]:
    """Keep a recurrence, or remove it if its rule is empty. The reply: a word."""
    return Call("recur/keep", partition, keeping, by=by_hand())


def due(partition: str, limit: int, skip: int) -> Call[Words]:
    """The reply: now, when to look at the next one; then id, rule, standing, and whether its last occurrence
    is there, of each."""
    return Call("recur/due", partition, (limit, PAGE_BYTES, skip))


def get(partition: str, recurrence_ids: Sequence[str]) -> Call[Words]:
    """The reply: now; then of each as of `due`."""
    return Call("recur/get", partition, recurrence_ids)


def page(partition: str, limit: int, first: Argument, last: Argument) -> Call[Words]:
    """The reply: now, whether there is more; then of each as of `due`."""
    return Call("recur/list", partition, (limit, first, last, PAGE_BYTES))


def keep_calendar(name: str, dates: str, most: int) -> Call[bytes]:
    """Keep a calendar. The reply: a word."""
    return Call("recur/calendar", CALENDARS, (name, flag(True), dates, most))


def remove_calendar(name: str) -> Call[bytes]:
    """Remove a calendar. The reply: a word."""
    return Call("recur/calendar", CALENDARS, (name, flag(False), "", 0))


def calendars(known: str) -> Call[Words]:
    """The reply: the revision; then name and dates of each calendar, if that is not the `known` one."""
    return Call("recur/calendars", CALENDARS, (known,))
