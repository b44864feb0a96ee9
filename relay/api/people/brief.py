"""How things stand, in a few words: for the action log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from relay.core.instants import LATEST
from relay.core.recurring.nominal import write_instant
from relay.core.recurring.recurrence import StoredRecurrence
from relay.core.recurring.rule import Rule
from relay.core.timers import StoredTimer, TopicStats

NONE = "none"
UNKNOWN = "not known"
SEALED = "sealed with a key that this relay lacks"
MOST_NAMED = 10
"""The most things that are named one by one."""
MOST_NAMED_CHARACTERS = 64
"""The most characters of each."""
MOST_CHARACTERS = 200
"""The most characters of a rule."""


def pause(stats: TopicStats) -> str:
    """Whether a topic is paused, and until when."""
    if stats.paused_until is None:
        return "not paused"
    return "paused" if stats.paused_until >= LATEST else f"paused until {write_instant(stats.paused_until)}"


def partitions(stats: TopicStats) -> str:
    """How many a topic has, and is to have."""
    return f"{stats.partitions}, moving to {stats.moving_to}" if stats.moving_to else str(stats.partitions)


def dead(stats: TopicStats) -> str:
    """How many letters there are."""
    return counted(stats.dead, "dead letter")


def held(stats: TopicStats) -> str:
    """How many timers and letters there are."""
    return f"{counted(stats.timers, 'timer')} and {dead(stats)} in the topic"


def timer(stored: StoredTimer | None) -> str:
    """When a timer is due."""
    return NONE if stored is None else f"due {write_instant(stored.due)}"


def recurrence(kept: StoredRecurrence | None) -> str:
    """A recurrence's version, its rule, and whether it is paused."""
    if kept is None:
        return NONE
    paused = ", paused" if kept.standing.paused is not None else ""
    return f"version {kept.standing.version}, {rule(kept.recurrence.rule)}{paused}"


def rule(said: Rule) -> str:
    """When a recurrence fires."""
    every = "" if said.every is None else f"every {timedelta(microseconds=said.every)}"
    text = " ".join((said.cron or said.rrule or every).split())
    return f"{text[:MOST_CHARACTERS]}{said.zone and f' {said.zone}'}"


def calendar(dates: Collection[str] | None) -> str:
    """How many dates a calendar has."""
    return NONE if dates is None else counted(len(dates), "date")


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def names(things: Sequence[str]) -> str:
    """Some things, and how many more."""
    more = len(things) - MOST_NAMED
    named = ", ".join(each[:MOST_NAMED_CHARACTERS] for each in things[:MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named
