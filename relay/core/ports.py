"""The contract between the engine and what keeps timers.

`relay.store` has two implementations, Redis and memory; `tests/contract` holds both to this page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relay.core.dispatch import Dispatch, DispatchState, Promotion, Tidied
from relay.core.history.events import HistoryPage
from relay.core.outcomes import (
    NO_LIMITS,
    ClaimRequest,
    Extension,
    Limits,
    Settled,
    Settlement,
    Verdict,
)
from relay.core.partitions import Layout, topic_of
from relay.core.policy import TopicPolicy
from relay.core.recurring.calendars import KnownCalendars
from relay.core.recurring.ends import Became
from relay.core.recurring.forecast import Forecast, Window
from relay.core.recurring.recurrence import (
    Due,
    Put,
    Recurrence,
    RecurrencePage,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.timers import (
    NO_CONDITION,
    Change,
    Changed,
    Claim,
    Condition,
    DeadLetter,
    DeadPage,
    NewTimer,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
    TopicStats,
)

MAX_PER_CALL = 500
"""The most timers of one store call."""


class LeaseSource(Protocol):  # see 0042
    """Where deliveries come from, and where their ends are written: timelines, or groups of streams.

    Every call is atomic, is about one topic, and takes at most `MAX_PER_CALL` timers. "Now" is
    by the store's own clock, never by the caller's.

    A **token** is (timer_id, nonce), or the claimed timer's `proof` in the nonce's place if it has one. It is
    valid while the timer's lease is the one that was taken under it and nobody has given the timer a new due
    time since. Calls with tokens answer for each timer: OK, STALE (the token is not valid; nothing changed)
    or GONE (there is no such timer). One timer_id comes at most once in a call.

    `StoreUnavailable` says that nothing is known about the call. As `OpenOutcome` it says that the call may
    have had its effect, and can't have it from now on; as `GivenUp`, that it had none. `StoreFull`,
    `WrongKeyType` and `StoreRefused` say that it had none, too.
    """

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        """Lease timers that can be claimed now, the earliest first.

        A timer whose score is not after now can be claimed: a pending one that is due, and one whose lease
        has run out. Timers that have expired die instead. Nothing is taken from a paused topic.
        """
        ...

    async def claimed(self, topic: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        """Find what a claim has leased whose reply was lost; this changes nothing.

        `request` is that of the claim, which ran between `since` and `until` (microseconds, by the store's
        clock), if it did. The answer has those of its timers on which its lease still holds, and the end of
        that. It does not say what comes next, and a claim under way is not found in it. A group has a word of
        each relay's latest claim only.
        """
        ...

    async def settle(
        self, topic: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        """End leases; return the result of each timer, in the order of the settlements and of the timers in
        each. The timer is removed (ACK), dies (REJECT), starts over with another due time (RESCHEDULE), is
        due again `retry_after` from now or when its lease would have ended (NACK), or is due now (RELEASE),
        but never before its due time. NACK counts an attempt, and RELEASE does if a receipt came; a timer
        that is then beyond the `limits` dies."""
        ...

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """Let leases end `lease` microseconds from now, and not before their timers' due times."""
        ...


