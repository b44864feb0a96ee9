"""The journal on real servers: foreign writers, dead letters, repairs; servers and keys that misbehave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from relay.core.errors import InvalidField, StoreFull, StoreRefused, WrongKeyType
from relay.core.instants import SECOND
from relay.core.journal import Adoption, JournalRecord, RecordKind
from relay.core.outcomes import Limits, Verb, Verdict
from relay.core.timers import Change, Changed, NewTimer
from relay.store.codec.lease_record import LEASED, PENDING
from relay.store.journal.entries import JournalReader
from relay.store.server.manifest import manifest
from tests.lua import test_harm as harm
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import GRACE, Bench
from tests.worlds.scripts.states import EMPTY, Letter, alone, own, record, score

DUE = NOW - SECOND
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=score(DUE), nonce=N1)
BACK_OFF = record(PENDING, own(NOW + LEASE), due=score(DUE), attempts=1)
LETTER = Letter("a", "rejected", 1, 1, score(DUE), NOW, N1)
KEPT = Limits(max_attempts=1, keep=True, keep_expired=True)


@pytest.fixture
def journal(bench: Bench) -> Bench:
    """The bench, whose topic has a journal."""
    bench.keep = 10_000
    return bench


async def records(bench: Bench) -> list[JournalRecord]:
    return [record for batch in await bench.batches() for record in batch.records]


# ------------------------------------------------------------------------ foreign writers


async def test_a_publishers_timer(journal: Bench) -> None:
    """Nothing can tell who scheduled what no relay has touched: it appears with its claim."""
    journal.put("a", score(DUE))
    await journal.claim(N1)
    assert await records(journal) == [
        JournalRecord(RecordKind.CLAIMED, "a", N1, N1, due=DUE, score=NOW + LEASE, claims=1)
    ]


@pytest.mark.parametrize("held", [HELD, BACK_OFF])
async def test_a_new_intent_is_adopted(journal: Bench, held: Any) -> None:
    """A publisher moved a timer of which there is a record: its claim begins anew, and says why."""
    journal.put("a", score(NOW), held)
    await journal.claim(N2)
    assert await records(journal) == [
        JournalRecord(
            RecordKind.CLAIMED, "a", N2, N2, due=NOW, score=NOW + LEASE, claims=1, adopted=Adoption.INTENT
        )
    ]


async def test_a_foreign_lease_is_adopted(journal: Bench) -> None:
    """A worker leased it and died: due time and attempts stay, and the due time is a guess."""
    journal.put("a", score(NOW) - 2**-21, HELD._replace(attempts=2, received=1))
    await journal.claim(N2)
    facts: dict[str, Any] = {"due": DUE, "score": NOW + LEASE, "attempts": 3, "claims": 2}
    assert await records(journal) == [
        JournalRecord(RecordKind.CLAIMED, "a", N2, N1, approximate=True, adopted=Adoption.LEASE, **facts)
    ]


@pytest.mark.parametrize(
    ("at", "adopted"), [(score(NOW + 7), Adoption.INTENT), (own(NOW + 7), Adoption.LEASE)]
)
async def test_a_token_that_a_foreign_writer_voids(journal: Bench, at: float, adopted: Adoption) -> None:
    """The refusal says what has happened."""
    journal.put("a", at, HELD)
    assert await journal.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert await journal.extend("a", N1) is Verdict.STALE
    assert await records(journal) == [
        JournalRecord(RecordKind.STALE, "a", N1, refused=RecordKind.ACKED, adopted=adopted),
        JournalRecord(RecordKind.STALE, "a", N1, refused=RecordKind.EXTENDED, adopted=adopted),
    ]


TAKEN = JournalRecord(RecordKind.TAKEN, "a", N1, due=DUE, claims=1)


async def test_taken_is_told_by_whoever_removes_our_record(journal: Bench) -> None:
    """Settle, extend, cancel, schedule, redrive, repair: each finds our record alone."""
    letter = journal.put_letter(LETTER, "1-0")
    told = []

    async def after(removal: Any) -> None:
        journal.put_record("a", _raw(HELD))
        await removal
        told.append((await journal.batches())[-1].records)

    await after(journal.settle("a", N1, Verb.ACK))
    await after(journal.extend("a", N1, received=True))
    await after(journal.store.cancel(journal.topic, ["a"]))
    await after(journal.topics.repair(journal.topic, ["a"]))
    await after(journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW + LEASE)]))
    await journal.store.cancel(journal.topic, ["a"])
    await after(journal.topics.redrive(journal.topic, [letter]))
    assert told == [
        (TAKEN, JournalRecord(RecordKind.GONE, "a", N1, refused=RecordKind.ACKED)),
        (TAKEN, JournalRecord(RecordKind.GONE, "a", N1, refused=RecordKind.RECEIVED)),
        (TAKEN,),
        (TAKEN,),
        (TAKEN, JournalRecord(RecordKind.SCHEDULED, "a", due=NOW + LEASE)),
        (TAKEN, JournalRecord(RecordKind.REDRIVEN, "a", occurrence=N1, due=NOW, score=NOW, dead_id="1-0")),
    ]


def _raw(held: Any) -> bytes:
    from relay.store.codec import lease_record as stored

    return stored._RECORD.pack(*held)


async def test_cancelled_and_run_after_a_foreign_write(journal: Bench) -> None:
    """Whatever lease was ours is void already."""
    journal.put("a", score(NOW + 7), HELD)
    journal.put("b", score(NOW + 7), HELD)
    await journal.store.run(journal.topic, ["a"])
    await journal.store.cancel(journal.topic, ["b"])
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW + 9)])
    intent = Adoption.INTENT
    assert await records(journal) == [
        JournalRecord(RecordKind.RUN, "a", due=NOW, score=NOW, previous_due=NOW + 7, adopted=intent),
        JournalRecord(RecordKind.CANCELLED, "b", due=NOW + 7, adopted=intent),
        JournalRecord(RecordKind.REPLACED, "a", due=NOW + 9, previous_due=NOW),
    ]


async def test_an_id_that_is_no_text(journal: Bench) -> None:
    """It comes as it would elsewhere."""
    journal.put(b"\xff", score(DUE))
    await journal.claim(N1)
    assert [each.timer_id for each in await records(journal)] == ["\udcff"]


async def test_a_due_time_that_is_no_time(journal: Bench) -> None:
    """Infinities of foreign writers are the ends of time."""
    journal.put("a", float("inf"))
    journal.put("b", float("-inf"))
    await journal.store.cancel(journal.topic, ["a", "b"])
    assert [each.due for each in await records(journal)] == [253_402_300_799 * SECOND, 0]


# ---------------------------------------------------------------------- lost payloads


async def test_parked_and_orphaned(journal: Bench) -> None:
    """A timer without payload is left alone, and then removed."""
    journal.put("a", score(DUE), stored=None)
    await journal.claim(N1)
    journal.now += GRACE + 1
    await journal.claim(N2)
    assert await records(journal) == [
        JournalRecord(RecordKind.PARKED, "a", due=DUE, score=NOW + GRACE),
        JournalRecord(RecordKind.ORPHANED, "a", due=DUE),
    ]


async def test_parked_under_a_lease(journal: Bench) -> None:
    """The lease that lapsed, and that it had been received."""
    lapsed = record(LEASED, own(NOW - 1), due=score(DUE), nonce=N1, received=1)
    journal.put("a", own(NOW - 1), lapsed, stored=None)
    await journal.claim(N2)
    facts: dict[str, Any] = {"due": DUE, "score": NOW + GRACE, "attempts": 1, "claims": 1}
    assert await records(journal) == [JournalRecord(RecordKind.PARKED, "a", N1, received=True, **facts)]


async def test_repaired(journal: Bench) -> None:
    """A payload alone; nothing of what has a timer again, or has nothing left."""
    journal.put_payload("a")
    journal.put("b", score(DUE))
    await journal.topics.repair(journal.topic, ["a", "b", "c"])
    assert await records(journal) == [JournalRecord(RecordKind.REPAIRED, "a")]


async def test_repaired_once_though_found_twice(journal: Bench) -> None:
    """The janitor names an id twice if it found its payload and its record: one timer was taken."""
    new = NewTimer("a", b"x", due=NOW + LEASE, expires=NOW + 2 * LEASE)
    await journal.store.schedule(journal.topic, [new])
    journal.raw.zrem(journal.keys[0], "a")
    await journal.topics.repair(journal.topic, ["a", "a"])
    assert [record.kind for record in await records(journal)] == [RecordKind.SCHEDULED, RecordKind.TAKEN]


async def test_a_cancel_that_removes_a_payload(journal: Bench) -> None:
    """It repairs too, once."""
    journal.put_payload("a")
    assert await journal.store.cancel(journal.topic, ["a", "a"]) == [
        Changed(Change.GONE),
        Changed(Change.GONE),
    ]
    assert await records(journal) == [JournalRecord(RecordKind.REPAIRED, "a")]


# -------------------------------------------------------------------------- dead letters


async def test_the_letter_of_a_death(journal: Bench) -> None:
    """Each death that is kept names its letter: by REJECT, by the last NACK, at a claim, by expiry."""
    for timer_id in ("reject", "nack"):
        journal.put(timer_id, DEADLINE, HELD)
    lapsed = HELD._replace(score=own(NOW - 1), received=1)
    journal.put("lapsed", own(NOW - 1), lapsed)
    expired = HELD._replace(score=own(NOW - 1), state=PENDING, expires=score(NOW))
    journal.put("expired", own(NOW - 1), expired._replace(nonce=bytes(16)))
    await journal.settle("reject", N1, Verb.REJECT, limits=KEPT)
    await journal.settle("nack", N1, Verb.NACK, limits=KEPT)
    await journal.claim(N2, limits=KEPT)
    found = [each for each in await records(journal) if each.dead_id]
    assert [each.dead_id for each in found] == journal.dead_ids()
    assert {(each.timer_id, each.kind, each.nonce, each.received, each.reason) for each in found} == {
        ("reject", RecordKind.DEAD, N1, True, "rejected"),
        ("nack", RecordKind.DEAD, N1, True, "attempts"),
        ("lapsed", RecordKind.DEAD, N1, True, "attempts"),
        ("expired", RecordKind.EXPIRED, b"", False, ""),
    }


async def test_redriven(journal: Bench) -> None:
    """The letter, and the occurrence that goes on; a letter that isn't there leaves no trace."""
    name = journal.put_letter(LETTER)
    await journal.topics.redrive(journal.topic, [name, "1-0"])
    assert await records(journal) == [
        JournalRecord(RecordKind.REDRIVEN, "a", occurrence=N1, due=NOW, score=NOW, dead_id=name)
    ]


