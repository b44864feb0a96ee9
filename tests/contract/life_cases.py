"""Every state of a timer, every event, and how `relay.core.life` says that Redis stands afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from relay.core.instants import SECOND, from_score
from relay.core.journal import JournalRecord
from relay.core.life import Effect, Given, LifeEvent, LifeState, TimerLife, rewritten, step
from relay.core.outcomes import Limits, Reason, Settlement, Verb, Verdict
from relay.core.timers import REPLACE, Change, Changed, Condition, Debounce, NewTimer, OnConflict
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, NO_NONCE, PARKED, PENDING, VERSION, LeaseRecord
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, N3, NOW
from tests.worlds.scripts.states import ENVELOPE, Letter, limited, own, score

HOUR = 3600 * SECOND
DUE = NOW - 10 * SECOND
EARLIER = NOW - 3 * SECOND
LATER = NOW + LEASE
CONTENT = envelope.encode(b"new", {"k": "v"}, "text/plain")
_NUMBERS = {LifeState.PENDING: PENDING, LifeState.LEASED: LEASED, LifeState.PARKED: PARKED}
_OFF_GRID = 0.715e-6  # seconds: near the next whole microsecond, and neither on it nor on the grid of our own


def _off_grid(instant: int) -> float:
    return instant / 1e6 - 1e-6 + _OFF_GRID


PUBLISHED = (DUE - SECOND, EARLIER, LATER + 1)
"""What a publisher may write meanwhile: EARLIER is the very microsecond of the score before."""
OFF_GRID = {instant: _off_grid(instant) for instant in (DUE - SECOND + 7, DUE + 7, EARLIER + 7, LATER + 7)}
"""The scores of foreign workers, by the microsecond that is not before them."""


def double(instant: int) -> float:
    """The due time as Redis holds it."""
    return OFF_GRID.get(instant, score(instant))


class Start(NamedTuple):
    """A timer before the event: its life by the model, and what Redis holds of it."""

    timer_id: str
    life: TimerLife | None
    score: float | None = None
    record: LeaseRecord | str | None = None


def record_of(life: TimerLife) -> LeaseRecord:
    """The record that goes with a life."""
    return LeaseRecord(
        version=VERSION,
        state=_NUMBERS[life.state],
        received=int(life.received),
        suspect=int(life.suspect),
        approximate=int(life.approximate),
        attempts=life.attempts,
        claims=life.claims,
        score=own(life.next_claim),
        due=double(life.due),
        expires=score(life.expires),
        nonce=life.nonce or NO_NONCE,
        occurrence=life.occurrence or NO_NONCE,
    )


def _starts() -> Iterator[Start]:
    yield Start("absent", None)
    for due in (DUE, NOW, NOW + 1, LATER):
        yield Start(f"new due {due - NOW}", TimerLife(due, due), score(due))
    for due, at in OFF_GRID.items():
        yield Start(f"foreign {due - NOW}", rewritten(None, due, whole=False), at)
    for due, limit in ((DUE, DUE), (DUE, NOW + 1), (NOW, LATER), (LATER, LATER), (LATER, NOW + HOUR)):
        life = TimerLife(due, due, limit=limit)
        name, text = f"debounced due {due - NOW} until {limit - NOW}", limited(score(due), score(limit))
        yield Start(name, life, score(due), text)
        for at in (*PUBLISHED, *OFF_GRID):
            foreign = rewritten(life, at, whole=at in PUBLISHED)
            yield Start(f"{name}, then {at - NOW}", foreign, double(at), text)
    for name, life in _recorded():
        record = record_of(life)
        yield Start(name, life, record.score, record)
        if life.next_claim == LATER or life.suspect != bool(life.attempts):
            continue  # nobody reads what the score was before; and half of them are enough
        for at in (*PUBLISHED, *OFF_GRID):
            foreign = rewritten(life, at, whole=at in PUBLISHED)
            yield Start(f"{name}, then {at - NOW}", foreign, double(at), record)


def _recorded() -> Iterator[tuple[str, TimerLife]]:
    states: list[tuple[LifeState, bool]] = [
        (LifeState.PENDING, False),
        (LifeState.LEASED, False),
        (LifeState.LEASED, True),
        (LifeState.PARKED, False),
    ]
    counts = [(0, 1), (2, 1), (1, 5)]  # attempts, claims; the limits of some events are 3 and 5
    for (state, received), (attempts, claims), suspect, expires, at in product(
        states, counts, (False, True), (0, NOW - SECOND, NOW + HOUR), (EARLIER, LATER)
    ):
        life = TimerLife(
            due=DUE,
            next_claim=at,
            state=state,
            attempts=attempts,
            claims=claims,
            received=received,
            suspect=suspect,
            approximate=suspect,
            expires=expires,
            nonce=N1 if state is LifeState.LEASED else b"",
            occurrence=N3 if attempts else N1,
            recorded=True,
        )
        words = [state.value, *["received"] * received, *["suspect"] * suspect]
        name = f"{' '.join(words)} {attempts}/{claims} expires {expires and expires - NOW}, {at - NOW}"
        yield name, life


STARTS = list(_starts())


@dataclass(frozen=True, slots=True)
class Happening:
    """One event as one call brings it to all timers; `renewed`: with a new payload."""

    event: LifeEvent
    given: Given
    renewed: bool = False

    def __str__(self) -> str:
        default = Given()
        names = [name for name in Given.__slots__ if getattr(self.given, name) != getattr(default, name)]
        told = ", ".join(f"{name}={getattr(self.given, name)!r}" for name in names)
        return f"{self.event.name}({told})"

    def settlement(self, timer_id: str, token: bytes, again: NewTimer) -> Settlement:
        """The outcome as a store takes it."""
        given = self.given
        return end_of(
            timer_id,
            token,
            Verb[self.event.name],
            given.retry_after,
            given.received,
            given.broken,
            given.suspect,
            given.unsent,
            given.reason,
            given.error,
            again,
            new_content=self.renewed,
        )


KEPT = Limits(keep=True, keep_expired=True)
LIMITS = [
    Limits(),
    KEPT,
    Limits(max_attempts=3, keep=True),
    Limits(max_attempts=2, keep=True),
    Limits(max_claims=5, keep=True),
    Limits(max_age=HOUR, keep=True),
    Limits(max_age=10 * SECOND - 1, max_attempts=3),
]
_ENDS = {LifeEvent[verb.name]: verb for verb in Verb}


def varied(event: LifeEvent, renewed: bool = False, **choices: Sequence[Any]) -> Iterator[Happening]:
    """The event with each choice of each of its facts."""
    for chosen in product(*choices.values()):
        given = Given(now=NOW, nonce=N1)
        yield Happening(event, replace(given, **dict(zip(choices, chosen, strict=True))), renewed)


def happenings() -> Iterator[Happening]:
    """Every event, with every choice of what comes with it that its rules look at."""
    conditions = [Condition(), Condition(True), Condition(due=DUE), Condition(True, DUE), Condition(due=1)]
    flags = (False, True)
    yield from varied(LifeEvent.SCHEDULE, True, due=[DUE, LATER], expires=[0, 1, NOW + HOUR])
    keeps = [REPLACE, OnConflict.KEEP_EXISTING]
    yield from varied(LifeEvent.SCHEDULE, True, due=[LATER], condition=conditions, intent=keeps)
    # KEEP_EARLIEST and KEEP_LATEST: before, at and behind the due times of the starts
    keeps = [OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST]
    dues = [DUE - HOUR, DUE, NOW, LATER, LATER + HOUR]
    yield from varied(LifeEvent.SCHEDULE, True, due=dues, intent=keeps)
    yield from varied(LifeEvent.SCHEDULE, True, due=[LATER], condition=conditions[1:3], intent=keeps)
    debounces = [Debounce(), Debounce(HOUR), Debounce(2 * HOUR)]
    yield from varied(LifeEvent.SCHEDULE, True, due=[NOW + 1, NOW + HOUR], intent=debounces)
    yield from varied(LifeEvent.SCHEDULE, True, due=[0], full=[True])
    # N1 and N3 are the occurrences of the starts
    yield from varied(
        LifeEvent.SCHEDULE,
        True,
        due=[LATER],
        occurrence=[N1, N2],
        expires=[0, NOW + HOUR],
        condition=conditions[:2],
    )
    yield from varied(
        LifeEvent.CLAIM, nonce=[N2], lease=[LEASE], limits=LIMITS, content=flags, grace=[60 * SECOND]
    )
    for event in (LifeEvent.RECEIPT, LifeEvent.EXTEND):
        yield from varied(event, nonce=[N1, N2], lease=[0, 2 * LEASE], now=[NOW, DUE - HOUR])
    yield from varied(LifeEvent.ACK, nonce=[N1, N2, b""])
    yield from varied(LifeEvent.NACK, nonce=[N2], limits=[KEPT])
    yield from varied(LifeEvent.NACK, retry_after=[None, 0, HOUR], limits=LIMITS, error=["no; no"])
    yield from varied(LifeEvent.NACK, retry_after=[None, 0], now=[DUE - HOUR])
    yield from varied(LifeEvent.RELEASE, nonce=[N2])
    told: dict[str, Any] = {"received": flags, "broken": flags, "suspect": flags, "unsent": flags}
    yield from varied(LifeEvent.RELEASE, **told, retry_after=[None, HOUR])
    yield from varied(LifeEvent.RELEASE, received=flags, broken=[True], limits=LIMITS[1:])
    yield from varied(LifeEvent.RELEASE, received=flags, limits=LIMITS[1:])
    yield from varied(LifeEvent.RELEASE, received=flags, now=[DUE - HOUR])
    reasons = [Reason.REJECTED, Reason.FAILED, Reason.UNREADABLE]
    yield from varied(LifeEvent.REJECT, nonce=[N1, N2], reason=reasons, limits=LIMITS[:2], error=["no"])
    for renewed in flags:
        yield from varied(LifeEvent.RESCHEDULE, renewed, nonce=[N1, N2], due=[DUE, LATER])
    yield from varied(LifeEvent.CANCEL, condition=conditions)
    yield from varied(LifeEvent.RUN, now=[NOW, DUE - HOUR])


class Stands(NamedTuple):
    """What Redis holds of one timer: score, envelope, record, and the letter of its death."""

    score: float | None = None
    envelope: bytes | None = None
    record: LeaseRecord | str | None = None
    letter: Letter | None = None


@dataclass(slots=True)
class Expected:
    """What an event comes to for one timer, by the model."""

    start: Start
    happening: Happening
    effect: Effect = field(init=False)

    def __post_init__(self) -> None:
        self.effect = step(self.start.life, self.happening.event, self.happening.given)

    @property
    def answer(self) -> Verdict | Reason | Changed | None:
        """What the caller is told."""
        answer = self.effect.answer
        return Changed(answer, self.effect.delivery_under_way) if isinstance(answer, Change) else answer

    @property
    def before(self) -> Stands:
        there = self.start.life is not None and self.happening.given.content
        return Stands(self.start.score, ENVELOPE if there else None, self.start.record)

    @property
    def after(self) -> Stands:
        """What Redis holds behind the event."""
        life = self.effect.after
        if life is self.start.life:
            return self.before
        if life is None or life.state is LifeState.DEAD:
            return Stands(letter=self._letter())
        stored = CONTENT if self.happening.renewed else self.before.envelope
        if not life.recorded:
            at = score(life.next_claim)
            return Stands(at, stored, limited(at, score(life.limit)) if life.limit else None)
        return Stands(own(life.next_claim), stored, record_of(life))

    def _letter(self) -> Letter | None:
        life, answer = self.effect.after, self.effect.answer
        if life is None or not isinstance(answer, Reason):
            return None
        return Letter(
            self.start.timer_id,
            answer.value,
            life.attempts,
            life.claims,
            double(life.due),
            self.happening.given.now,
            life.occurrence or NO_NONCE,
            self.effect.error.encode(),
            self.before.envelope or b"",
        )

    @property
    def named(self) -> JournalRecord | None:
        """What the journal has of it."""
        record = self.effect.record
        return None if record is None else record._replace(timer_id=self.start.timer_id)

    @property
    def record(self) -> JournalRecord | None:
        """The same as it is read from Redis, which holds a foreign writer's due times as they are."""
        record = self.named
        if record is None or not {record.due, record.previous_due} & OFF_GRID.keys():
            return record
        due, previous_due = (from_score(double(each)) for each in (record.due, record.previous_due))
        return record._replace(due=due, previous_due=previous_due)
