"""Timers as values: new ones, stored ones, claimed ones.

All instants are microseconds since 1970 by the clock of Redis (`relay.core.instants`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, Self

from relay.core.batch import Batch, columns_of
from relay.core.dispatch import DispatchState
from relay.core.trust.sealing import Unopened

NO_HEADERS: Mapping[str, str] = {}


class Content(NamedTuple):
    """What a timer carries to its handler."""

    payload: bytes = b""
    headers: Mapping[str, str] = NO_HEADERS
    content_type: str = ""

    @classmethod
    def of(cls, holder: object) -> Self:
        """Return the content of what has these fields among others."""
        return cls(*_CONTENT(holder))

    def fields(self) -> dict[str, Any]:
        """Return the content by names, for what has these fields among others."""
        return self._asdict()


NO_CONTENT = Content()
_CONTENT: Callable[[object], tuple[Any, ...]] = attrgetter(*Content._fields)


class TimerState(Enum):
    """Where a timer is in its life."""

    PENDING = "pending"
    LEASED = "leased"


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a timer to be changed: that nobody delivers it, that its due time is `due`, that
    somebody delivers it, that its content is the one of which a store has told this digest."""

    only_pending: bool = False
    due: int | None = None
    only_leased: bool = False
    content: str = ""


NO_CONDITION = Condition()


class OnConflict(Enum):
    """Which timer stands where one of the id lives: the new one; the one that is due earlier, or later, the
    old one if neither is; the old one."""

    __hash__ = object.__hash__  # as that of `Change`

    REPLACE = "replace"
    KEEP_EARLIEST = "keep_earliest"
    KEEP_LATEST = "keep_latest"
    KEEP_EXISTING = "keep_existing"


class Debounce(NamedTuple):
    """The new timer takes the place of the old one, and is due no later than the limit of their run.

    The first of a run of such timers that names `at_most` sets the limit: that many microseconds from then.
    The run ends when the timer is claimed, run or gone, or something else is scheduled under the id.
    """

    at_most: int | None = None


Intent = OnConflict | Debounce
"""How a new timer meets the one that has its id."""

REPLACE, KEEP_EXISTING = OnConflict.REPLACE, OnConflict.KEEP_EXISTING


class NewTimer(NamedTuple):
    """A timer to be stored. Either `due` (an instant) or `delay` (microseconds, 0 or more) is set.

    It is never delivered at or after `expires` (an instant), or `expires_after` its due time
    (microseconds). `intent` says what becomes of a timer that has its id; with `Debounce` there is a `delay`
    and no expiry. With `condition` it is stored only if a timer has its id and meets the condition. Its
    content is sealed with the key of the subject `seal_with`, if that is not empty. `occurrence` is the
    caller's name for this life of the timer, of 16 bytes, empty for none: a living timer that has it stays as
    it is.
    """

    timer_id: str
    payload: bytes
    due: int | None = None
    delay: int | None = None
    headers: Mapping[str, str] = NO_HEADERS
    content_type: str = ""
    expires: int | None = None
    expires_after: int | None = None
    intent: Intent = REPLACE
    condition: Condition = NO_CONDITION
    seal_with: str = ""
    occurrence: bytes = b""


@columns_of(NewTimer)
@dataclass(slots=True, eq=False, repr=False)
class NewTimers(Batch[NewTimer]):
    """Timers to be stored, all of one topic."""

    timer_ids: list[str]
    payloads: list[bytes]
    dues: list[int | None]
    delays: list[int | None]
    headers: list[Mapping[str, str]]
    content_types: list[str]
    expires: list[int | None]
    expires_after: list[int | None]
    intents: list[Intent]
    conditions: list[Condition]
    seal_with: list[str]
    occurrences: list[bytes]


class Change(Enum):
    """The result of a change.

    UNCHANGED: there is a timer although there must be none, or its due time is another. IN_FLIGHT: it is
    being delivered. GONE: there is none. FULL: the topic holds `max_waiting` timers. GIVEN_UP: the caller's
    time was over, and nothing was changed.
    """

    __hash__ = object.__hash__  # each is one object; Enum's own is not in C, and is called for each timer

    CREATED = "CREATED"
    REPLACED = "REPLACED"
    CANCELLED = "CANCELLED"
    RUN = "OK"
    UNCHANGED = "UNCHANGED"
    IN_FLIGHT = "IN_FLIGHT"
    GONE = "GONE"
    FULL = "FULL"
    GIVEN_UP = "GIVENUP"


STORED = (Change.CREATED, Change.REPLACED)


class Changed(NamedTuple):
    """The result for a timer that was to be cancelled or run.

    `delivery_under_way`: a relay held a lease on the timer at that moment, so its handler may be at work, and
    may stay so although the lease is void now. A lease that had run out counts, as long as nobody had taken
    the timer over.
    """

    change: Change
    delivery_under_way: bool = False


@dataclass(slots=True)
class Scheduled:
    """The result of a `NewTimer`, and the due time of the timer that is there now (None if no timer is).

    `delivery_under_way` is about the timer that was there before; see `Changed`.
    """

    due: int | None
    change: Change
    delivery_under_way: bool = False

    @property
    def stored(self) -> bool:
        """Whether the timer was stored."""
        return self.change in STORED