async def test_purged(journal: Bench) -> None:
    """Each letter that was there, once."""
    for n in (1, 2, 3):
        journal.put_letter(LETTER._replace(timer_id=f"t{n}"), f"{n}-0")
    assert await journal.topics.purge(journal.topic, ["1-0", "3-0", "1-0", "9-0"]) == 2
    assert await records(journal) == [
        JournalRecord(RecordKind.PURGED, "t1", dead_id="1-0"),
        JournalRecord(RecordKind.PURGED, "t3", dead_id="3-0"),
    ]


async def test_dead_letters_trimmed(journal: Bench) -> None:
    """How many, and which is the oldest now; nothing if nothing went."""
    for n in (1, 2, 3):
        journal.put_letter(LETTER, f"{n}-0")
    for most in (2, 2):
        await journal.topics.trim(journal.topic, max_count=most, max_age=0)
    await journal.topics.trim(journal.topic, max_count=0, max_age=1)
    assert await records(journal) == [
        JournalRecord(RecordKind.TRIMMED, count=1, dead_id="2-0"),
        JournalRecord(RecordKind.TRIMMED, count=2),
    ]


async def test_paused(journal: Bench) -> None:
    """Until when; a resume only where there was a pause."""
    await journal.topics.resume(journal.topic)
    await journal.topics.pause(journal.topic, duration=SECOND)
    await journal.topics.resume(journal.topic)
    await journal.topics.resume(journal.topic)
    assert await records(journal) == [
        JournalRecord(RecordKind.PAUSED, score=NOW + SECOND),
        JournalRecord(RecordKind.RESUMED),
    ]


