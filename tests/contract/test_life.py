"""One life of a timer: the scripts, the store in memory and `relay.core.life` agree on every state and event.

The states are written into Redis as they are, and read from it whole: score, envelope, record, letter, and
what the journal has. A case is one timer in one state, and one call brings the event to all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest

from relay.core.journal import JournalRecord, Journals
from relay.core.life import Effect, Given, LifeEvent, LifeState, TimerLife, step
from relay.core.outcomes import ClaimRequest, Extension, Limits, Reason, Verdict
from relay.core.ports import MAX_PER_CALL, TimerStore
from relay.core.timers import Change, Changed, Content, Debounce, NewTimer
from relay.store.codec.lease_record import NO_NONCE
from relay.store.memory import MemoryStore, _Entry
from tests.contract.life_cases import (
    STARTS,
    Expected,
    Happening,
    Stands,
    happenings,
    record_of,
)
from tests.worlds.scripts.asking import LEASE, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import ENVELOPE, own, packed

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

CASES = list(happenings())
DEADLY = Limits(max_attempts=1, max_claims=5, keep=True, keep_expired=True)
EVENTS = list(dict.fromkeys(case.event for case in CASES))
Answer = Verdict | Reason | Changed | None


@pytest.fixture
async def bench(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[Bench]:
    async with Bench(valkey, keyspace.topic()) as bench:
        yield bench


async def asked(store: TimerStore, topic: str, happening: Happening, ids: Sequence[str]) -> list[Answer]:
    """Bring an event to timers, as the engine does; what the store answers of each."""
    event, given = happening.event, happening.given
    if event is LifeEvent.SCHEDULE:
        room = len(ids) - 1 if given.full else 0
        timers = [scheduled(timer_id, given) for timer_id in ids]
        results = await store.schedule(topic, timers, max_waiting=room)
        return [Changed(each.change, each.delivery_under_way) for each in results]
    if event is LifeEvent.CANCEL:
        return [*await store.cancel(topic, ids, given.condition)]
    if event is LifeEvent.RUN:
        return [*await store.run(topic, ids)]
    if event in (LifeEvent.RECEIPT, LifeEvent.EXTEND):
        received = event is LifeEvent.RECEIPT
        extensions = [Extension(timer_id, given.nonce, received) for timer_id in ids]
        return [*await store.extend(topic, extensions, lease=given.lease)]
    nonce = given.nonce or (b"" if isinstance(store, MemoryStore) else NO_NONCE)
    settlements = [
        happening.settlement(
            timer_id, nonce, NewTimer(timer_id, b"new", given.due, None, {"k": "v"}, "text/plain")
        )
        for timer_id in ids
    ]
    return [*await store.settle(topic, settlements, limits=given.limits)]


def scheduled(timer_id: str, given: Given) -> NewTimer:
    debounced = isinstance(given.intent, Debounce)
    return NewTimer(
        timer_id,
        b"new",
        None if debounced else given.due,
        given.due - given.now if debounced else None,
        {"k": "v"},
        "text/plain",
        given.expires or None,
        intent=given.intent,
        condition=given.condition,
        occurrence=given.occurrence,
    )


async def claimed(store: TimerStore, topic: str, given: Given) -> dict[str, Answer]:
    """What a claim takes, and who dies of it."""
    claim = await store.claim(
        topic,
        ClaimRequest(
            limit=MAX_PER_CALL, lease=given.lease, nonce=given.nonce, max_bytes=1 << 30, limits=given.limits
        ),
    )
    leased: dict[str, Answer] = dict.fromkeys(claim.timers.timer_ids, Verdict.OK)
    return leased | {timer_id: Reason(reason) for timer_id, reason in claim.deaths}


async def in_redis(bench: Bench, happening: Happening, expected: Sequence[Expected]) -> list[Any]:
    """Answer, state and journal of each timer: what the scripts make of it."""
    topic, given = bench.topic, happening.given
    bench.raw.delete(*bench.keys)
    bench.now = given.now
    seed(bench, {each.start.timer_id: each.before for each in expected})
    ids = [each.start.timer_id for each in expected]
    if happening.event is LifeEvent.CLAIM:
        told = await claimed(bench.store, topic, given)
        answers = [told.get(timer_id) for timer_id in ids]
    else:
        answers = await asked(bench.store, topic, happening, ids)
    state = bench.state()
    letters = {letter.timer_id: letter for letter in state.dead}
    stands = [
        Stands(at, stored, kept or state.limits.get(timer_id), letters.get(timer_id))
        for timer_id in ids
        for at, stored, kept in [state.of(timer_id)]
    ]
    journal = {record.timer_id: record for batch in await bench.batches() for record in batch.records}
    for timer_id, record in journal.items():
        assert bool(record.dead_id) == (timer_id in letters)
    noted = [journal.get(timer_id) for timer_id in ids]
    return list(zip(answers, stands, [bare(record) for record in noted], strict=True))


def seed(bench: Bench, timers: Mapping[str, Stands]) -> None:
    """Write them as they stand."""
    scores = {timer_id: each.score for timer_id, each in timers.items() if each.score is not None}
    envelopes = {timer_id: each.envelope for timer_id, each in timers.items() if each.envelope is not None}
    records = {timer_id: packed(each.record) for timer_id, each in timers.items() if each.record is not None}
    bench.raw.zadd(bench.timeline, scores)
    bench.raw.hset(bench.leases, mapping=cast("Any", records))
    if envelopes:
        bench.raw.hset(bench.payloads, mapping=cast("Any", envelopes))


def bare(record: JournalRecord | None) -> JournalRecord | None:
    return record and record._replace(dead_id="")


async def in_memory(happening: Happening, expected: Sequence[Expected]) -> list[Any]:
    """Answer, life and journal of each timer: what the store in memory makes of it."""
    store = MemoryStore(lambda: happening.given.now, journals=Journals(lambda _: 1_000_000))
    entries = store._topics["t"] = {}
    for each in expected:
        if each.start.life is not None:
            timer_id = each.start.timer_id
            entries[timer_id] = _Entry(timer_id, Content(b"payload"), each.start.life)
    ids = [each.start.timer_id for each in expected]
    if happening.event is LifeEvent.CLAIM:
        told = await claimed(store, "t", happening.given)
        answers = [told.get(timer_id) for timer_id in ids]
    else:
        answers = await asked(store, "t", happening, ids)
    journal = {record.timer_id: record for batch in store.journal("t") for record in batch.records}
    lives = [entries[timer_id].life if timer_id in entries else None for timer_id in ids]
    return list(zip(answers, lives, [journal.get(timer_id) for timer_id in ids], strict=True))


def living(life: TimerLife | None) -> TimerLife | None:
    return None if life is None or life.state is LifeState.DEAD else life


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.value)
async def test_redis(bench: Bench, event: LifeEvent) -> None:
    """The scripts do what the model says."""
    bench.keep = 1_000_000
    for happening in (case for case in CASES if case.event is event):
        expected = [Expected(start, happening) for start in STARTS]
        wanted = [(each.answer, each.after, each.record) for each in expected]
        compare(happening, expected, await in_redis(bench, happening, expected), wanted)


@pytest.mark.parametrize("event", [LifeEvent.SCHEDULE, LifeEvent.CLAIM, LifeEvent.CANCEL])
async def test_redis_without_a_journal(bench: Bench, event: LifeEvent) -> None:
    """These scripts take a shorter way then."""
    for happening in (case for case in CASES if case.event is event):
        expected = [Expected(start, happening) for start in STARTS]
        wanted = [(each.answer, each.after, None) for each in expected]
        compare(happening, expected, await in_redis(bench, happening, expected), wanted)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.value)
async def test_memory(event: LifeEvent) -> None:
    """The store in memory does, where there is a payload: it has no timers without."""
    for happening in (case for case in CASES if case.event is event and case.given.content):
        expected = [Expected(start, happening) for start in STARTS]
        wanted = [(each.answer, living(each.effect.after), each.named) for each in expected]
        compare(happening, expected, await in_memory(happening, expected), wanted)


async def test_redrive(bench: Bench) -> None:
    """The dead of a claim live again, with the occurrence that they had; and none of them twice."""
    bench.keep = 1_000_000
    claim = Happening(LifeEvent.CLAIM, Given(now=NOW, nonce=N2, lease=LEASE, limits=DEADLY))
    expected = [Expected(start, claim) for start in STARTS]
    await in_redis(bench, claim, expected)
    dead = {each.start.timer_id: each.effect.after for each in expected if each.after.letter}
    assert len(dead) > 100
    bench.now = NOW + 1
    names = {fields[b"timer_id"].decode(): dead_id for dead_id, fields in bench.stored_letters()}
    redriven = Given(now=NOW + 1)
    lives = {timer_id: step(life, LifeEvent.REDRIVE, redriven) for timer_id, life in dead.items()}
    answers = await bench.topics.redrive(bench.topic, [names[timer_id] for timer_id in dead])
    assert answers == [effect.answer for effect in lives.values()]
    state = bench.state()
    for timer_id, effect in lives.items():
        assert effect.after is not None
        assert state.of(timer_id) == (own(NOW + 1), ENVELOPE, record_of(effect.after))
    assert state.dead == ()
    _, *batches = await bench.batches()
    noted = {record.timer_id: bare(record) for batch in batches for record in batch.records}
    assert noted == {
        timer_id: effect.record and effect.record._replace(timer_id=timer_id)
        for timer_id, effect in lives.items()
    }
    assert step(None, LifeEvent.REDRIVE, redriven) == Effect(None, Change.GONE)
    assert await bench.topics.redrive(bench.topic, [*names.values()]) == [Change.GONE] * len(names)


def compare(happening: Happening, expected: Sequence[Expected], found: Any, wanted: Any) -> None:
    """Each timer's answer, state and journal; a few of those that differ are shown."""
    wrong = [
        f"{each.start.timer_id}\n    {happening}\n    found  {there}\n    wanted {want}"
        for each, there, want in zip(expected, found, wanted, strict=True)
        if there != want
    ]
    assert not wrong, f"{len(wrong)} of {len(expected)} differ:\n" + "\n".join(wrong[:3])