@dataclass(frozen=True, slots=True)
class StoredTimer:
    """A timer as it stands.

    `next_claim` is the instant from which it can be claimed: its due time, the end of its lease
    or of a back-off. In a listing payload, headers and content type are left empty. `digest` tells its
    content from any other, for `Condition`; it is empty where the content was not read.
    """

    timer_id: str
    state: TimerState
    due: int
    next_claim: int
    attempts: int
    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `cursor` is empty at the end. The contents of `closed`
    timers were asked for, and do not open here."""

    timers: list[StoredTimer]
    cursor: str
    closed: int = 0


class ClaimedTimer(NamedTuple):
    """A timer under a lease.

    `attempt` counts from 1 and is the number of this delivery if it counts. `suspect` marks
    a timer that was lost again, or has one attempt left after a loss: it is delivered alone, since
    its payload may be what kills its application. `approximate` says that `due` is
    a guess, since a foreign worker held the timer before. `readable` is false if the id is
    not UTF-8: no application can be given such a name. `claims` counts this claim and those before
    it whose deliveries were sent. `proof` proves the lease if the claim's nonce does not. `unopened` says why
    the content is empty, if it is sealed and does not open here: then no application is given the timer.
    `sealed_with` is the id of the subject's key that the content is sealed with, empty for none: another
    content of the timer is sealed with it, too.
    """

    timer_id: str
    payload: bytes
    headers: Mapping[str, str]
    content_type: str
    due: int
    attempt: int
    occurrence_id: str
    approximate: bool = False
    suspect: bool = False
    readable: bool = True
    claims: int = 1
    proof: bytes = b""
    unopened: Unopened | None = None
    sealed_with: str = ""


@columns_of(ClaimedTimer)
@dataclass(slots=True, eq=False, repr=False)
class ClaimedTimers(Batch[ClaimedTimer]):
    """The timers of a claim."""

    timer_ids: list[str]
    payloads: list[bytes]
    headers: list[Mapping[str, str]]
    content_types: list[str]
    dues: list[int]
    attempts: list[int]
    occurrence_ids: list[str]
    approximate: list[bool]
    suspect: list[bool]
    readable: list[bool]
    claims: list[int]
    proofs: list[bytes]
    unopened: list[Unopened | None]
    sealed_with: list[str]


def content_size(payload: bytes, headers: Mapping[str, str]) -> int:
    """Return about how many bytes it takes on its way to Redis or to an application; ids and times are
    small."""
    if not headers:
        return len(payload)
    return len(payload) + sum(map(len, headers)) + sum(map(len, headers.values()))


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to one claim call.

    `now` is the server's time, `next` the instant at which the topic's first remaining timer can be claimed
    (None: there is none). `deadline` ends the leases of all `timers`. `parked` counts timers put aside
    because their payload is missing, `orphans` names those removed because it was still missing after the
    grace period. `deaths` names the timers that were due and are not delivered any more. `paused_until` says
    that due timers were left because the topic is paused. `look_at` is an instant at which to look again,
    though no timer is known for it. `promoted` timers left the timeline for a stream; `missing` ones had been
    given to somebody, and are not in the stream any more. `stranded` says that timers which a move has taken
    out of the partition are on their way for a second or more.
    """

    timers: ClaimedTimers
    now: int
    next: int | None
    deadline: int
    parked: int = 0
    orphans: tuple[str, ...] = ()
    deaths: tuple[tuple[str, str], ...] = ()
    paused_until: int | None = None
    look_at: int | None = None
    promoted: int = 0
    missing: int = 0
    stranded: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:  # see 0027
    """A dead timer. `dead_id` distinguishes this death from others of the timer, and orders by `died`.

    `group` is the one of a stream's in which it died, if any. `claims` counts its deliveries that were sent,
    whether or not they were attempts. `reason` is the
    value of a `Reason`, `error` what went wrong last. In a listing payload, headers and content type are
    left empty.
    """

    dead_id: str
    timer_id: str
    reason: str
    attempts: int
    due: int
    died: int
    error: str
    occurrence_id: str
    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    claims: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class DeadPage:
    """One page of dead letters, the oldest death first; `cursor` is empty at the end."""

    letters: list[DeadLetter]
    cursor: str


@dataclass(frozen=True, slots=True)
class TopicStats:
    """The state of a topic: all `timers`, those that are `due`, `first`, which is the next instant of a
    claim, the `dead` letters and the instant of the oldest, and `paused_until`. `dispatched` is the state of
    its list or stream, if the relay knows that it has one. `journal_keeps` is the number of records that its
    journal keeps, if the relay knows of one; `partitions` is the number of the topic's partitions, and
    `moving_to` the number of those into which its timers move, while they do. `coming` are the timers that
    can be claimed within the next minute, hour and day, and not now, those under a lease among them. `cold`
    are the timers that rest in cold stores and are due within the same, or were before, as sweeps have
    counted them; None where none has."""

    topic: str
    now: int
    timers: int
    due: int
    first: int | None
    dead: int
    oldest_death: int | None
    paused_until: int | None
    dispatched: DispatchState | None = None
    journal_keeps: int = 0
    partitions: int = 1
    moving_to: int = 0
    coming: tuple[int, ...] = (0, 0, 0)
    cold: tuple[int, ...] | None = None