# ------------------------------------------------------------------ servers and keys that misbehave


async def test_schedule_is_refused_whole(journal: Bench) -> None:
    """At maxmemory there is neither a timer nor a record of one."""
    journal.put("held", DEADLINE, HELD)
    before = journal.state()
    with journal.full(), pytest.raises(StoreFull):
        await journal.store.schedule(journal.topic, [NewTimer("held", b"", NOW), NewTimer("new", b"", NOW)])
    assert (journal.state(), await records(journal)) == (before, [])


async def test_a_full_redis_drains(journal: Bench) -> None:
    """What drains, renews and repairs goes on at maxmemory, and is recorded; what is refused too."""
    for timer_id in ("ack", "nack", "reject", "again"):
        journal.put(timer_id, DEADLINE, HELD)
    journal.put("due", score(DUE))
    journal.put_payload("stray")
    with journal.full():
        await journal.settle("ack", N2, Verb.ACK)
        await journal.extend("ack", N2)
        await journal.extend("ack", N1, received=True)
        await journal.settle("ack", N1, Verb.ACK)
        await journal.settle("nack", N1, Verb.NACK, retry_after=0)
        await journal.settle("reject", N1, Verb.REJECT, limits=KEPT)
        await journal.settle("again", N1, Verb.RESCHEDULE, again=NewTimer("again", b"", NOW + LEASE))
        assert await journal.claimed(N2) == ["due"]
        await journal.store.cancel(journal.topic, ["due"])
        await journal.store.run(journal.topic, ["again"])
        await journal.topics.redrive(journal.topic, journal.dead_ids())
        await journal.topics.repair(journal.topic, ["stray"])
        await journal.topics.pause(journal.topic)
        await journal.topics.resume(journal.topic)
    assert [each.kind.name for each in await records(journal)] == [
        *("STALE", "STALE", "RECEIVED", "ACKED", "NACKED", "DEAD", "RESCHEDULED", "CLAIMED"),
        *("CANCELLED", "RUN", "REDRIVEN", "REPAIRED", "PAUSED", "RESUMED"),
    ]


