"""Where a topic's due timers go, and what comes of moving them there. Times in seconds, instants in
microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Dispatch(Enum):
    """LEASE: relays deliver them from the timeline. LIST: they are moved to a ready list, from which workers
    take them. STREAM: they are moved to a stream, of which every group of consumers gets each."""

    LEASE = "lease"
    LIST = "list"
    STREAM = "stream"

    @property
    def told(self) -> str:
        """What to say where there is no such timer: that it may have been promoted. Empty with LEASE."""
        if self is Dispatch.LEASE:
            return ""
        there = f"due timers of this topic go to its {self.value} at once"
        return f"{there}, and one that has can't be cancelled any more"


class Reclaim(Enum):
    """What a relay does with entries that a dead consumer of its group has left. ALL: it takes them, as all
    relays do. DEDICATED: it takes these, and nothing new. OFF: it leaves them to others."""

    ALL = "all"
    DEDICATED = "dedicated"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The application's `group`, what it does for the dead, and the most entries that the stream keeps,
    whoever has not had them (0: any number)."""

    group: str = ""
    reclaim: Reclaim = Reclaim.ALL
    max_length: int = 0


@dataclass(frozen=True, slots=True)
class ListPolicy:
    """After how many seconds an entry of the processing list is given to another worker; 0: never."""

    processing_timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Promotion:
    """What one call has moved: how many timers. `next` is when the timeline's first one is due. `lateness`:
    seconds since they were due, of those that nobody had before and that went to a list. The rest is as of a
    `Claim`."""

    promoted: int
    now: int
    next: int | None
    parked: int = 0
    orphans: tuple[str, ...] = ()
    deaths: tuple[tuple[str, str], ...] = ()
    paused_until: int | None = None
    lateness: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Tidied:
    """What one round of tidying came to. `trimmed` entries of a stream that every group had acknowledged, and
    `dropped` ones that some had not, since it keeps only so many; `consumers` that were gone. `returned`
    entries of a processing list to the ready list, and `deaths` of those that came back too often."""

    trimmed: int = 0
    dropped: int = 0
    consumers: int = 0
    returned: int = 0
    deaths: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group of a stream's consumers: entries that it was given and has not acknowledged, entries that it
    was not given yet (None where the server can't tell), timers that wait for another try, consumers; and for
    how many seconds the first of those timers has been due: 0 if none is."""

    group: str
    pending: int
    unread: int | None
    waiting: int
    consumers: int
    overdue: float = 0.0


@dataclass(frozen=True, slots=True)
class DispatchState:
    """How a topic stands behind its timeline: entries of the ready list and of the processing list; entries
    of the stream, and its groups."""

    dispatch: Dispatch
    ready: int = 0
    processing: int = 0
    entries: int = 0
    groups: tuple[GroupStats, ...] = ()
