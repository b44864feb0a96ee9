"""Histories whose records contradict each other: something took place without a record, or as none tells."""

from __future__ import annotations

from relay.core.journal import JournalRecord, RecordKind
from tests.audit.cases import (
    ATTEMPTS,
    LEASED,
    NEWEST,
    Case,
    delivered,
    expiring,
    finished,
    lapsed,
    nacked,
    received,
)
from tests.audit.forge import LEASE, START, Forge, instant, nonce

LATER = instant(3)


def ended(
    kind: RecordKind, forge: Forge, held: int = 0, due: int = START, attempts: int = 0, claims: int = 1
) -> Forge:
    """By a record that names a lease or none."""
    void = nonce(held) if held else b""
    return forge.batch(
        JournalRecord(kind, "t", void, due=due, attempts=attempts, claims=claims, expires=START)
    )


def ran(forge: Forge, previous: int = START, attempts: int = 1) -> Forge:
    record = JournalRecord(
        RecordKind.RUN, "t", due=START, score=START, previous_due=previous, attempts=attempts, claims=1
    )
    return forge.batch(record)


def parked(forge: Forge, held: int, due: int = START, attempts: int = 0) -> Forge:
    """Its payload is gone for a while; then it is delivered."""
    void = nonce(held) if held else b""
    score = forge.now + LEASE
    record = JournalRecord(RecordKind.PARKED, "t", void, due=due, score=score, attempts=attempts, claims=1)
    return forge.batch(record).wait(31).again(attempts, 2)


CASES = {
    "delivered again after its commit, as the same occurrence": Case(
        lambda: delivered().acked("t", 1).claimed("t", 2, 0.0, 0, 1, first=1).acked("t", 2),
        lambda: delivered().acked("t", 1).scheduled("t").claimed("t", 2).acked("t", 2),
        {NEWEST},
    ),
    "replaced, and its lease overlooked": Case(
        lambda: finished(delivered().replaced("t", 5.0, 0.0)),
        lambda: finished(delivered().replaced("t", 5.0, 0.0, held=1)),
        {LEASED},
    ),
    "replaced, with a lease that nobody had": Case(
        lambda: finished(nacked().replaced("t", 5.0, 0.0, held=1)),
        lambda: finished(nacked().replaced("t", 5.0, 0.0)),
        {LEASED},
    ),
    "replaced, and it had been due at another time": Case(
        lambda: finished(nacked().replaced("t", 5.0, 3.0)),
        lambda: finished(nacked().replaced("t", 5.0, 0.0)),
        {NEWEST},
    ),
    "rescheduled, and it had been due at another time": Case(
        lambda: finished(delivered().rescheduled("t", 1, 5.0, 3.0)),
        lambda: finished(delivered().rescheduled("t", 1, 5.0, 0.0)),
        {NEWEST},
    ),
    "run, and it had been due at another time": Case(
        lambda: ran(nacked(), previous=LATER).again(1, 2),
        lambda: ran(nacked()).again(1, 2),
        {NEWEST},
    ),
    "run, and an attempt is forgotten": Case(
        lambda: ran(nacked(), attempts=0).again(0, 2),
        lambda: ran(nacked()).again(1, 2),
        {ATTEMPTS},
    ),
    "cancelled, and its lease overlooked": Case(
        lambda: ended(RecordKind.CANCELLED, delivered()),
        lambda: ended(RecordKind.CANCELLED, delivered(), 1),
        {LEASED},
    ),
    "cancelled, and it had been due at another time": Case(
        lambda: ended(RecordKind.CANCELLED, nacked(), due=LATER),
        lambda: ended(RecordKind.CANCELLED, nacked()),
        {NEWEST},
    ),
    "dead, and it had been due at another time": Case(
        lambda: received().dead("t", 1, 1, 1, due=LATER),
        lambda: received().dead("t", 1, 1, 1),
        {NEWEST},
    ),
    "expired while a lease stands": Case(
        lambda: ended(RecordKind.EXPIRED, expiring().claimed("t", 1).wait(20), 1),
        lambda: ended(RecordKind.EXPIRED, expiring().claimed("t", 1).wait(31), 1),
        {LEASED},
    ),
    "expired, and its lease overlooked": Case(
        lambda: ended(RecordKind.EXPIRED, delivered().wait(31)),
        lambda: ended(RecordKind.EXPIRED, delivered().wait(31), 1),
        {LEASED},
    ),
    "expired, and it had been due at another time": Case(
        lambda: ended(RecordKind.EXPIRED, nacked(), due=LATER, attempts=1),
        lambda: ended(RecordKind.EXPIRED, nacked(), attempts=1),
        {NEWEST},
    ),
    "expired, and an attempt is forgotten": Case(
        lambda: ended(RecordKind.EXPIRED, lapsed(), 1),
        lambda: ended(RecordKind.EXPIRED, lapsed(), 1, attempts=1),
        {ATTEMPTS},
    ),
    "parked, and its lease overlooked": Case(
        lambda: parked(delivered().wait(31), 0),
        lambda: parked(delivered().wait(31), 1),
        {LEASED},
    ),
    "parked, and it had been due at another time": Case(
        lambda: parked(delivered().wait(31), 1, due=LATER),
        lambda: parked(delivered().wait(31), 1),
        {NEWEST},
    ),
    "parked, and an attempt is forgotten": Case(
        lambda: parked(lapsed(), 1),
        lambda: parked(lapsed(), 1, attempts=1),
        {ATTEMPTS},
    ),
    "released, and it had been due at another time": Case(
        lambda: (
            delivered().released("t", 1, 0, 1, due=3.0).wait(4).claimed("t", 2, 3.0, 0, 2, 1).acked("t", 2)
        ),
        lambda: delivered().released("t", 1, 0, 1).wait(4).again(0, 2),
        {NEWEST},
    ),
    "received by nobody's lease": Case(
        lambda: Forge().scheduled("t").received("t", 1).claimed("t", 2).acked("t", 2),
        lambda: Forge().scheduled("t").claimed("t", 2).received("t", 2).acked("t", 2),
        {LEASED},
    ),
}
