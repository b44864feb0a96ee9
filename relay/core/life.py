"""The life of a timer: what each event does to it in each state.

`step` is the only function that decides. It stores nothing and asks nobody: the instant, the limits of the
topic's policy and the nonce of a claim are given to it. The store in memory and the tables of
docs/explanation/failure.md follow from this page. `tests/contract/test_life.py` holds the scripts in `lua/`
to it.

All instants are microseconds since 1970 by the clock of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from relay.core.journal import Adoption, JournalRecord, RecordKind, in_short
from relay.core.outcomes import NO_LIMITS, NOT_GIVEN, Limits, Reason, Verdict
from relay.core.timers import NO_CONDITION, REPLACE, Change, Condition, Debounce, Intent, OnConflict


class LifeState(Enum):
    """PARKED: due, and without a payload. DEAD: kept as a dead letter. A timer that is gone has no state."""

    PENDING = "PENDING"
    LEASED = "LEASED"
    PARKED = "PARKED"
    DEAD = "DEAD"


class LifeEvent(Enum):
    """What can happen to a timer. A CLAIM also finds that a lease is over, or that a timer has expired."""

    SCHEDULE = "schedule"
    CLAIM = "claim"
    RECEIPT = "receipt"
    EXTEND = "extend"
    ACK = "ack"
    NACK = "nack"
    RELEASE = "release"
    REJECT = "reject"
    RESCHEDULE = "reschedule"
    CANCEL = "cancel"
    RUN = "run"
    REDRIVE = "redrive"


@dataclass(frozen=True, slots=True)
class TimerLife:
    """How a timer stands.

    `next_claim` is its score: the instant from which it can be claimed. `recorded` says that a record goes
    with it; without one the score alone says all, as a publisher writes it. `limit` is the instant beyond
    which no debounced timer moves it (0: none). `adopted` says that a foreign writer has set the score since.
    """

    due: int
    next_claim: int
    state: LifeState = LifeState.PENDING
    attempts: int = 0
    claims: int = 0
    received: bool = False
    suspect: bool = False
    approximate: bool = False
    expires: int = 0
    nonce: bytes = b""
    occurrence: bytes = b""
    recorded: bool = False
    limit: int = 0
    adopted: Adoption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What comes with an event; each event reads what it needs.

    `nonce` is that of the claim, or the one that a token names. `lease`, `grace` (of a timer without payload)
    and `retry_after` are lengths. `due` and `expires` (0: never) are those of a timer that is scheduled or
    rescheduled, `occurrence` the caller's name for the life that begins. `content` says whether the claim
    found a payload, `full` whether the topic has no room for one more timer, `other_content`
    that the timer's content is not the one that the condition names. The other fields are those of
    `Ending` and `NewTimer`.
    """

    now: int = 0
    nonce: bytes = b""
    lease: int = 0
    grace: int = 0
    limits: Limits = NO_LIMITS
    content: bool = True
    due: int = 0
    expires: int = 0
    intent: Intent = REPLACE
    condition: Condition = NO_CONDITION
    full: bool = False
    other_content: bool = False
    occurrence: bytes = b""
    retry_after: int | None = None
    received: bool = False
    broken: bool = False
    suspect: bool = False
    unsent: bool = False
    reason: Reason = Reason.REJECTED
    error: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What came of an event.

    `after` is how the timer stands (None: it is gone), `answer` what the caller gets (None: no answer).
    `record` goes to the journal, and lacks the timer_id. A death is answered by its `Reason`; `error` is what
    its letter says. `delivery_under_way` goes with a caller's change; see `Changed`.
    """

    after: TimerLife | None
    answer: Verdict | Reason | Change | None = None
    record: JournalRecord | None = None
    error: str = ""
    delivery_under_way: bool = False


def step(life: TimerLife | None, event: LifeEvent, given: Given) -> Effect:  # see 0075
    """What an event does to a timer; `life` is None if there is no timer."""
    living = None if life is None or life.state is LifeState.DEAD else life
    if event is LifeEvent.REDRIVE:
        return _redrive(life, given)
    rule, kind = _RULES[event]
    if kind is not None and not _holds(living, given.nonce):
        refusal = RecordKind.STALE if living else RecordKind.GONE
        adopted = living.adopted if living else None
        record = JournalRecord(refusal, nonce=given.nonce, refused=kind, adopted=adopted)
        return Effect(life, Verdict.STALE if living else Verdict.GONE, record)
    if living is None and event is not LifeEvent.SCHEDULE:
        return Effect(life, None if event is LifeEvent.CLAIM else Change.GONE)
    effect = rule(living, given)
    if event in _CHANGES and living is not None and living.state is LifeState.LEASED:
        return replace(effect, delivery_under_way=True)
    return effect


def rewritten(life: TimerLife | None, score: int, *, whole: bool) -> TimerLife:
    """How a timer stands after a foreign writer set its score; `whole`: to a whole microsecond.

    Publishers write whole microseconds, and give a new intent. Any other score is the lease of a foreign
    worker, which leaves due time and attempts as they were; but no lease ends before the due time.
    """  # see 0016
    if life is None or not life.recorded or whole or score < life.due:
        adopted = Adoption.INTENT if life and life.recorded else None
        return TimerLife(max(score, 0), score, approximate=not whole, adopted=adopted)
    attempts = life.attempts + life.received  # a lease of ours that was received is over
    return _back(life, attempts=attempts, approximate=True, next_claim=score, adopted=Adoption.LEASE)


def fate(life: TimerLife, instant: int, limits: Limits) -> Reason | None:
    """Why a timer is not to be delivered (again) at an instant; None if it is."""
    if life.attempts >= limits.max_attempts:
        return Reason.ATTEMPTS
    if life.claims >= limits.max_claims:
        return Reason.CLAIMS
    too_old = limits.max_age and life.attempts and instant - life.due > limits.max_age
    return Reason.AGE if too_old else None


def suspected(life: TimerLife, limits: Limits, *, counts: bool) -> bool:
    """Whether a timer goes alone from now on whose lease was lost: its relay died, or its stream broke.
    `counts`: that is an attempt.

    What is lost for the first time comes again with its neighbours, unless one attempt is left. Where no
    receipt came, no attempt tells of a loss before, but claims do.
    """  # see 0003
    before = life.attempts if counts else life.claims - 1
    return life.suspect or before > 0 or life.attempts + counts >= limits.max_attempts - 1


def stands(intent: Intent, there: int, due: int) -> bool:
    """Whether a timer that is due `there` stands, and not the new one, which is due at `due`."""
    if intent is OnConflict.KEEP_EARLIEST:
        return there <= due
    if intent is OnConflict.KEEP_LATEST:
        return there >= due
    return intent is OnConflict.KEEP_EXISTING


def refusal(life: TimerLife, condition: Condition, *, other_content: bool = False) -> Change | None:
    """Why a change that a caller asked for under a condition is not made; None if it is."""
    if other_content:
        return Change.UNCHANGED
    if condition.only_pending and life.state is LifeState.LEASED:
        return Change.IN_FLIGHT
    if condition.only_leased and life.state is not LifeState.LEASED:
        return Change.UNCHANGED
    return Change.UNCHANGED if condition.due not in (None, life.due) else None


def _back(life: TimerLife, **changes: Any) -> TimerLife:
    """Nobody's lease any more."""
    facts: dict[str, Any] = {"state": LifeState.PENDING, "received": False, "nonce": b"", "limit": 0}
    facts |= {"adopted": None, **changes}
    return replace(life, **facts)