WRITING = [verb for verb in harm.CALLS if manifest(verb).writes]


@pytest.mark.parametrize("verb", WRITING)
async def test_a_wrong_type(journal: Bench, verb: str) -> None:
    """Somebody else's key under the journal's name: the key is named, and nothing is changed."""
    journal.put("a", score(DUE), HELD._replace(score=score(DUE)))
    for name in ("1-0", "2-0"):
        journal.put_letter(LETTER, name)
    journal.raw.rpush(journal.journal, "somebody else's")
    before = [journal.raw.dump(key) for key in journal.keys]
    with pytest.raises(WrongKeyType, match=rf"{journal.journal} holds a list, not a stream"):
        await harm.CALLS[verb](journal)
    assert [journal.raw.dump(key) for key in journal.keys] == before
    journal.keep = 0
    await harm.CALLS[verb](journal)


@pytest.mark.parametrize("verb", WRITING)
async def test_a_journal_that_may_not_be_written(journal: Bench, verb: str) -> None:
    """A user without a right to the key: all is refused, nothing is half done, and nothing is lost."""
    journal.put("a", score(DUE), HELD._replace(score=score(DUE)))
    for name in ("1-0", "2-0"):
        journal.put_letter(LETTER, name)
    before = journal.state()
    own_keys = [f"~{key}*" for key in journal.keys[:5]]
    journal.raw.execute_command("ACL", "SETUSER", "default", "resetkeys", *own_keys)
    try:
        with pytest.raises(StoreRefused):
            await harm.CALLS[verb](journal)
    finally:
        journal.raw.execute_command("ACL", "SETUSER", "default", "allkeys")
    assert journal.state() == before


