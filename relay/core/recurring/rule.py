"""The rule of a recurrence, and the names of its occurrences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC without saying so: isoformat then ends without an offset


class Gap(Enum):
    """What becomes of a local time that its zone leaves out."""

    SHIFT = "shift"
    """It fires later by the length of the gap: 02:30 becomes 03:30."""
    SKIP = "skip"
    """It does not fire, and is counted."""


class Fold(Enum):
    """What becomes of a local time that comes twice."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a recurrence fires. Exactly one of `cron`, `rrule` and `every` says it.

    `relay.rules.compile_rule` checks a rule, and computes its nominal instants. Instants and lengths are in
    microseconds.
    """

    cron: str = ""
    """Five fields, or six with seconds first, or `@daily` and its like, or `@every 90s`."""
    rrule: str = ""
    """A recurrence rule of RFC 5545; lines with DTSTART and EXDATE may stand beside it."""
    every: int | None = None
    anchor: int | None = None
    """An instant from which `every` is counted in both directions, and the DTSTART of an `rrule` that has
    none. None is 1970-01-01T00:00:00 in the rule's zone."""
    zone: str = ""
    """An IANA name such as `Europe/Berlin`; empty is UTC."""
    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.FIRST
    starts: int | None = None
    """The first instant at which the rule may fire."""
    ends: int | None = None
    """The instant from which on it does not fire any more."""
    leave_out: tuple[str, ...] = ()
    """Dates in the rule's zone on which it does not fire, such as `2026-12-24`."""
    calendars: tuple[str, ...] = ()
    """The names of calendars on whose dates it does not fire either; see `relay.core.recurring.calendars`."""


def occurrence_name(recurrence_id: str, nominal: int, run: int = 1) -> str:
    """The timer_id of an occurrence: `id@2026-11-24T08:00:00Z`. The nominal instant is in microseconds since
    1970, and `.ffffff` shows those that are not whole seconds. From the second `run` of one instant on the
    name ends in its number: `~2`.

    `relay.core.partitions` reads these names: an occurrence is in the partition of its recurrence.
    """
    further = f"~{run}" if run > 1 else ""
    return f"{recurrence_id}@{(EPOCH + timedelta(microseconds=nominal)).isoformat()}Z{further}"