def _holds(life: TimerLife | None, nonce: bytes) -> bool:
    return life is not None and life.state is LifeState.LEASED and life.nonce == nonce


def _schedule(life: TimerLife | None, given: Given) -> Effect:
    if life is not None:
        same = given.occurrence != b"" and life.occurrence == given.occurrence
        kept = same or stands(given.intent, life.due, given.due)
        refused = (
            Change.UNCHANGED if kept else refusal(life, given.condition, other_content=given.other_content)
        )
    elif given.condition != NO_CONDITION:
        refused = Change.GONE
    else:
        refused = Change.FULL if given.full else None
    if refused is not None:
        return Effect(life, refused)
    limit = _limit(life, given)
    score = min(given.due, limit or given.due)
    due = max(score, 0)
    name = given.occurrence
    recorded = given.expires > 0 or name != b""
    after = TimerLife(due, score, expires=given.expires, occurrence=name, recorded=recorded, limit=limit)
    record = JournalRecord(RecordKind.SCHEDULED, due=due, expires=given.expires, occurrence=name)
    if life is None:
        return Effect(after, Change.CREATED, record)
    voided: dict[str, Any] = {"nonce": life.nonce, "previous_due": life.due, "adopted": life.adopted}
    return Effect(after, Change.REPLACED, record._replace(kind=RecordKind.REPLACED, **voided))


