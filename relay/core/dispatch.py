"""Where a topic's due timers go, and the results of moving them there. Times are in seconds, instants in
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
        """What to add if there is no such timer: that it may have been promoted. Empty with LEASE."""
        if self is Dispatch.LEASE:
            return ""
        there = f"due timers of this topic go to its {self.value} at once"
        return f"{there}, and one that has can't be cancelled any more"


class Reclaim(Enum):
    """What a relay does with entries that a dead consumer of its group has left. ALL: it takes them beside
    new ones. DEDICATED: it takes only these. OFF: it leaves them to other relays."""

    ALL = "all"
    DEDICATED = "dedicated"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The application's `group`, what it does for dead consumers, and the most entries that the stream keeps,
    even if a group has not had them (0: any number)."""

    group: str = ""
    reclaim: Reclaim = Reclaim.ALL
    max_length: int = 0


@dataclass(frozen=True, slots=True)
class ListPolicy:
    """The seconds after which an entry of the processing list is given to another worker; 0 means never."""

    processing_timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of one call: the number of timers that it moved. `next` is when the timeline's first timer
    is due. `lateness` has the seconds since they were due, for timers that nobody had before and that went to
    a list. The rest is as in a `Claim`."""

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
    """The counts of one round of tidying. `trimmed` are entries of a stream that every group had
    acknowledged, `dropped` are entries that some group had not, because the stream is full, and `consumers`
    are those that were gone. `returned` are entries of a processing list that went back to the ready list,
    `deaths` those that came back too often."""

    trimmed: int = 0
    dropped: int = 0
    consumers: int = 0
    returned: int = 0
    deaths: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One consumer group of a stream: the entries that it was given and has not acknowledged, the entries
    that it was not given yet (None if the server can't tell), the timers that wait for another attempt, the
    consumers, and the seconds for which the first of those timers has been due (0 if none is)."""

    group: str
    pending: int
    unread: int | None
    waiting: int
    consumers: int
    overdue: float = 0.0


@dataclass(frozen=True, slots=True)
class DispatchState:
    """The state of a topic's list or stream: the entries of the ready list and of the processing list, or the
    entries of the stream and its groups."""

    dispatch: Dispatch
    ready: int = 0
    processing: int = 0
    entries: int = 0
    groups: tuple[GroupStats, ...] = ()