async def test_a_right_that_only_a_journal_needs(journal: Bench) -> None:
    """A user from before there were journals: no dead letter, trim or resume goes before the refusal."""
    journal.put("lapsed", score(DUE), HELD._replace(score=score(DUE), received=1))
    journal.put("held", DEADLINE, HELD)
    for name in ("1-0", "2-0"):
        journal.put_letter(LETTER, name)
    journal.raw.set(journal.pause, NOW)  # a pause that is over
    before = journal.state()
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: journal.claim(N2, limits=KEPT),
        lambda: journal.settle("held", N1, Verb.REJECT, limits=KEPT),
        lambda: journal.topics.trim(journal.topic, max_count=1, max_age=0),
        lambda: journal.topics.resume(journal.topic),
    )
    journal.raw.execute_command("ACL", "SETUSER", "default", "-xrevrange")
    try:
        for call in calls:
            with pytest.raises(StoreRefused):
                await call()
    finally:
        journal.raw.execute_command("ACL", "SETUSER", "default", "+xrevrange")
    assert (journal.state(), await records(journal)) == (before, [])


async def test_an_entry_of_somebody_else(journal: Bench) -> None:
    """It harms no timer. The numbers begin anew, which readers see; and it can't be read."""
    journal.raw.xadd(journal.journal, {"x": "y"})
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW)])
    reader = JournalReader(journal.redis)
    (batch,) = await reader.newest(journal.topic)
    assert (batch.first, batch.records) == (1, (JournalRecord(RecordKind.SCHEDULED, "a", due=NOW),))
    with pytest.raises(StoreRefused, match="of the journal"):
        await reader.read(journal.topic)
    journal.keep = 1
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW)])
    assert [batch.first for batch in await reader.read(journal.topic)] == [2]


async def test_a_journal_that_was_removed(journal: Bench) -> None:
    """Its numbers begin anew."""
    for _ in range(2):
        await journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW)])
    journal.raw.delete(journal.journal)
    await journal.store.schedule(journal.topic, [NewTimer("a", b"", NOW)])
    (batch,) = await journal.batches()
    assert batch.lost_since(2) == -2


# ------------------------------------------------------------------------------ reading


async def test_pages(journal: Bench) -> None:
    """Behind an entry, at most so many; and the newest."""
    for n in range(5):
        await journal.store.schedule(journal.topic, [NewTimer(f"t{n}", b"", NOW)])
    reader = JournalReader(journal.redis)
    first = await reader.read(journal.topic, count=3)
    rest = await reader.read(journal.topic, first[-1].entry, count=3)
    assert [batch.first for batch in first + rest] == [1, 2, 3, 4, 5]
    assert await reader.newest(journal.topic, count=2) == rest
    assert await reader.read(journal.topic, rest[-1].entry) == []
    with pytest.raises(InvalidField, match="from"):
        await reader.read(journal.topic, "x")


async def test_an_error_takes_few_bytes(journal: Bench) -> None:
    """Whatever an application says, its journal does not grow by it."""
    await journal.schedule("a", DUE)
    await journal.claim(N1)
    await journal.settle("a", N1, Verb.NACK, retry_after=0, error="x" * 10_000)
    newest: Any = journal.raw.xrevrange(journal.journal, count=1)
    assert len(newest[0][1][b"b"]) < 400


async def test_what_it_costs_in_bytes(journal: Bench) -> None:
    """The life of a timer with an id of 36 bytes, in batches of 100: under 250 bytes."""
    names = [f"{n:036}" for n in range(100)]
    await journal.store.schedule(journal.topic, [NewTimer(name, b"", DUE) for name in names])
    await journal.claim(N1)
    await journal.store.settle(journal.topic, [end_of(name, N1, Verb.ACK) for name in names])
    entries: Any = journal.raw.xrange(journal.journal)
    assert sum(len(fields[b"b"]) for _, fields in entries) < 100 * 250
    assert journal.state() == EMPTY


async def test_the_same_without_a_journal(bench: Bench) -> None:
    """No key is made, and the same is done."""
    bench.put("a", score(DUE))
    await bench.claim(N1)
    assert bench.state() == alone("a", DEADLINE, HELD)
    assert not bench.raw.exists(bench.journal)