def _limit(life: TimerLife | None, given: Given) -> int:
    """The instant beyond which no debounced timer of this run is due; 0: none."""
    if not isinstance(given.intent, Debounce):
        return 0
    if life is not None and life.limit:
        return life.limit
    at_most = given.intent.at_most
    return 0 if at_most is None else given.now + at_most


def _claim(life: TimerLife, given: Given) -> Effect:
    if given.now < life.next_claim:
        return Effect(life)
    if life.state is LifeState.PARKED and not given.content:  # see 0012
        return Effect(None, None, JournalRecord(RecordKind.ORPHANED, due=life.due))
    lapse: dict[str, Any] = {"received": life.received, "adopted": life.adopted}
    lapsed, life = life.nonce, _lapsed(life, given.limits)
    expired = 0 < life.expires <= given.now
    reason = Reason.EXPIRED if expired else fate(life, given.now, given.limits)
    if not given.content:
        score = max(given.now + given.grace, life.due)
        after = replace(life, state=LifeState.PARKED, next_claim=score, recorded=True)
        return Effect(after, None, _standing(after, RecordKind.PARKED, nonce=lapsed, **lapse))
    if reason is not None:
        return _dies(life, given, reason, nonce=lapsed, **lapse)
    after = replace(
        life,
        state=LifeState.LEASED,
        next_claim=given.now + given.lease,
        claims=life.claims + 1,
        nonce=given.nonce,
        occurrence=life.occurrence or given.nonce,  # see 0001
        recorded=True,
    )
    record = _standing(after, RecordKind.CLAIMED, nonce=given.nonce, occurrence=after.occurrence, **lapse)
    return Effect(after, Verdict.OK, record)


def _lapsed(life: TimerLife, limits: Limits) -> TimerLife:
    """The lease is over, and nobody has settled."""
    suspect = suspected(life, limits, counts=True) if life.received else life.suspect
    return _back(life, attempts=life.attempts + life.received, suspect=suspect)


def _renewed(life: TimerLife, given: Given) -> int:
    """When a renewed lease ends. A score that differs says that somebody renews; see `lua/lib/life.lua`."""
    until = given.now + given.lease
    return until if until >= life.due else max(life.next_claim + 1, life.due)


def _extend(life: TimerLife, given: Given) -> Effect:
    after = replace(life, next_claim=_renewed(life, given))
    record = JournalRecord(RecordKind.EXTENDED, nonce=given.nonce, score=after.next_claim)
    return Effect(after, Verdict.OK, record)


def _receipt(life: TimerLife, given: Given) -> Effect:  # a renewal, too: see 0002
    after = replace(life, received=True, next_claim=_renewed(life, given))
    record = JournalRecord(RecordKind.RECEIVED, nonce=given.nonce, score=after.next_claim)
    return Effect(after, Verdict.OK, record)


def _ack(_: TimerLife, given: Given) -> Effect:
    return Effect(None, Verdict.OK, JournalRecord(RecordKind.ACKED, nonce=given.nonce))


def _nack(life: TimerLife, given: Given) -> Effect:
    score = life.next_claim if given.retry_after is None else given.now + given.retry_after
    life = replace(life, suspect=False)
    return _due_again(life, given, RecordKind.NACKED, score, counts=True, error=given.error)


def _release(life: TimerLife, given: Given) -> Effect:
    counts = life.received or given.received
    life = replace(life, claims=max(life.claims - given.unsent, 0))  # see 0028
    if given.broken:
        life = replace(life, suspect=suspected(life, given.limits, counts=counts))
    elif not given.unsent:
        life = replace(life, suspect=given.suspect)
    score = given.now + (given.retry_after or 0 if counts or given.unsent else 0)
    error = "the delivery ended without an outcome"
    return _due_again(life, given, RecordKind.RELEASED, score, counts=counts, error=error)


def _due_again(
    life: TimerLife, given: Given, kind: RecordKind, score: int, *, counts: bool, error: str
) -> Effect:
    """Never before the due time, however the clock stands; dead if that was the last attempt."""
    score = max(score, life.due)
    attempts = life.attempts + counts
    after = _back(life, next_claim=score, attempts=attempts)
    reason = fate(after, score, given.limits) if counts else None
    if reason is not None:
        return _dies(after, given, reason, error, nonce=given.nonce, received=True)
    told = in_short(error) if kind is RecordKind.NACKED else ""
    return Effect(after, Verdict.OK, _standing(after, kind, nonce=given.nonce, received=counts, error=told))


