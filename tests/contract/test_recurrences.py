"""What `RecurrenceStore` promises, of every store: it compares, and writes whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, nonces
from relay.core.partitions import Layout
from relay.core.ports import RecurrenceStore, TimerStore
from relay.core.recurring.recurrence import (
    CatchUp,
    LeftOut,
    Occurrence,
    Overlap,
    Past,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.rule import Fold, Gap, Rule
from relay.core.recurring.turns import LOOK_AGAIN
from relay.store.memory import MemoryStore
from relay.store.memory_recurrences import MemoryRecurrences
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from tests.servers import Kind, ServerPool
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from tests.keyspace import Keyspace

WANTED = Recurrence("r", Rule(every=60 * SECOND), b"\x00x", {"k": "ö"}, "a/b")
WHOLE = Recurrence(
    recurrence_id="r",
    rule=Rule(
        rrule="FREQ=DAILY",
        zone="Europe/Berlin",
        anchor=1,
        gap=Gap.SKIP,
        fold=Fold.BOTH,
        starts=2,
        ends=3,
        leave_out=("2026-12-24",),
    ),
    overlap=Overlap.BUFFER,
    catch_up=CatchUp.ALL,
    window=4,
    jitter=5,
    expires_after=6,
    max_runs=7,
)
STANDING = Standing(
    version=1,
    next=NOW + 60 * SECOND,
    settled=NOW,
    last="r@x",
    last_nominal=8,
    runs=9,
    left_out={LeftOut.GAP: 10},
    buffered=11,
    paused=12,
    note="why",
    further=13,
    tzdata="2026a",
    recent=(Past(14, "r@x", None, 15), Past(16, "", LeftOut.GAP, 17)),
)
FRESH = Standing(version=1, next=NOW, settled=NOW - 1)


@dataclass
class Scene:
    """A store of recurrences under test, that of its timers, a topic, and their clock."""

    store: RecurrenceStore
    timers: TimerStore
    topic: str
    bench: Bench | None
    now: int = NOW

    def move(self, seconds: int) -> None:
        self.now += seconds * SECOND
        if self.bench is not None:
            self.bench.now = self.now

    async def read(self, name: str = "r") -> StoredRecurrence:
        now, found = await self.store.get(self.topic, name)
        assert now == self.now
        assert found is not None
        return found

    async def keep(self, wanted: Recurrence = WANTED, standing: Standing = FRESH) -> StoredRecurrence:
        """Keep it where there is none."""
        assert await self.store.keep(self.topic, None, wanted, standing, self.now, reason="put")
        return await self.read(wanted.recurrence_id)

    async def turn(self, *turns: Turn, most: int = 0) -> list[Turned]:
        return await self.store.turn(self.topic, turns, self.now, max_waiting=most)

    async def ids(self) -> list[str]:
        page = await self.timers.list(Layout(self.topic), state=None, limit=500, cursor="")
        return [timer.timer_id for timer in page.timers]


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest, server_pool: ServerPool, keyspace: Keyspace
) -> AsyncIterator[Scene]:
    topic = keyspace.topic()
    kind: Kind | None = request.param
    if kind is None:
        timers = MemoryStore(lambda: made.now)
        made = Scene(MemoryRecurrences(timers, lambda: made.now), timers, topic, None)
        yield made
        return
    bench = Bench(server_pool.get(kind), topic)
    yield Scene(RedisRecurrences(bench.redis, Carrier(bench.redis)), bench.store, topic, bench)
    await bench.close()


def occurrence(number: int) -> Occurrence:
    return Occurrence(f"r@{number}", NOW + number * SECOND, {"relay-run": f"{number}"})


def going_on(kept: StoredRecurrence, *numbers: int, cancel: str = "") -> Turn:
    """A turn that makes these occurrences."""
    before = kept.standing
    last = f"r@{numbers[-1]}" if numbers else before.last
    following = (before.next or NOW) + 60 * SECOND
    standing = replace(before, last=last, runs=before.runs + len(numbers), next=following, settled=NOW)
    return Turn(kept, standing, [occurrence(number) for number in numbers], cancel)


async def test_what_is_kept_is_read_as_it_was(scene: Scene) -> None:
    """Every field; and whether its last occurrence has not ended."""
    kept = await scene.keep(WHOLE, STANDING)
    assert (kept.recurrence, kept.standing, kept.stands) == (WHOLE, STANDING, False)
    assert await scene.store.get(scene.topic, "other") == (scene.now, None)


async def test_a_change_compares(scene: Scene) -> None:
    """Whoever has read what somebody else has changed since changes nothing."""
    store, topic = scene.store, scene.topic
    first = await scene.keep()
    assert not await store.keep(topic, None, WANTED, FRESH, NOW, reason="put")
    other, second = replace(WANTED, payload=b"2"), replace(FRESH, version=2)
    assert await store.keep(topic, first, other, second, NOW, reason="put")
    assert not await store.keep(topic, first, WANTED, replace(FRESH, version=3), NOW, reason="put")
    assert not await store.remove(topic, first)
    kept = await scene.read()
    assert (kept.recurrence, kept.standing) == (other, second)
    assert await scene.turn(going_on(first, 1)) == [Turned.OTHER]
    assert await store.remove(topic, kept)
    assert not await store.remove(topic, kept)
    assert not await store.keep(topic, kept, other, second, NOW, reason="put")
    assert await scene.turn(going_on(kept, 1)) == [Turned.OTHER]
    assert (await store.get(topic, "r"), await scene.ids()) == ((NOW, None), [])


async def test_a_turn_makes_timers_of_its_occurrences(scene: Scene) -> None:
    """With what the recurrence says, in the order of their due times; and it is made once."""
    kept = await scene.keep(replace(WANTED, expires_after=30 * SECOND))
    made = going_on(kept, 1, 2)
    assert await scene.turn(made) == [Turned.DONE]
    assert await scene.turn(made) == [Turned.OTHER]
    assert await scene.ids() == ["r@1", "r@2"]
    found = await scene.timers.get(scene.topic, "r@1")
    assert found is not None
    assert (found.payload, found.headers, found.content_type) == (b"\x00x", {"relay-run": "1"}, "a/b")
    assert (found.due, found.attempts) == (NOW + SECOND, 0)
    after = await scene.read()
    assert (after.standing, after.stands) == (made.standing, True)
    scene.move(31)
    request = ClaimRequest(limit=5, lease=SECOND, nonce=nonces()(), max_bytes=1 << 20)
    claim = await scene.timers.claim(scene.topic, request)
    assert ([timer.timer_id for timer in claim.timers], claim.deaths) == (["r@2"], (("r@1", "expired"),))


async def test_a_turn_compares_whether_the_last_one_has_ended(scene: Scene) -> None:
    """Either way it ends between reading and writing, the turn was computed for something else."""
    kept = await scene.keep()
    await scene.turn(going_on(kept, 1))
    standing = await scene.read()
    await scene.timers.cancel(scene.topic, ["r@1"])
    assert await scene.turn(going_on(standing, 2)) == [Turned.OTHER]
    ended = await scene.read()
    assert (standing.stands, ended.stands) == (True, False)
    assert await scene.turn(going_on(ended, 2)) == [Turned.DONE]
    assert await scene.ids() == ["r@2"]


async def test_a_timer_that_has_the_name_already_stays(scene: Scene) -> None:
    kept = await scene.keep()
    await scene.turn(going_on(kept, 1))
    again = await scene.read()
    later = replace(going_on(again, 1, 2), occurrences=[Occurrence("r@1", NOW, {}), occurrence(2)])
    assert await scene.turn(later, most=2) == [Turned.DONE], "it needs no further room"
    found = await scene.timers.get(scene.topic, "r@1")
    assert found is not None
    assert (found.due, await scene.ids()) == (NOW + SECOND, ["r@1", "r@2"])


async def test_a_full_topic_turns_later(scene: Scene) -> None:
    """Nothing of it is written then; the one that is cancelled makes room, and others of the call go on."""
    kept = await scene.keep()
    small = await scene.keep(replace(WANTED, recurrence_id="s"))
    nothing = replace(small.standing, version=2)
    assert await scene.turn(going_on(kept, 1, 2), Turn(small, nothing), most=1) == [Turned.FULL, Turned.DONE]
    assert (await scene.read()).standing == kept.standing
    assert (await scene.read("s")).standing == nothing
    assert await scene.ids() == []
    assert await scene.turn(going_on(kept, 1), most=1) == [Turned.DONE]
    second = await scene.read()
    assert await scene.turn(going_on(second, 2), most=1) == [Turned.FULL]
    assert await scene.turn(going_on(second, 2, cancel="r@1"), most=1) == [Turned.DONE]
    assert await scene.ids() == ["r@2"]
    third = await scene.read()
    assert await scene.turn(going_on(third, 3, cancel="r@1"), most=1) == [Turned.FULL], "it has ended"


async def test_what_is_to_be_looked_at(scene: Scene) -> None:
    """The first ones first, as many as are asked for; and when to look at the next one."""
    for name, standing in (
        ("later", replace(FRESH, next=NOW + 60 * SECOND)),
        ("second", replace(FRESH, next=NOW - SECOND)),
        ("first", replace(FRESH, next=NOW - 2 * SECOND)),
        ("ended", replace(FRESH, next=None)),
        ("third", FRESH),
        ("keeps", replace(FRESH, next=NOW + 60 * SECOND, buffered=NOW)),
    ):
        await scene.keep(replace(WANTED, recurrence_id=name), standing)

    async def due(limit: int, skip: int = 0) -> tuple[list[str], int | None]:
        found = await scene.store.due(scene.topic, limit, skip=skip)
        assert (found.now, found.unread) in ((scene.now, ()), (scene.now, []))
        return [each.recurrence.recurrence_id for each in found.kept], found.next

    assert await due(2) == (["first", "second"], NOW)
    assert await due(9) == (["first", "second", "third"], NOW + LOOK_AGAIN)
    assert await due(1, skip=1) == (["second"], NOW)
    assert await due(9, skip=2) == (["third"], NOW + LOOK_AGAIN)
    assert await due(9, skip=3) == ([], NOW + LOOK_AGAIN)
    scene.move(1)
    assert await due(9) == (["first", "second", "third", "keeps"], NOW + 60 * SECOND)
    scene.move(59)
    assert await due(9) == (["first", "second", "third", "keeps", "later"], None)
    assert await due(9, skip=5) == ([], None)


async def test_pages_go_by_the_bytes_of_ids(scene: Scene) -> None:
    """All of them once, whatever comes and goes between two pages."""
    names = ["a", "b-1", "b-ü", "b-z", "ba", "c"]
    for name in names:
        await scene.keep(replace(WANTED, recurrence_id=name))
    assert await pages(scene, "", 2) == [["a", "b-1"], ["b-z", "b-ü"], ["ba", "c"]]
    assert await pages(scene, "b-", 2) == [["b-1", "b-z"], ["b-ü"]]
    assert await pages(scene, "x", 2) == [[]]
    first = await scene.store.page(Layout(scene.topic), prefix="", limit=2, cursor="")
    await scene.store.remove(scene.topic, first.kept[1])
    await scene.keep(replace(WANTED, recurrence_id="b-2"))
    second = await scene.store.page(Layout(scene.topic), prefix="", limit=2, cursor=first.cursor)
    assert [each.recurrence.recurrence_id for each in second.kept] == ["b-2", "b-z"]
    with pytest.raises(InvalidField, match="page_token: is not one that a page gave"):
        await scene.store.page(Layout(scene.topic), prefix="", limit=2, cursor="§")


async def pages(scene: Scene, prefix: str, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = ""
    while cursor or not found:
        page = await scene.store.page(Layout(scene.topic), prefix=prefix, limit=limit, cursor=cursor)
        found.append([each.recurrence.recurrence_id for each in page.kept])
        assert page.cursor != cursor or not cursor, "the same page for ever"
        cursor = page.cursor
    return found
