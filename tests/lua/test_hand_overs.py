"""lua/move and the journal: what goes from one partition to another is recorded at both, once, however often
and however late a step comes, and no record stands without its change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from relay.core.errors import StoreFull, StoreRefused
from relay.core.journal import HandOver, JournalRecord, RecordKind
from relay.core.outcomes import Verb
from relay.journal.v1 import journal_pb2
from relay.store.journal.entries import decode
from relay.store.verbs import move
from tests.lua.test_move import DEADLINE, DUE, HELD, LETTER, NEW, OLD, back, leave, left, put, void
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY

BATCH = f"2:1>3:{NOW}"
"""What the first batch of partition 1 is called."""
SECOND_BATCH = f"2:1>3:{NOW + 1}"
LEFT, ARRIVED, RETURNED = RecordKind.LEFT, RecordKind.ARRIVED, RecordKind.RETURNED


@pytest.fixture
def journal(bench: Bench) -> Bench:
    """The bench, whose topic has a journal."""
    bench.keep = 10_000
    return bench


def places(bench: Bench) -> tuple[Bench, Bench]:
    """Where timers leave, and where they arrive."""
    return bench.at(OLD), bench.at(NEW)


async def told(place: Bench) -> list[tuple[RecordKind, str, str]]:
    """What a partition's journal says: each change's kind, timer and hand-over."""
    return [(each.kind, each.timer_id, each.hand_over) for each in await records(place)]


async def records(place: Bench) -> list[JournalRecord]:
    return [record for batch in await place.batches() for record in batch.records]


async def test_a_batch_is_told_of_at_both_places(journal: Bench) -> None:
    """As what left here and arrived there, under one name; each batch is one entry. What is done to a timer
    afterwards follows there."""
    old, new = places(journal)
    old.put("a", DEADLINE, HELD)
    old.put("b", DUE)
    await put(new, await leave(old, "a", "b", "gone"))
    await left(old)
    await new.settle("a", N1, Verb.ACK)
    assert await told(old) == [(LEFT, "a", BATCH), (LEFT, "b", BATCH)]
    assert await told(new) == [(ARRIVED, "a", BATCH), (ARRIVED, "b", BATCH), (RecordKind.ACKED, "a", "")]
    assert (len(await old.batches()), len(await new.batches())) == (1, 2)
    assert HandOver.parse(BATCH) == HandOver(2, 1, 3, NOW)


async def test_each_step_is_told_of_once(journal: Bench) -> None:
    """Though others help, replies are lost, and calls arrive late."""
    old, new = places(journal)
    for name in "ab":
        old.put(name, DUE)
    first = await leave(old, "a")
    assert await leave(old, "b") == first
    for _ in range(2):
        await put(new, first)
        await left(old)
    second = await leave(old, "b")
    for batch in (second, first, second):
        await put(new, batch)
        await void(new, batch[0])
        await back(old, first)
    await left(old, second[0])
    await back(old, second)
    assert await leave(old, "a") == []
    assert await told(old) == [(LEFT, "a", BATCH), (LEFT, "b", SECOND_BATCH)]
    assert await told(new) == [(ARRIVED, "a", BATCH), (ARRIVED, "b", SECOND_BATCH)]


async def test_a_return_is_told_of(journal: Bench) -> None:
    """Where it happens; the place that had no room says nothing. Then the timer leaves under another name."""
    old, new = places(journal)
    old.put("a", DUE)
    batch = await leave(old, "a")
    await void(new)
    for _ in range(2):
        await put(new, batch)
        await back(old, batch)
    await put(new, await leave(old, "a"))
    assert await told(old) == [(LEFT, "a", BATCH), (RETURNED, "a", BATCH), (LEFT, "a", SECOND_BATCH)]
    assert await told(new) == [(ARRIVED, "a", SECOND_BATCH)]


async def test_a_move_into_fewer_partitions(journal: Bench) -> None:
    """The name says from where to where."""
    old, new = journal.at("3 4 4 2"), journal.at("1 4 4 2")
    old.put("a", DUE)
    await put(new, await leave(old, "a"))
    name = f"4:3>1:{NOW}"
    assert (await told(old), await told(new)) == ([(LEFT, "a", name)], [(ARRIVED, "a", name)])


async def test_letters_are_told_of(journal: Bench) -> None:
    """With what they are called at both places."""
    old, new = places(journal)
    first, second = old.put_letter(LETTER), old.put_letter(LETTER._replace(timer_id="b"))
    await put(new, await leave(old, first, kind="d"))
    await left(old)
    await back(old, await leave(old, second, kind="d"))
    (arrived,), (returned,) = new.dead_ids(), old.dead_ids()
    assert await records(old) == [
        JournalRecord(LEFT, "dead", dead_id=first, hand_over=BATCH),
        JournalRecord(LEFT, "b", dead_id=second, hand_over=SECOND_BATCH),
        JournalRecord(RETURNED, "b", dead_id=returned, previous_dead_id=second, hand_over=SECOND_BATCH),
    ]
    assert await records(new) == [
        JournalRecord(ARRIVED, "dead", dead_id=arrived, previous_dead_id=first, hand_over=BATCH)
    ]


async def test_what_stands_has_not_arrived(journal: Bench) -> None:
    """The newer timer of an id stays, and the journal goes on with that one."""
    old, new = places(journal)
    for name in "ab":
        old.put(name, DUE)
    new.put("a", DEADLINE, HELD)
    await put(new, await leave(old, "a", "b"))
    assert await told(new) == [(ARRIVED, "b", BATCH)]


async def test_a_full_redis(journal: Bench) -> None:
    """It takes no batch in and records none, of timers or letters; what leaves and comes back is recorded."""
    old, new = places(journal)
    kinds: tuple[tuple[move.Kind, str], ...] = (("t", "a"), ("d", old.put_letter(LETTER)))
    old.put("a", DUE)
    before = old.state()
    for place in (old, new):
        await place.redis.call(
            move.mark(place.topic)
        )  # its first call by a layout may write when Redis is full
    with journal.full():
        for kind, name in kinds:
            batch = await leave(old, name, kind=kind)
            with pytest.raises(StoreFull):
                await put(new, batch)
            assert (new.state(), await told(new)) == (EMPTY, [])
            await void(new, batch[0])
            assert await back(old, batch) == b"1"
    assert old.state() == before
    assert [kind for kind, *_ in await told(old)] == [LEFT, RETURNED] * 2


def refused(place: Bench, *rules: str) -> Callable[[], None]:
    """Take rights away from the user; what is returned gives them back."""
    place.raw.execute_command("ACL", "SETUSER", "default", *rules)
    return lambda: place.raw.execute_command("ACL", "SETUSER", "default", "allkeys", "+@all") and None


@pytest.mark.parametrize("right", ["the key", "xadd", "xrevrange"])
@pytest.mark.parametrize("kind", ["t", "d"])
async def test_a_journal_that_may_not_be_written(journal: Bench, kind: move.Kind, right: str) -> None:
    """Nothing leaves, arrives or returns, and nothing is lost or there twice."""
    old, new = places(journal)
    old.put("a", DUE)
    name = "a" if kind == "t" else old.put_letter(LETTER)
    whole = [f"~{key}*" for place in (old, new) for key in place.keys[:5]] + ["~timers_move:*"]
    rules = ["resetkeys", *whole] if right == "the key" else [f"-{right}"]

    async def is_refused(call: Callable[[], Awaitable[object]]) -> None:
        states = old.state(), new.state()
        give_back = refused(journal, *rules)
        try:
            with pytest.raises(StoreRefused):
                await call()
        finally:
            give_back()
        assert (old.state(), new.state()) == states

    await is_refused(lambda: leave(old, name, kind=kind))
    assert await told(old) == []
    batch: Sequence[bytes] = await leave(old, name, kind=kind)
    await is_refused(lambda: put(new, batch))
    assert (new.state(), await told(new)) == (EMPTY, [])
    await is_refused(lambda: back(old, batch))
    assert await put(new, batch) != [b"VOID"]
    assert [each for each, *_ in await told(new)] == [ARRIVED]
    assert (await old.redis.call(move.mark(old.topic)))[1:] == batch, "it is on its way still"


async def test_a_return_that_may_not_be_written(journal: Bench) -> None:
    """The batch stays on its way."""
    old, new = places(journal)
    old.put("a", DUE)
    batch = await leave(old, "a")
    await void(new)
    give_back = refused(journal, "-xadd")
    try:
        with pytest.raises(StoreRefused):
            await back(old, batch)
    finally:
        give_back()
    assert (await old.redis.call(move.mark(old.topic)))[1:] == batch
    assert await back(old, batch) == b"1"
    assert [kind for kind, *_ in await told(old)] == [LEFT, RETURNED]


async def test_the_bound(journal: Bench) -> None:
    """Hand-overs count as what else a partition records."""
    journal.keep = 10
    old, new = places(journal)
    for n in range(15):
        old.put(f"t{n}", DUE)
    for n in range(15):
        batch = await leave(old, f"t{n}")
        await put(new, batch)
        await left(old, batch[0])
    assert [len(await told(place)) for place in (old, new)] == [10, 10]
    assert journal.trimmed == 10


async def test_what_it_costs_in_bytes(journal: Bench) -> None:
    """A timer with an id of 36 bytes, in batches of 100: 43 bytes where it leaves, and where it arrives."""
    old, new = places(journal)
    names = [f"{n:036}" for n in range(100)]
    for name in names:
        old.put(name, DUE)
    await put(new, await leave(old, *names))
    for place in (old, new):
        entries: Any = place.raw.xrange(place.journal)
        assert len(entries) == 1
        assert sum(len(fields[b"b"]) for _, fields in entries) <= 100 * 43


async def test_a_hand_over_that_can_t_be_read(journal: Bench) -> None:
    """The entry is refused by name, as one of a kind that this Relay doesn't know."""
    change = journal_pb2.Change(kind=journal_pb2.KIND_LEFT, timer_id=b"a")
    batch = journal_pb2.Batch(version=1, time=NOW, first=1, last=1, changes=[change])
    for text in ("", "2:1>3"):
        batch.hand_over = text
        with pytest.raises(
            StoreRefused, match=f"entry 5-0 .*: '{text}' is not a hand-over; one reads 2:1>3:"
        ):
            decode("5-0", batch.SerializeToString())