def _reject(life: TimerLife, given: Given) -> Effect:
    life = replace(life, attempts=life.attempts + 1)
    received = given.reason not in NOT_GIVEN  # no application can be given it
    return _dies(life, given, given.reason, given.error, nonce=given.nonce, received=received)


def _reschedule(life: TimerLife, given: Given) -> Effect:
    """A new intent: nothing of the old life goes on, not even the expiry."""
    record = JournalRecord(RecordKind.RESCHEDULED, nonce=given.nonce, due=given.due, previous_due=life.due)
    return Effect(TimerLife(given.due, given.due), Verdict.OK, record)


def _cancel(life: TimerLife, given: Given) -> Effect:
    refused = refusal(life, given.condition, other_content=given.other_content)
    if refused is not None:
        return Effect(life, refused)
    kind = RecordKind.CANCELLED
    record = JournalRecord(kind, nonce=life.nonce, due=life.due, adopted=life.adopted)
    return Effect(None, Change.CANCELLED, record)


def _run(life: TimerLife, given: Given) -> Effect:
    if life.state is LifeState.LEASED:
        return Effect(life, Change.IN_FLIGHT)
    due = min(life.due, given.now)
    after = _back(life, due=due, next_claim=given.now, approximate=False, recorded=True)
    record = _standing(after, RecordKind.RUN, previous_due=life.due, adopted=life.adopted)
    return Effect(after, Change.RUN, record)


def _redrive(life: TimerLife | None, given: Given) -> Effect:
    if life is None or life.state is not LifeState.DEAD:
        return Effect(life, Change.GONE)
    # A new life by attempts and age, and the same occurrence: see 0001.
    after = TimerLife(given.now, given.now, occurrence=life.occurrence, recorded=True)
    kind = RecordKind.REDRIVEN
    record = JournalRecord(kind, occurrence=life.occurrence, due=given.now, score=given.now)
    return Effect(after, Change.RUN, record)


def _dies(life: TimerLife, given: Given, reason: Reason, error: str = "", **facts: Any) -> Effect:
    """`facts` are the nonce of its last lease, and whether that was received."""
    expired = reason is Reason.EXPIRED
    why: dict[str, Any] = {"expires": life.expires}
    if not expired:
        why = {"reason": reason.value, "error": in_short(error)}
    kind = RecordKind.EXPIRED if expired else RecordKind.DEAD
    record = _standing(life, kind, occurrence=life.occurrence, **facts, **why)
    kept = given.limits.keep and (given.limits.keep_expired or not expired)
    after = replace(life, state=LifeState.DEAD, nonce=b"", adopted=None) if kept else None
    return Effect(after, reason, record._replace(score=0), error)


def _standing(life: TimerLife, kind: RecordKind, **facts: Any) -> JournalRecord:
    """A record of a timer that has counts."""
    return JournalRecord(
        kind,
        due=life.due,
        score=life.next_claim,
        attempts=life.attempts,
        claims=life.claims,
        suspect=life.suspect,
        approximate=life.approximate,
        **facts,
    )


_RULES: dict[LifeEvent, tuple[Callable[[Any, Given], Effect], RecordKind | None]] = {
    LifeEvent.SCHEDULE: (_schedule, None),
    LifeEvent.CLAIM: (_claim, None),
    LifeEvent.RECEIPT: (_receipt, RecordKind.RECEIVED),
    LifeEvent.EXTEND: (_extend, RecordKind.EXTENDED),
    LifeEvent.ACK: (_ack, RecordKind.ACKED),
    LifeEvent.NACK: (_nack, RecordKind.NACKED),
    LifeEvent.RELEASE: (_release, RecordKind.RELEASED),
    LifeEvent.REJECT: (_reject, RecordKind.DEAD),
    LifeEvent.RESCHEDULE: (_reschedule, RecordKind.RESCHEDULED),
    LifeEvent.CANCEL: (_cancel, None),
    LifeEvent.RUN: (_run, None),
}
"""What each event does to a timer that lives. An event with a kind needs a valid token; the kind is what the
journal calls it where that is refused. A REDRIVE is for the dead."""

_CHANGES = frozenset({LifeEvent.SCHEDULE, LifeEvent.CANCEL, LifeEvent.RUN})
"""What callers ask for, who are told whether a delivery was under way."""
