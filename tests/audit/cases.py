"""Histories that break a promise, each with its legal twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay.core.audit import Promise
from relay.core.journal import Adoption, JournalRecord, RecordKind
from tests.audit.forge import LEASE, START, Forge, instant, nonce

EARLY, ONCE, LEASED, NEWEST, ATTEMPTS, INSTANTS = Promise


@dataclass(frozen=True)
class Case:
    """A break, its legal twin, and the promises that it breaks."""

    broken: Callable[[], Forge]
    legal: Callable[[], Forge]
    promises: set[Promise]


def delivered() -> Forge:
    return Forge().scheduled("t").claimed("t", 1)


def nacked() -> Forge:
    return delivered().nacked("t", 1, 1, 1)


def replaced_in_flight() -> Forge:
    return delivered().replaced("t", 5.0, 0.0, held=1)


def finished(forge: Forge, due: float = 5.0) -> Forge:
    """The new intent of a timer is delivered and committed."""
    return forge.wait(due).claimed("t", 2, due).acked("t", 2)


def received() -> Forge:
    return delivered().received("t", 1)


def lapsed() -> Forge:
    return received().wait(31)


def dead() -> Forge:
    return received().dead("t", 1, 1, 1)


def unreceived() -> Forge:
    return delivered().wait(31).claimed("t", 2, 0.0, 0, 2, first=1)


def promoted() -> Forge:
    return delivered().wait(31).promoted("t", claims=1, nonce=nonce(1))


CASES = {
    "claimed before it is due": Case(
        lambda: Forge().scheduled("t", 5.0).wait(4.999999).claimed("t", 1, 5.0).acked("t", 1),
        lambda: Forge().scheduled("t", 5.0).wait(5.0).claimed("t", 1, 5.0).acked("t", 1),
        {EARLY},
    ),
    "claimed as if it had been due sooner": Case(
        lambda: Forge().scheduled("t", 5.0).wait(4.0).claimed("t", 1, 3.0).acked("t", 1),
        lambda: Forge().scheduled("t", 3.0).wait(4.0).claimed("t", 1, 3.0).acked("t", 1),
        {EARLY, NEWEST},
    ),
    "promoted before it is due": Case(
        lambda: Forge().scheduled("t", 5.0).wait(4.999999).promoted("t", 5.0),
        lambda: Forge().scheduled("t", 5.0).wait(5.0).promoted("t", 5.0),
        {EARLY},
    ),
    "promoted as if it had been due sooner": Case(
        lambda: Forge().scheduled("t", 5.0).wait(4.0).promoted("t", 3.0),
        lambda: Forge().scheduled("t", 3.0).wait(4.0).promoted("t", 3.0),
        {EARLY, NEWEST},
    ),
    "promoted under a lease": Case(
        lambda: delivered().wait(29).promoted("t", claims=1, nonce=nonce(1)),
        promoted,
        {LEASED},
    ),
    "promoted with another due time": Case(
        lambda: Forge().scheduled("t", 5.0).wait(9.0).promoted("t", 6.0),
        lambda: Forge().scheduled("t", 5.0).wait(9.0).promoted("t", 5.0),
        {NEWEST},
    ),
    "promoted, and claimed after that": Case(
        lambda: promoted().claimed("t", 2, 0.0, 0, 2, first=1).acked("t", 2),
        lambda: promoted().scheduled("t").claimed("t", 2).acked("t", 2),
        {NEWEST},
    ),
    "never ended": Case(delivered, lambda: delivered().acked("t", 1), {ONCE}),
    "stored anew as if it had not been there": Case(
        lambda: Forge().scheduled("t").scheduled("t").claimed("t", 1).acked("t", 1),
        lambda: Forge().scheduled("t").cancelled("t").scheduled("t").claimed("t", 1).acked("t", 1),
        {ONCE},
    ),
    "stored anew as if it had not been there, after a claim": Case(
        lambda: nacked().scheduled("t").claimed("t", 2).acked("t", 2),
        lambda: nacked().cancelled("t").scheduled("t").claimed("t", 2).acked("t", 2),
        {ONCE},
    ),
    "removed for want of its payload": Case(
        lambda: Forge().scheduled("t").batch(JournalRecord(RecordKind.ORPHANED, "t", due=START)),
        lambda: Forge().scheduled("t").batch(JournalRecord(RecordKind.CANCELLED, "t", due=START)),
        {ONCE},
    ),
    "its payload was left": Case(
        lambda: Forge().scheduled("t").batch(JournalRecord(RecordKind.REPAIRED, "t")),
        lambda: Forge().scheduled("t").cancelled("t").batch(JournalRecord(RecordKind.REPAIRED, "t")),
        {ONCE},
    ),
    "gone under a lease": Case(
        lambda: delivered().gone("t", 1).acked("t", 1),
        lambda: delivered().cancelled("t", 1).gone("t", 1),
        {ONCE},
    ),
    "removed by nobody known": Case(
        lambda: delivered().batch(JournalRecord(RecordKind.TAKEN, "t", nonce(1), due=START, claims=1)),
        lambda: delivered().acked("t", 1),
        {ONCE},
    ),
    "expired too soon": Case(
        lambda: expiring().wait(9.0).batch(expired(10)),
        lambda: expiring().wait(10.0).batch(expired(10)),
        {ONCE},
    ),
    "claimed while a lease stands": Case(
        lambda: delivered().wait(29).again(0, 2),
        lambda: delivered().wait(31).again(0, 2),
        {LEASED},
    ),
    "claimed while a renewed lease stands": Case(
        lambda: delivered().wait(20).extended("t", 1).wait(20).again(0, 2),
        lambda: delivered().wait(20).extended("t", 1).wait(31).again(0, 2),
        {LEASED},
    ),
    "parked while a lease stands": Case(
        lambda: parked(20),
        lambda: parked(31),
        {LEASED},
    ),
    "dead by a claim while a lease stands": Case(
        lambda: delivered().wait(20).dead("t", 1, 0, 1, reason="claims", received=False),
        lambda: delivered().wait(31).dead("t", 1, 0, 1, reason="claims", received=False),
        {LEASED},
    ),
    "made due while it is leased": Case(
        lambda: delivered().batch(ran()).again(0, 2),
        lambda: delivered().released("t", 1, 0, 1).batch(ran()).again(0, 2),
        {LEASED},
    ),
    "a nonce twice": Case(
        lambda: nacked().claimed("t", 1, 0.0, 1, 2, first=1).acked("t", 1),
        lambda: nacked().again(1, 2),
        {LEASED},
    ),
    "acked under a token that was taken over": Case(
        lambda: unreceived().acked("t", 1),
        lambda: unreceived().stale("t", 1).acked("t", 2),
        {LEASED},
    ),
    "renewed under a token that was taken over": Case(
        lambda: unreceived().extended("t", 1).acked("t", 2),
        lambda: unreceived().stale("t", 1, RecordKind.EXTENDED).acked("t", 2),
        {LEASED},
    ),
    "a receipt under a token that was taken over": Case(
        lambda: unreceived().received("t", 1).acked("t", 2),
        lambda: unreceived().received("t", 2).acked("t", 2),
        {LEASED},
    ),
    "nacked after a release": Case(
        lambda: delivered().released("t", 1, 0, 1).nacked("t", 1, 1, 1).again(1, 2),
        lambda: delivered().released("t", 1, 0, 1).stale("t", 1).again(0, 2),
        {LEASED},
    ),
    "committed twice": Case(
        lambda: delivered().acked("t", 1).acked("t", 1),
        lambda: delivered().acked("t", 1).gone("t", 1),
        {LEASED},
    ),
    "a lease from nowhere": Case(
        lambda: Forge().acked("t", 1),
        lambda: delivered().acked("t", 1),
        {LEASED},
    ),
    "a valid token refused": Case(
        lambda: delivered().stale("t", 1).acked("t", 1),
        lambda: delivered().stale("t", 7).acked("t", 1),
        {LEASED},
    ),
    "acked after it was replaced": Case(
        lambda: replaced_in_flight().acked("t", 1),
        lambda: finished(replaced_in_flight().stale("t", 1)),
        {LEASED, NEWEST},
    ),
    "acked after it was cancelled": Case(
        lambda: delivered().cancelled("t", 1).acked("t", 1),
        lambda: delivered().cancelled("t", 1).gone("t", 1),
        {LEASED, NEWEST},
    ),
    "acked after it was cancelled and stored again": Case(
        lambda: delivered().cancelled("t", 1).scheduled("t", 5.0).acked("t", 1),
        lambda: finished(delivered().cancelled("t", 1).scheduled("t", 5.0).stale("t", 1)),
        {LEASED, NEWEST},
    ),
    "the old occurrence delivered after it was replaced": Case(
        lambda: finished_as(replaced_in_flight(), 1),
        lambda: finished_as(replaced_in_flight(), 2),
        {NEWEST},
    ),
    "delivered at the old due time": Case(
        lambda: Forge().scheduled("t").replaced("t", 5.0, 0.0).wait(6).claimed("t", 1, 0.0).acked("t", 1),
        lambda: Forge().scheduled("t").replaced("t", 5.0, 0.0).wait(6).claimed("t", 1, 5.0).acked("t", 1),
        {NEWEST},
    ),
    "delivered after it was cancelled": Case(
        lambda: Forge().scheduled("t").cancelled("t").claimed("t", 1).acked("t", 1),
        lambda: Forge().scheduled("t").cancelled("t").scheduled("t").claimed("t", 1).acked("t", 1),
        {NEWEST},
    ),
    "the due time moved by a retry": Case(
        lambda: delivered().nacked("t", 1, 1, 1, due=1.0).wait(2).claimed("t", 2, 1.0, 1, 2, 1).acked("t", 2),
        lambda: nacked().wait(2).again(1, 2),
        {NEWEST},
    ),
    "redriven over a living one": Case(
        lambda: dead().scheduled("t").redriven("t", 1, 0.0).again(0, 1),
        lambda: dead().redriven("t", 1, 0.0).again(0, 1),
        {ONCE},
    ),
    "redriven as another occurrence": Case(
        lambda: dead().redriven("t", 9, 0.0).claimed("t", 2, 0.0, 0, 1, 9).acked("t", 2),
        lambda: dead().redriven("t", 1, 0.0).claimed("t", 2, 0.0, 0, 1, 1).acked("t", 2),
        {NEWEST},
    ),
    "adopted, and nobody is there": Case(
        lambda: nacked().claimed("t", 2, 0.0, 0, 1, adopted=Adoption.INTENT).acked("t", 2),
        lambda: nacked().again(1, 2),
        {NEWEST},
    ),
    "a NACK that does not count": Case(
        lambda: delivered().nacked("t", 1, 0, 1).again(0, 2),
        lambda: nacked().again(1, 2),
        {ATTEMPTS},
    ),
    "a received lapse that does not count": Case(
        lambda: lapsed().again(0, 2),
        lambda: lapsed().again(1, 2),
        {ATTEMPTS},
    ),
    "a lapse that counts without a receipt": Case(
        lambda: delivered().wait(31).again(1, 2),
        lambda: delivered().wait(31).again(0, 2),
        {ATTEMPTS},
    ),
    "a release that counts without a receipt": Case(
        lambda: delivered().released("t", 1, 1, 1).again(1, 2),
        lambda: delivered().released("t", 1, 1, 1, received=True).again(1, 2),
        {ATTEMPTS},
    ),
    "a received release that does not count": Case(
        lambda: received().released("t", 1, 0, 1).again(0, 2),
        lambda: received().released("t", 1, 1, 1, received=True).again(1, 2),
        {ATTEMPTS},
    ),
    "a claim that does not count": Case(
        lambda: nacked().again(1, 1),
        lambda: delivered().released("t", 1, 0, 0).again(0, 1),
        {ATTEMPTS},
    ),
    "a new intent with old attempts": Case(
        lambda: nacked().replaced("t", 0.0, 0.0).claimed("t", 2, 0.0, 1, 2).acked("t", 2),
        lambda: nacked().replaced("t", 0.0, 0.0).claimed("t", 2, 0.0, 0, 1).acked("t", 2),
        {ATTEMPTS},
    ),
    "dead with too few attempts": Case(
        lambda: nacked().claimed("t", 2, 0.0, 1, 2, 1).dead("t", 2, 1, 2),
        lambda: nacked().claimed("t", 2, 0.0, 1, 2, 1).dead("t", 2, 2, 2),
        {ATTEMPTS},
    ),
}  # fmt: skip


def expiring() -> Forge:
    return Forge().scheduled("t", expires=instant(10))


def expired(at: float) -> JournalRecord:
    return JournalRecord(RecordKind.EXPIRED, "t", due=START, expires=instant(at))


def parked(after: float) -> Forge:
    forge = delivered().wait(after)
    record = JournalRecord(RecordKind.PARKED, "t", nonce(1), due=START, score=forge.now + LEASE, claims=1)
    return forge.batch(record).wait(31).again(0, 2)


def ran() -> JournalRecord:
    return JournalRecord(RecordKind.RUN, "t", due=START, score=START, previous_due=START, claims=1)


def finished_as(forge: Forge, first: int) -> Forge:
    """Its new intent is delivered, as the occurrence that began with this claim."""
    return forge.wait(5.0).claimed("t", 2, 5.0, first=first).acked("t", 2)
