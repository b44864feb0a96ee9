"""How an audit finds the timers, and the journals, of a topic that moves: `relay.store.partitions`."""

from __future__ import annotations

import pytest

from relay.core.journal import JournalBatch
from relay.core.partitions import Layout
from relay.store.journal.entries import decode
from relay.store.keys import KeyNames
from relay.store.partitions.journals import TopicJournal
from relay.store.partitions.present import present
from tests.lua.test_move import DEADLINE, DUE, HELD, NEW, OLD, leave, left, put
from tests.worlds.scripts.bench import Bench

PLAIN, OURS, NOWHERE = (True, False), (True, True), (False, False)
LEAVES = "a"
"""An id that goes from partition 1 of two to 3 of four."""


@pytest.fixture
def moving(bench: Bench) -> Layout:
    layout = Layout(bench.topic, 2, 2, 4)
    assert layout.partition(LEAVES).startswith(f"{bench.topic}#1 ")
    assert layout.partition(LEAVES).endswith(" leaving")
    bench.keep = 1000
    bench.raw.set(KeyNames().key("layout", f"{bench.topic}#0 2 2 4"), layout.text)
    return layout


async def test_a_timer_on_its_way(bench: Bench, moving: Layout) -> None:
    """It is there before it leaves, as long as it is on its way, and where it arrives; then nowhere."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put(LEAVES, DEADLINE, HELD)
    assert await present(bench.redis, moving, [LEAVES, "gone"]) == {LEAVES: OURS, "gone": NOWHERE}
    batch = await leave(old, LEAVES)
    assert await present(bench.redis, moving, [LEAVES]) == {LEAVES: PLAIN}
    await put(new, batch)
    await left(old, batch[0])
    assert await present(bench.redis, moving, [LEAVES]) == {LEAVES: OURS}
    await new.store.cancel(new.topic, [LEAVES])
    assert await present(bench.redis, moving, [LEAVES]) == {LEAVES: NOWHERE}


async def test_many_timers(bench: Bench, moving: Layout) -> None:
    """Of every partition, more than one call takes."""
    names = [f"t{n}" for n in range(1500)]
    for name in names[::2]:
        bench.at(moving.partition(name).partition("#")[2].removesuffix(" leaving")).put(name, DUE)
    found = await present(bench.redis, moving, names)
    assert list(found.values()).count(PLAIN) == 750
    assert all(found[name] == (PLAIN if n % 2 == 0 else NOWHERE) for n, name in enumerate(names))


async def read(bench: Bench) -> list[JournalBatch]:
    journal = TopicJournal(bench.redis, bench.topic)
    await journal.look()
    return [decode(raw.id, raw.batch) async for raw in journal.behind()]


async def test_journals_of_partitions_that_were_given_up(bench: Bench, moving: Layout) -> None:
    """They are read, however small the topic is by now, and the partitions of a move that began meanwhile."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put(LEAVES, DUE)
    await put(new, await leave(old, LEAVES))
    assert [batch.place[0] for batch in await read(bench)] == [1, 3]
    for number in range(4):  # each was emptied, or filled, by a layout
        bench.raw.set(KeyNames().key("layout", f"{bench.topic}#{number} 2 2 4"), "9 1")
    assert {batch.place[0] for batch in await read(bench)} == {1, 3}
    journal = TopicJournal(bench.redis, bench.topic)
    await journal.look()
    assert journal.count == 4
    bench.raw.set(KeyNames().key("layout", f"{bench.topic}#0 1 2"), "10 4 8")
    await journal.look()
    assert journal.count == 8
