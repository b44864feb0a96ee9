"""What the journal has of each change: every store writes the same records."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.instants import SECOND
from relay.core.journal import JournalRecord, RecordKind
from relay.core.outcomes import Extension, Limits, Reason, Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, Changed, Condition, NewTimer
from tests.contract.subject import Subject
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW

DUE = NOW - SECOND
DEADLINE = NOW + LEASE
ONCE = Limits(max_attempts=1)


@pytest.fixture
def journal(subject: Subject) -> Subject:
    """The subject, whose topic has a journal."""
    subject.keep(10_000)
    return subject


def claimed(timer_id: str = "a", nonce: bytes = N1, **rest: Any) -> JournalRecord:
    """A first claim at NOW of a timer that was due a second before."""
    facts = {"due": DUE, "score": DEADLINE, "claims": 1, "occurrence": N1, **rest}
    return JournalRecord(RecordKind.CLAIMED, timer_id, nonce, **facts)


async def leased(subject: Subject, *timer_ids: str) -> None:
    """Timers that N1 has leased, and a journal without that."""
    for timer_id in timer_ids:
        await subject.schedule(timer_id, DUE)
    assert await subject.claimed(N1) == list(timer_ids)
    await subject.journal_since()


async def test_a_topic_without_one(subject: Subject) -> None:
    """Nothing is written where no journal was asked for."""
    await leased(subject, "a")
    await subject.settle("a", N1, Verb.ACK)
    assert await subject.journal() == []


async def test_one_batch_a_call(journal: Subject) -> None:
    """It has the time of the change, and the records are numbered through."""
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", DUE), NewTimer("b", b"", DUE)])
    journal.now = NOW + 5
    await journal.store.cancel(journal.topic, ["b"])
    batches = await journal.journal()
    assert [(batch.time, batch.first, batch.last) for batch in batches] == [(NOW, 1, 2), (NOW + 5, 3, 3)]
    assert [[record.timer_id for record in batch.records] for batch in batches] == [["a", "b"], ["b"]]
    assert [batch.lost_since(before) for batch, before in zip(batches, (0, 2), strict=True)] == [0, 0]


async def test_a_call_that_changes_nothing(journal: Subject) -> None:
    """It leaves no trace: what was refused on its terms, an empty claim, a cancel of nothing."""
    await journal.schedule("a", NOW + LEASE)
    await journal.journal_since()
    timers = [
        NewTimer("a", b"", NOW, intent=KEEP_EXISTING),
        NewTimer("b", b"", NOW, condition=Condition(due=NOW)),
    ]
    await journal.store.schedule(journal.topic, timers)
    assert await journal.claimed(N1) == []
    assert await journal.store.cancel(journal.topic, ["b"]) == [Changed(Change.GONE)]
    assert await journal.store.cancel(journal.topic, ["a"], Condition(due=NOW)) == [Changed(Change.UNCHANGED)]
    assert await journal.store.run(journal.topic, ["b"]) == [Changed(Change.GONE)]
    assert len(await journal.journal()) == 1


async def test_scheduled(journal: Subject) -> None:
    """The due time that was stored, and when it expires."""
    timers = [
        NewTimer("at", b"", DUE),
        NewTimer("in", b"", delay=5),
        NewTimer("e", b"", NOW, expires=NOW + 7),
    ]
    await journal.store.schedule(journal.topic, timers)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.SCHEDULED, "at", due=DUE),
        JournalRecord(RecordKind.SCHEDULED, "in", due=NOW + 5),
        JournalRecord(RecordKind.SCHEDULED, "e", due=NOW, expires=NOW + 7),
    ]


async def test_replaced(journal: Subject) -> None:
    """What was due before; within one call too, where the later one stands."""
    await journal.schedule("a", DUE)
    await journal.journal_since()
    timers = [NewTimer("a", b"", NOW), NewTimer("b", b"", 5), NewTimer("b", b"", 6)]
    await journal.store.schedule(journal.topic, timers)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.REPLACED, "a", due=NOW, previous_due=DUE),
        JournalRecord(RecordKind.SCHEDULED, "b", due=5),
        JournalRecord(RecordKind.REPLACED, "b", due=6, previous_due=5),
    ]


async def test_replaced_in_flight(journal: Subject) -> None:
    """The lease that is void from now on."""
    await leased(journal, "a")
    await journal.schedule("a", NOW + 9)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.REPLACED, "a", N1, due=NOW + 9, previous_due=DUE)
    ]


async def test_cancelled(journal: Subject) -> None:
    """With the lease that is void from now on; an id that comes twice was cancelled once."""
    await leased(journal, "a")
    await journal.schedule("b", NOW)
    await journal.journal_since()
    await journal.store.cancel(journal.topic, ["a", "b", "b", "c"])
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.CANCELLED, "a", N1, due=DUE),
        JournalRecord(RecordKind.CANCELLED, "b", due=NOW),
    ]


async def test_run(journal: Subject) -> None:
    """Due now; and what it was due before."""
    await journal.schedule("a", NOW + LEASE)
    await journal.journal_since()
    await journal.store.run(journal.topic, ["a"])
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.RUN, "a", due=NOW, score=NOW, previous_due=NOW + LEASE)
    ]


async def test_claimed(journal: Subject) -> None:
    """The lease, its end, and the occurrence that begins with it."""
    await journal.schedule("a", DUE)
    await journal.schedule("b", DUE)
    await journal.journal_since()
    await journal.claimed(N1)
    assert await journal.journal_since() == [claimed("a"), claimed("b")]


async def test_claimed_again(journal: Subject) -> None:
    """After a NACK it is the same occurrence, with what has counted."""
    await leased(journal, "a")
    await journal.settle("a", N1, Verb.NACK, retry_after=0)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.NACKED, "a", N1, due=DUE, score=NOW, attempts=1, claims=1, received=True)
    ]
    journal.now = NOW + 10
    await journal.claimed(N2)
    assert await journal.journal_since() == [claimed(nonce=N2, score=DEADLINE + 10, attempts=1, claims=2)]


async def test_errors_are_told_in_short(journal: Subject) -> None:
    """A failed attempt and a death say what went wrong, in 200 bytes: a character that these cut is left
    out. What a relay gives back has not failed."""
    await leased(journal, "a", "b", "c")
    long = "ä" * 99 + "abä"
    await journal.settle("a", N1, Verb.NACK, retry_after=0, error=long)
    await journal.settle("b", N1, Verb.REJECT, error="no such customer")
    await journal.settle("c", N1, Verb.RELEASE, received=True)
    told = [(record.kind.name, record.error) for record in await journal.journal_since()]
    assert told == [("NACKED", "ä" * 99 + "ab"), ("DEAD", "no such customer"), ("RELEASED", "")]
    journal.now = NOW + 10
    assert await journal.claimed(N2) == ["a", "c"]
    await journal.journal_since()
    await journal.settle("a", N2, Verb.NACK, retry_after=0, error="ä" * 99 + "aä", limits=ONCE)
    (died,) = await journal.journal_since()
    assert (died.kind, died.reason, died.error) == (RecordKind.DEAD, "attempts", "ä" * 99 + "a")


@pytest.mark.parametrize("received", [False, True])
async def test_claimed_after_a_lapse(journal: Subject, received: bool) -> None:
    """Whether the lease that lapsed had been received."""
    await leased(journal, "a")
    await journal.extend("a", N1, received=received)
    await journal.journal_since()
    journal.now = DEADLINE + 1
    await journal.claimed(N2)
    end = DEADLINE + 1 + LEASE
    assert await journal.journal_since() == [
        claimed(nonce=N2, score=end, attempts=received, claims=2, received=received)
    ]


@pytest.mark.parametrize(("received", "kind"), [(True, RecordKind.RECEIVED), (False, RecordKind.EXTENDED)])
async def test_renewals(journal: Subject, received: bool, kind: RecordKind) -> None:
    """Each new end of a lease."""
    await leased(journal, "a")
    journal.now = NOW + 5
    await journal.extend("a", N1, received=received)
    await journal.extend("a", N1, received=received, lease=1)
    assert await journal.journal_since() == [
        JournalRecord(kind, "a", N1, score=DEADLINE + 5),
        JournalRecord(kind, "a", N1, score=NOW + 6),
    ]


async def test_acked(journal: Subject) -> None:
    """The lease under which it was done."""
    await leased(journal, "a")
    await journal.settle("a", N1, Verb.ACK)
    assert await journal.journal_since() == [JournalRecord(RecordKind.ACKED, "a", N1)]


@pytest.mark.parametrize("received", [False, True])
async def test_released(journal: Subject, received: bool) -> None:
    """What had been received counts, and says so."""
    await leased(journal, "a")
    await journal.settle("a", N1, Verb.RELEASE, received=received, suspect=received, unsent=not received)
    assert await journal.journal_since() == [
        JournalRecord(
            RecordKind.RELEASED,
            "a",
            N1,
            due=DUE,
            score=NOW,
            received=received,
            suspect=received,
            attempts=int(received),
            claims=1 if received else 0,
        )
    ]


async def test_rescheduled(journal: Subject) -> None:
    """A new intent, and what was due before."""
    await leased(journal, "a", "b")
    for timer_id, again in (("a", NewTimer("a", b"", NOW + 7)), ("b", NewTimer("b", b"", delay=9))):
        await journal.settle(timer_id, N1, Verb.RESCHEDULE, again=again)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.RESCHEDULED, "a", N1, due=NOW + 7, previous_due=DUE),
        JournalRecord(RecordKind.RESCHEDULED, "b", N1, due=NOW + 9, previous_due=DUE),
    ]


async def test_dead_by_its_application(journal: Subject) -> None:
    """Rejected, or out of attempts: the application had it. Not so what no application can be given."""
    await leased(journal, "a", "b", "c")
    await journal.settle("a", N1, Verb.REJECT)
    await journal.settle("b", N1, Verb.NACK, limits=ONCE)
    await journal.settle("c", N1, Verb.REJECT, reason=Reason.UNREADABLE)
    facts: dict[str, Any] = {"occurrence": N1, "due": DUE, "attempts": 1, "claims": 1}
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.DEAD, "a", N1, reason="rejected", received=True, **facts),
        JournalRecord(RecordKind.DEAD, "b", N1, reason="attempts", received=True, **facts),
        JournalRecord(RecordKind.DEAD, "c", N1, reason="unreadable", **facts),
    ]


async def test_dead_at_a_claim(journal: Subject) -> None:
    """The lease that lapsed, and that it had been received."""
    await leased(journal, "a")
    await journal.extend("a", N1, received=True)
    await journal.journal_since()
    journal.now = DEADLINE + 1
    await journal.claim(N2, limits=ONCE)
    facts: dict[str, Any] = {"occurrence": N1, "due": DUE, "attempts": 1, "claims": 1, "suspect": True}
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.DEAD, "a", N1, reason="attempts", received=True, **facts)
    ]


async def test_expired(journal: Subject) -> None:
    """When it was of no use any more."""
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", DUE, expires=NOW)])
    await journal.journal_since()
    await journal.claimed(N1)
    assert await journal.journal_since() == [JournalRecord(RecordKind.EXPIRED, "a", due=DUE, expires=NOW)]


ENDS = [
    (Verb.ACK, RecordKind.ACKED),
    (Verb.NACK, RecordKind.NACKED),
    (Verb.RELEASE, RecordKind.RELEASED),
    (Verb.REJECT, RecordKind.DEAD),
    (Verb.RESCHEDULE, RecordKind.RESCHEDULED),
]


@pytest.mark.parametrize(("verb", "refused"), ENDS)
async def test_refused(journal: Subject, verb: Verb, refused: RecordKind) -> None:
    """A token that was worth nothing, and what it was for."""
    await leased(journal, "a")
    again = NewTimer("a", b"", NOW)
    ends = [end_of("a", N2, verb, again=again), end_of("b", N1, verb, again=again)]
    assert await journal.store.settle(journal.topic, ends) == [Verdict.STALE, Verdict.GONE]
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.STALE, "a", N2, refused=refused),
        JournalRecord(RecordKind.GONE, "b", N1, refused=refused),
    ]


@pytest.mark.parametrize(("received", "refused"), [(True, RecordKind.RECEIVED), (False, RecordKind.EXTENDED)])
async def test_renewals_refused(journal: Subject, received: bool, refused: RecordKind) -> None:
    """The same of renewals and receipts."""
    await leased(journal, "a")
    asked = [Extension("a", N2, received), Extension("b", N1, received)]
    await journal.store.extend(journal.topic, asked, lease=LEASE)
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.STALE, "a", N2, refused=refused),
        JournalRecord(RecordKind.GONE, "b", N1, refused=refused),
    ]


async def test_many_in_a_call(journal: Subject) -> None:
    """In the order of the call, what is refused among what is done."""
    await leased(journal, "a", "b", "c")
    ends = [end_of("c", N1, Verb.ACK), end_of("a", N2, Verb.ACK), end_of("b", N1, Verb.ACK)]
    await journal.store.settle(journal.topic, ends)
    (batch,) = (await journal.journal())[-1:]
    assert [(record.timer_id, record.kind) for record in batch.records] == [
        ("c", RecordKind.ACKED),
        ("a", RecordKind.STALE),
        ("b", RecordKind.ACKED),
    ]


async def test_a_long_name(journal: Subject) -> None:
    """Names of 256 bytes in a call of 500: lengths of more than one byte."""
    names = [f"{n:03}" + "ü" * 126 for n in range(500)]
    await journal.store.schedule(journal.topic, [NewTimer(name, b"", DUE) for name in names])
    assert await journal.journal_since() == [
        JournalRecord(RecordKind.SCHEDULED, name, due=DUE) for name in names
    ]


async def test_trimmed(journal: Subject) -> None:
    """The oldest batches go, whole, while those behind them are enough; what went is told and missed."""
    journal.keep(10)
    for n in range(6):
        await journal.store.schedule(journal.topic, [NewTimer(f"{n}{m}", b"", DUE) for m in range(4)])
    batches = await journal.journal()
    assert [(batch.first, batch.last) for batch in batches] == [(13, 16), (17, 20), (21, 24)]
    assert (journal.trimmed(), batches[0].lost_since(0)) == (12, 12)


async def test_a_limit_that_was_lowered(journal: Subject) -> None:
    """Each call drops about twice of what it adds, until the limit is met."""
    for n in range(50):
        await journal.schedule(f"t{n}", DUE)
    journal.keep(5)
    lengths = []
    for n in range(8):
        await journal.schedule(f"u{n}", DUE)
        lengths.append(len(await journal.journal()))
    assert lengths == [41, 32, 23, 14, 5, 5, 5, 5]
    assert journal.trimmed() == 53