class TimerStore(LeaseSource, Protocol):
    """Keeps the timers of all topics."""

    async def schedule(
        self,
        topic: str,
        timers: Sequence[NewTimer],
        *,
        max_waiting: int = 0,
        deadlines: Sequence[float] = (),
    ) -> list[Scheduled]:
        """Store timers in the place of existing ones with the same id, whatever their state.

        Raises `PartlyDone` if that fails for some of them only, as it may while they move.

        A replaced timer starts over: its attempts are 0, and a lease on it is void. If an id comes
        twice, the later timer counts. A timer with `create` or a `condition` that does not hold is not
        stored, and neither is a new one in a topic that holds `max_waiting` (0 means no limit). Raises
        `InvalidField` if a delay ends after 9999.

        A delivery counts as under way by the state in which the call found the timer; of an id that comes
        twice, the later entry finds what the earlier one has stored.

        `deadlines`: until when the caller of each timer waits (seconds by `time.monotonic`), if not all wait
        for as long as this call does. A timer whose caller has given it up when the store comes to it is
        answered GIVEN_UP, and the others are stored. Raises `GivenUp` if that is so of all.
        """
        ...

    async def cancel(
        self,
        topic: str,
        timer_ids: Sequence[str],
        condition: Condition = NO_CONDITION,
        *,
        deadlines: Sequence[float] = (),
    ) -> list[Changed]:
        """Remove timers for which the condition holds: CANCELLED, GONE, IN_FLIGHT or UNCHANGED. `deadlines`
        are as those of `schedule`."""
        ...

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Changed]:
        """Make timers due now, with the attempts that they had: RUN, GONE or IN_FLIGHT."""
        ...

    async def get(self, topic: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        """Return one timer with its payload; without it, also one whose content does not open here."""
        ...

    def cursor_at(self, instant: int) -> str:
        """Return the cursor of the page that begins with the first timer whose `next_claim` is not before an
        instant (microseconds)."""
        ...

    async def list(
        self,
        layout: Layout,
        *,
        state: TimerState | None,
        limit: int,
        cursor: str,
        max_bytes: int | None = None,
    ) -> Page:
        """Return a page of a topic's timers in the order of `next_claim`; `cursor` is that of the previous
        page, or empty. With `max_bytes` the timers have their contents. A page ends where those of a
        partition have more than `max_bytes` bytes as they are stored, and has one timer at least. Contents
        that do not open here are empty, and `closed` counts them.

        Raises `InvalidField("page_token", …)` for a cursor that no page gave.
        """
        ...


class RecurrenceStore(Protocol):
    """Keeps the recurrences of all topics. "Now" is by the store's clock. Errors are those of `LeaseSource`;
    each call is about one partition, but for `page` and `occurrences`.
    """

    async def get(self, topic: str, recurrence_id: str) -> tuple[int, StoredRecurrence | None]:
        """Return now, and a recurrence."""
        ...

    async def due(self, topic: str, limit: int, *, skip: int = 0) -> Due:
        """Return up to `limit` recurrences that are to be looked at now, the first ones first, behind those
        that are to be passed over. Those that a move takes away from a partition are among them for as long
        as they are there."""
        ...

    async def turn(
        self, topic: str, turns: Sequence[Turn], now: int, *, max_waiting: int = 0
    ) -> list[Turned]:
        """Write what has become of recurrences, each in one step, if they and their last occurrences still
        are as they were read. An occurrence whose id lives already is left as it is."""
        ...

    async def keep(
        self,
        topic: str,
        before: StoredRecurrence | None,
        recurrence: Recurrence,
        standing: Standing,
        now: int,
        *,
        reason: str,
    ) -> bool:
        """Keep a recurrence that still stands as it was read before; None means that there was none. Return
        False if it stands elsewhere; then nothing has changed. `reason` is for the journal: what somebody
        does."""
        ...

    async def remove(self, topic: str, kept: StoredRecurrence) -> bool:
        """Remove a recurrence that stands as it was read; return False as `keep` does. Its occurrences
        stay."""
        ...

    async def occurrences(self, layout: Layout, recurrence_id: str) -> list[str]:
        """Return the timer_ids of all occurrences of a recurrence that have not ended, the earliest instants
        first; whether or not it is there still. Looks through the ids of all timers of its partition."""
        ...

    async def page(self, layout: Layout, *, prefix: str, limit: int, cursor: str) -> RecurrencePage:
        """Return a page of those whose ids begin with `prefix`, in the order of the ids' bytes. Raises
        `InvalidField("page_token", …)` for a cursor that no page gave."""
        ...

    async def ended(
        self, layout: Layout, recurrence_id: str, made: Mapping[str, int], *, journaled: bool
    ) -> Mapping[str, Became]:
        """Tell what became of occurrences that are not in the timeline any more, by their dead letters, and
        by the topic's journal if it has one. `made` says of each from when on it can be found. One that the
        journal has no end of, though it was read to its end, is WAITING. What is read is bounded: of each
        occurrence, and in time."""
        ...


class CalendarStore(Protocol):
    """Keeps the calendars, which belong to no topic. Errors are those of `LeaseSource`."""

    async def read(self, known: KnownCalendars) -> KnownCalendars:
        """Return all calendars as they are at one moment: `known` itself if none has changed since."""
        ...

    async def put(self, name: str, dates: Sequence[str]) -> Put:
        """Keep a calendar with these dates, which ascend, in the place of the one that has its name. Raises
        `InvalidField` if there are as many as may be."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove a calendar; return whether there was one."""
        ...


class Promotions(Protocol):
    """Moves due timers of topics with a list or a stream out of the timeline. Errors are those of
    `LeaseSource`."""

    async def promote(self, topic: str, *, limit: int, nonce: bytes) -> Promotion:
        """Move up to `limit` due timers, the earliest first, in one step: a timer is in the timeline or in
        the list or stream, never in both and never in neither. `nonce` is fresh, and names the occurrence of
        timers that have none. Nothing of a paused topic is moved. A timer that has expired, or is beyond the
        topic's limits, dies."""
        ...

    async def tidy(self, topic: str) -> Tidied:
        """Remove what nobody needs any more, and give back what dead workers have left in a processing
        list."""
        ...

    async def state(self, topic: str) -> DispatchState:
        """Return the state of the topic's list or stream."""
        ...


class TopicStore(Protocol):
    """What people do to topics: inspect, pause, redrive, repair. Errors are those of `TimerStore`."""

    async def register(self, topic: str) -> None:
        """Register a topic."""
        ...

    async def topics(self) -> list[str]:
        """Return all registered topics, in the order of their names."""
        ...

    async def stats(self, topic: str) -> TopicStats:
        """Return the state of the topic."""
        ...

    async def overview(self, topics: Sequence[str]) -> list[TopicStats]:
        """Return the state of many topics, in one pipelined read. A topic that the store refuses is left
        out."""
        ...

    async def parts(self, topic: str, *, first: int = 0, most: int = MAX_PER_CALL) -> list[TopicStats]:
        """Return the state of `most` partitions of the topic at most, in their order, from number `first`
        on."""
        ...

    async def pause(self, topic: str, *, until: int | None = None, duration: int | None = None) -> int | None:
        """Stop claims until an instant, or for a length of time in microseconds, or with neither until
        `resume`.

        Returns the end of the pause, or None if that is past, and then nothing has changed. Deliveries in
        flight go on.
        """
        ...

    async def resume(self, topic: str) -> None:
        """End a pause."""
        ...

    async def dead_page(self, topic: str, *, limit: int, cursor: str) -> DeadPage:
        """Return a page of dead letters, without their content. Raises `InvalidField("page_token", …)`."""
        ...

    async def dead_letter(self, topic: str, dead_id: str) -> DeadLetter | None:
        """Return one dead letter with its content."""
        ...

    async def redrive(self, topic: str, dead_ids: Sequence[str]) -> list[Change]:
        """Bring dead letters back to life, due now. Returns RUN, GONE, or UNCHANGED if a timer with the id
        exists.

        Each is one step, all together are not.
        """
        ...

    async def purge(self, topic: str, dead_ids: Sequence[str]) -> int:
        """Remove dead letters for good; return how many were there.

        Each is one step, all together are not.
        """
        ...

    async def forget_subject(self, topic: str, subject: str) -> int | None:
        """Remove the key of a subject for good, so that nothing that was sealed with it opens again; return
        since when the subject is forgotten (microseconds), or None if the topic knows of no such subject."""
        ...

    async def trim(self, topic: str, *, max_count: int, max_age: int) -> int:
        """Remove the oldest dead letters, so that at most `max_count` stay, none older than `max_age`
        (microseconds; 0 means no limit). Returns how many were removed."""
        ...

    async def orphans(self, topic: str, *, limit: int) -> tuple[list[str], bool]:
        """Find ids that have a payload or a lease record and no timer, in one part of the topic of about
        `limit` entries. The next call reads the next part; the second half of the answer says whether all
        have been read."""
        ...

    async def repair(self, topic: str, timer_ids: Sequence[str]) -> tuple[int, int]:
        """Remove the payloads and lease records of ids that still have no timer; return their numbers."""
        ...

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        """Take a lock for `ttl` microseconds; return whether nobody else has it. The lock of a topic has the
        topic's place."""
        ...


class Forecasts(Protocol):
    """Counts what falls due. Errors are those of `TimerStore`."""

    async def read(self, layout: Layout, window: Window, since: int | None = None) -> Forecast:
        """Count the timers of a topic from now on, or from an instant on, and return the recurrences that
        come within the window, whose `occurrences` are still to be computed. Each partition is counted in one
        step, all together are not. Timers that are on their way between partitions are not counted."""
        ...


class Histories(Protocol):
    """Tells the lives of timers by journals. Errors are those of `TimerStore`."""

    async def read(self, topic: str, timer_id: str, *, limit: int, cursor: str) -> HistoryPage:
        """Read what the topic's journals have of a timer, the newest first: about `limit` events, and behind
        the page that gave the `cursor`. What one call looks at is bounded, so a page may be empty and have a
        cursor. Raises `InvalidField("page_token", …)`."""
        ...


def ignore_call(rank: int) -> None:
    """Watch without hearing calls for help."""


class WakeHints(Protocol):
    """Reports that a topic's first timer has become an earlier one, even through another relay.

    Hints may get lost, so those who wait for one also poll now and then.
    """

    async def watch(
        self, topic: str, woken: Callable[[int], None], called: Callable[[int], None] = ignore_call
    ) -> None:
        """From now on call `woken(due)` for each hint (microseconds; 0: look now) and `called(rank)` for each
        call for help."""
        ...

    async def unwatch(self, topic: str) -> None:
        """Stop the calls."""
        ...

    async def call_for_help(self, topic: str, rank: int) -> None:
        """Tell every relay that watches the topic that the one of this rank is called (see `Pacing`), this
        one included. Like any hint, it may get lost."""
        ...


class Heartbeats(Protocol):
    """Which relays poll a topic, as each of them says again and again."""

    async def beat(self, topic: str, relay: str, *, lasts: int) -> Sequence[str]:
        """Say that a relay polls the topic, for `lasts` microseconds, which are as many for all; with 0, that
        it does no more. Returns the names of all that do. Raises `StoreError`."""
        ...


class ServerClocks(Protocol):
    """The clock of each place, and what it has given out when it steps back. Errors are those of
    `LeaseSource`."""

    async def time(self, place: str) -> int:
        """Return what the clock of a place shows, in microseconds. Raises `StoreError`."""
        ...

    def stepped(self, place: str) -> None:
        """Note that the clock of a place has stepped: what was heard of it before does not count."""
        ...

    async def leases_ahead(self, topic: str, *, lease: int) -> list[str]:
        """Return the ids of a partition's timers whose leases end later than one of `lease` microseconds that
        is given now. A call for each part of the lease records."""
        ...

    async def recall(
        self, topic: str, scores: Mapping[str, float | None], *, lease: int, back: int, limits: Limits
    ) -> tuple[int, dict[str, float]]:
        """Cut such leases of at most `MAX_PER_CALL` timers of a partition to `lease` microseconds from now,
        and to what is left of them by the clock of before, which was `back` microseconds ahead, 0 if that is
        not known.

        A lease whose due time lies behind that can't be cut. It ends if its score is the one given here; then
        the timer waits for its due time, and an attempt counts if it was received; `limits` are those of the
        topic's policy. Returns the time, and the scores of those that stand: a score that differs from the
        one before says that somebody renews.
        """
        ...

    async def begin_idle_times(self, topic: str, group: str) -> None:
        """Let the idle times of the entries that are pending in a stream's group begin now, where they have
        not begun by the server's clock."""
        ...


class Places(Protocol):
    """Where topics are: a place keeps some topics whole, and may be away while others answer.

    On one server there is one place, whose name is empty.
    """

    changed: list[Callable[[], None]]
    """Each is called when topics may have another place, or their place another server, than before."""

    def of(self, topic: str) -> str:
        """The place that has the topic; for an empty name the one of what belongs to no topic. It reads what
        is known already, and asks nobody."""
        ...

    def lane(self, topic: str) -> str:
        """What the topic's calls wait in line for: its place, or the part of that which is held up while the
        rest of the place answers."""
        ...

    async def ping(self, place: str) -> None:
        """Ask a place for a sign of life. Raises `StoreError`."""
        ...


class Layouts(Protocol):
    """Which partitions topics have. A partition's name stands wherever a call of the stores is about one part
    of a topic; see `relay.core.partitions`."""

    changed: list[Callable[[str], None]]
    """Each is called with a topic that has other partitions than were known."""

    def known(self, topic: str) -> Layout | None:
        """Return what is known already; None means that it has to be asked for."""
        ...

    async def ask(self, topic: str) -> Layout:
        """Ask the store, and give a new topic the partitions that it is to have. Raises `StoreError`."""
        ...


class Moves(Protocol):
    """Changes how many partitions topics have, while everything else goes on. Errors are those of
    `LeaseSource`.

    A move takes timers from some partitions to others, and ends when all are where they belong by the new
    number. It can't be broken off: it can be finished, and moved back.
    """

    async def begin(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        """Begin to move a topic's timers into twice or half as many partitions, whichever comes nearer to
        `partitions`, at `rate` timers a second at most (0 means no bound). Returns the layout that the topic
        has then: a move that is under way goes on as it is."""
        ...

    async def rate(self, layout: Layout) -> int:
        """Return how many timers a second a move may take at most; 0 means no bound."""
        ...

    async def last(self, layout: Layout) -> str:
        """Return a text that is another one once somebody has moved something."""
        ...

    async def run(self, layout: Layout, moved: Callable[[int], Awaitable[None]]) -> None:
        """Move all that is left to be moved, and end the move. Others may do the same at the same time.

        After each batch of up to `MAX_PER_CALL`, `moved` gets the number of its timers or dead letters.
        Raises `OtherLayout` if somebody else has ended the move.
        """
        ...


AGAIN = 2
"""How often a call is begun again whose topic turns out to have other partitions (`OtherLayout`)."""


def share(layouts: Layouts, partition: str, total: int) -> int:
    """The part of its topic's bound that a partition may hold; 0 means no bound."""
    layout = layouts.known(topic_of(partition)) if total else None
    return total if layout is None else layout.share(total)


class OnePartition:
    """The `Layouts` of stores whose topics have one partition each."""

    def __init__(self) -> None:
        self.changed: list[Callable[[str], None]] = []

    def known(self, topic: str) -> Layout | None:
        """See `Layouts.known`."""
        return Layout(topic)

    async def ask(self, topic: str) -> Layout:
        """See `Layouts.ask`."""
        return Layout(topic)


@dataclass(frozen=True, slots=True)
class Stores:
    """All by which an engine keeps timers.

    Without `groups` all deliveries come from the timelines; without `promotions` nothing is moved behind
    them; without `moves` topics keep the partitions that they have; without `heartbeats` no relay leaves a
    partition to others; without `recurrences` there are none, and
    without `calendars` no rule can name any. Without `clocks` nobody looks whether a clock steps;
    without `forecasts` nobody knows what falls due; without `histories` nobody reads journals.
    """

    timers: TimerStore
    topics: TopicStore
    hints: WakeHints
    places: Places
    layouts: Layouts = field(default_factory=OnePartition)
    moves: Moves | None = None
    promotions: Promotions | None = None
    groups: LeaseSource | None = None
    heartbeats: Heartbeats | None = None
    recurrences: RecurrenceStore | None = None
    calendars: CalendarStore | None = None
    clocks: ServerClocks | None = None
    forecasts: Forecasts | None = None
    histories: Histories | None = None

    def source(self, policy: TopicPolicy) -> LeaseSource:
        """Where the deliveries of a topic of this policy come from."""
        streams = policy.dispatch is Dispatch.STREAM
        return self.groups if streams and self.groups is not None else self.timers


SourceOf = Callable[[str], LeaseSource]
"""Where a topic's deliveries come from."""
