"""Recurrences as values: what one is to do, where it stands, and what a tick makes of it.

All instants are microseconds since 1970 by the clock of Redis, all lengths of time are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from relay.core.recurring.rule import Rule


class Overlap(Enum):
    """What happens where an occurrence is to come while the one before it has not ended: nothing comes; one
    is kept until then; it comes all the same; the one before is cancelled."""

    SKIP = "skip"
    BUFFER = "buffer"
    ALLOW = "allow"
    CANCEL = "cancel"


class CatchUp(Enum):
    """Which of several instants that have passed without a tick still have an occurrence: the latest; all
    that are not older than a window; none that is older than a window."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class LeftOut(Enum):
    """Why a nominal instant has no occurrence.

    GAP and CALENDAR are the rule's own reasons: the zone has no such local time, or a calendar leaves the day
    out. PAUSED: the recurrence was. OVERLAP: the occurrence before had not ended. CATCH_UP: it had passed,
    and a later one stands for it, or it was too old. FORGOTTEN: nobody can read any more what the occurrence
    would have held.
    """

    GAP = "gap"
    CALENDAR = "calendar"
    PAUSED = "paused"
    OVERLAP = "overlap"
    CATCH_UP = "catch_up"
    FORGOTTEN = "forgotten"


class Put(Enum):
    """What has become of a recurrence, or of a calendar, that was put."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


WINDOWS: Mapping[CatchUp, int] = {CatchUp.LATEST: 0, CatchUp.ALL: 86_400_000_000, CatchUp.NONE: 60_000_000}
"""How late an instant may still have an occurrence, unless a recurrence says otherwise: a day, or a
minute."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What is to recur.

    Each occurrence has the payload and the headers. It is due at its nominal instant, or up to `jitter`
    later, and is not delivered any more `expires_after` its due time. `window` is that of `catch_up`; None
    means that of `WINDOWS`. After `max_runs` occurrences the recurrence has ended; 0 means no limit. The
    content is sealed with the key of the subject `seal_with`, if that is not empty.
    """

    recurrence_id: str
    rule: Rule
    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LATEST
    window: int | None = None
    jitter: int = 0
    expires_after: int | None = None
    max_runs: int = 0
    seal_with: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Past:
    """A nominal instant that has passed: the timer_id of its occurrence, or why it has none. `lateness` is
    how long after it its tick came."""

    nominal: int
    timer_id: str = ""
    left_out: LeftOut | None = None
    lateness: int = 0


@dataclass(frozen=True, slots=True)
class Filling:
    """A backfill whose occurrences come one after another: the nominal instants that still have none, and the
    number of their run. The next one comes at `due` at the earliest, the one behind it `apart` later."""

    nominals: Sequence[int]
    run: int
    due: int
    apart: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a recurrence stands.

    `version` grows with each change that somebody asks for. `next` is the next nominal instant; None at the
    end. All instants up to `settled` have an occurrence or a reason, or are buffered or held. `last` is the
    timer_id of the last occurrence, and `last_nominal` its nominal instant. `runs` counts occurrences,
    `left_out` the nominal instants without one. `buffered` is a nominal instant whose occurrence comes once
    the last one has ended. `held` is the latest nominal instant so far, while a catch-up goes on: it has its
    occurrence if no later one is found. `filling` are backfills that are under way, the first one first.
    `paused` is since when it is paused. `further` counts the runs that somebody has asked for. `tzdata` is
    the version of the time zones that `next` was computed with. `recent` are the latest nominal instants,
    the last one at the end.
    """

    version: int
    next: int | None
    settled: int = 0
    last: str = ""
    last_nominal: int | None = None
    runs: int = 0
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    buffered: int | None = None
    held: int | None = None
    filling: Sequence[Filling] = ()
    paused: int | None = None
    note: str = ""
    further: int = 0
    tzdata: str = ""
    recent: Sequence[Past] = ()

    @property
    def to_fill(self) -> int:
        """How many nominal instants of backfills still have no occurrence."""
        return sum(len(each.nominals) for each in self.filling)


@dataclass(frozen=True, slots=True)
class StoredRecurrence:
    """A recurrence as the store keeps it.

    `stands`: its last occurrence has not ended. `stamp` is the standing as it is stored: a change is made
    only if that is still there. `forgotten`: its subject was, so that its content is unreadable for good, and
    empty here, and so is the subject's name.
    """

    recurrence: Recurrence
    standing: Standing
    stands: bool
    stamp: bytes
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A timer that a recurrence makes."""

    timer_id: str
    due: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of a recurrence: where it stands then, the occurrences that come, and the one that is
    cancelled, empty for none. It is true only if `kept` is still how things are."""

    kept: StoredRecurrence
    standing: Standing
    occurrences: Sequence[Occurrence] = ()
    cancel: str = ""

    @property
    def left_out(self) -> Mapping[LeftOut, int]:
        """How many instants this turn has left without an occurrence, by reason."""
        before = self.kept.standing.left_out
        counts = {reason: count - before.get(reason, 0) for reason, count in self.standing.left_out.items()}
        return {reason: count for reason, count in counts.items() if count}


class Turned(Enum):
    """What has become of a turn.

    OTHER: the recurrence, or its last occurrence, is not as it was any more, and nothing was changed. FULL:
    the topic holds as many timers as it may, and nothing was changed.
    """

    DONE = "OK"
    OTHER = "OTHER"
    FULL = "FULL"


@dataclass(frozen=True, slots=True)
class Due:
    """The recurrences of a partition to look at `now`, the first ones first, and when to look at the next one
    behind them; None if at none. `unread` are the ids of those among them that this version can't read."""

    now: int
    next: int | None
    kept: Sequence[StoredRecurrence]
    unread: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RecurrencePage:
    """Some recurrences of a topic, in the order of when they are looked at next; `cursor` for the next page,
    empty at the end."""

    kept: Sequence[StoredRecurrence]
    cursor: str
