"""Promotion to a ready list: what a worker finds, and what must not be lost on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from relay.core.errors import StoreError
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.timers import NewTimer
from relay.store.dispatch.promotions import LOOK, LOOKS, RedisPromotions
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1, N2, NOW
from tests.worlds.scripts.desk import Desk, read


async def test_a_due_timer_moves_whole(desk: Desk) -> None:
    """The entry has all of it, and timeline, payloads and leases have nothing any more."""
    await desk.schedule("a", NOW, b"\x00\xff\nbytes", headers={"k": 'grün/"1"'}, content_type="text/plain")
    promotion = await desk.promote()
    assert (promotion.promoted, promotion.next, promotion.now) == (1, None, NOW)
    (entry,) = desk.entries()
    assert entry.payload == b"\x00\xff\nbytes"
    assert entry.head == {
        "timer_id": "a",
        "occurrence_id": f"a/{N1.hex()}",
        "due_time": NOW / 1e6,
        "content_type": "text/plain",
        "headers": {"k": 'grün/"1"'},
    }
    assert desk.left() == (0, 0, 0)


async def test_how_late_it_is(desk: Desk) -> None:
    """Of each that goes to the list for the first time; not of one that a relay had leased before."""
    await desk.schedule("leased", NOW - 9 * SECOND)
    await desk.store.claim(desk.topic, ClaimRequest(limit=1, lease=1, nonce=N2, max_bytes=1000))
    await desk.schedule("a", NOW - SECOND)
    await desk.schedule("b")
    desk.later(0.5)
    promotion = await desk.promote()
    assert promotion.promoted == 3
    assert promotion.lateness == pytest.approx([1.5, 0.5], abs=1e-5)
    assert (await desk.promote(N2)).lateness == []


async def test_never_early(desk: Desk) -> None:
    """A microsecond before its due time a timer stays, and the answer says when to come again."""
    await desk.schedule("a", NOW + 1)
    promotion = await desk.promote()
    assert (promotion.promoted, promotion.next) == (0, NOW + 1)
    assert desk.entries() == []
    desk.now = NOW + 1
    assert (await desk.promote()).promoted == 1


async def test_the_earliest_is_taken_first(desk: Desk) -> None:
    """A worker's BRPOP gets them in the order of their due times, across calls too."""
    for name, due in (("c", NOW), ("a", NOW - 2), ("b", NOW - 1)):
        await desk.schedule(name, due)
    assert (await desk.promote(limit=2)).next == NOW
    assert (await desk.promote(N2, limit=2)).promoted == 1
    taken = [cast("bytes", desk.raw.rpop(desk.ready)) for _ in range(3)]
    assert [read(raw).timer_id for raw in taken] == ["a", "b", "c"]


async def test_two_relays_promote_once(desk: Desk) -> None:
    """However many promote at the same time, there is one entry for each timer."""
    timers = [NewTimer(f"t{n}", b"same", NOW) for n in range(1000)]
    await desk.store.schedule(desk.topic, timers[:500])
    await desk.store.schedule(desk.topic, timers[500:])
    await asyncio.gather(*(desk.promote(bytes([n]) * 16, limit=70) for n in range(40)))
    names = [entry.timer_id for entry in desk.entries()]
    assert sorted(names) == sorted(timer.timer_id for timer in timers)


async def test_equal_messages_arrive_twice(desk: Desk) -> None:
    """Also of one id, one after the other: they are two occurrences."""
    for nonce in (N1, N2):
        await desk.schedule("a", NOW, b"again")
        await desk.promote(nonce)
    first, second = desk.entries()
    assert (first.payload, second.payload) == (b"again", b"again")
    assert first.head["occurrence_id"] != second.head["occurrence_id"]


async def test_a_pause_holds(desk: Desk) -> None:
    """A paused topic keeps its timers; the answer says until when."""
    await desk.schedule("a")
    await desk.topics.pause(desk.topic, duration=SECOND)
    promotion = await desk.promote()
    assert (promotion.promoted, promotion.paused_until) == (0, NOW + SECOND)
    desk.later(1)
    assert (await desk.promote()).promoted == 1


async def test_the_expired_die(desk: Desk) -> None:
    """They reach no worker; what is kept of them is for the policy to say."""
    await desk.schedule("a", NOW - 5, expires=NOW)
    await desk.schedule("b", NOW - 5, expires=NOW + 1)
    promotion = await desk.promote()
    assert promotion.deaths == (("a", "expired"),)
    (entry,) = desk.entries()
    assert (entry.timer_id, entry.head["expires"]) == ("b", (NOW + 1) / 1e6)
    assert desk.left() == (0, 0, 0)


async def test_who_can_t_be_named_in_json_dies(desk: Desk) -> None:
    """An id that is not UTF-8 would break the worker that reads it: it is a dead letter."""
    desk.raw.zadd(desk.timeline, {b"\xff\xfe": NOW / 1e6})
    desk.raw.hset(desk.payloads, b"\xff\xfe", b"x")
    promotion = await desk.promote()
    assert [reason for _, reason in promotion.deaths] == ["unreadable"]
    assert desk.entries() == []
    assert desk.raw.xlen(desk.dead) == 1


async def test_a_timer_without_payload_is_parked(desk: Desk) -> None:
    """It may be a publisher that writes its keys apart: it has a grace period."""
    desk.raw.zadd(desk.timeline, {"a": NOW / 1e6})
    assert (await desk.promote()).parked == 1
    desk.later(30)
    desk.raw.hset(desk.payloads, "a", b"here it is")
    assert (await desk.promote()).promoted == 0
    desk.later(61)
    assert (await desk.promote()).promoted == 1
    assert desk.entries()[0].payload == b"here it is"


async def test_a_record_of_a_newer_relay(desk: Desk) -> None:
    """What it says can't be read here: the timer is the newer relays' to promote."""
    await desk.schedule("a")
    desk.raw.hset(desk.leases, "a", b"\x03\x01 and what else a newer relay may know")
    await desk.schedule("b")
    assert (await desk.promote()).promoted == 1
    assert [entry.timer_id for entry in desk.entries()] == ["b"]
    assert desk.raw.zscore(desk.timeline, "a") == NOW / 1e6
    assert desk.raw.hexists(desk.leases, "a")


async def test_an_orphan_is_removed(desk: Desk) -> None:
    """After the grace period it is none of anybody's."""
    desk.raw.zadd(desk.timeline, {"a": NOW / 1e6})
    await desk.promote()
    desk.later(61)
    assert (await desk.promote()).orphans == ("a",)
    assert desk.left() == (0, 0, 0)


async def test_the_lease_of_another_dispatch_lapses(desk: Desk) -> None:
    """A topic that was delivered from the timeline before: what is leased stays until the lease is over, and
    its late outcome changes nothing."""
    await desk.schedule("a")
    await desk.store.claim(desk.topic, ClaimRequest(limit=1, lease=SECOND, nonce=N2, max_bytes=1000))
    assert (await desk.promote()).promoted == 0
    desk.later(1.001)
    assert (await desk.promote()).promoted == 1
    assert desk.entries()[0].head["occurrence_id"] == f"a/{N2.hex()}"  # the work that was begun
    await desk.store.settle(desk.topic, [end_of("a", N2, Verb.NACK, retry_after=0)])
    assert desk.left() == (0, 0, 0)


async def test_a_promoted_timer_is_not_cancelled(desk: Desk) -> None:
    """Neither cancelled nor found: it is the worker's now."""
    await desk.schedule("a")
    await desk.promote()
    assert [changed.change.name for changed in await desk.store.cancel(desk.topic, ["a"])] == ["GONE"]
    assert await desk.store.get(desk.topic, "a") is None
    assert len(desk.entries()) == 1


async def test_a_full_redis_drains(desk: Desk) -> None:
    """At its maxmemory it lets timers through, all of them, and loses none."""
    await desk.schedule("a")
    desk.raw.config_set("maxmemory", 1)
    try:
        assert (await desk.promote()).promoted == 1
    finally:
        desk.raw.config_set("maxmemory", 0)
    assert [entry.timer_id for entry in desk.entries()] == ["a"]
    assert desk.left() == (0, 0, 0)


@asynccontextmanager
async def without(desk: Desk, right: str) -> AsyncIterator[RedisPromotions]:
    """As a user who may do all but this."""
    desk.raw.acl_setuser(
        "short", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=[f"-{right}"]
    )
    try:
        async with desk.connect(desk.server.url.replace("://", "://short:x@")) as server:
            yield RedisPromotions(server, lambda _: desk.policy)
    finally:
        desk.raw.acl_deluser("short")


@pytest.mark.parametrize("right", ["lpush", "zrem", "hdel", "xadd"])
async def test_a_right_that_is_missing_loses_nothing(desk: Desk, right: str) -> None:
    """Where one command is not permitted, the timer stays as it is, and nothing is pushed again and again."""
    desk.keep = 100 if right == "xadd" else 0
    await desk.schedule("a")
    async with without(desk, right) as promotions:
        for _ in range(2):
            with pytest.raises(StoreError):
                await promotions.promote(desk.topic, limit=10, nonce=N1)
    assert desk.entries() == []
    assert desk.left()[:2] == (1, 1)


async def test_who_dies_beside_one_that_is_not_pushed(desk: Desk) -> None:
    """There is no letter for each time that the push is refused."""
    await desk.schedule("a")
    desk.raw.zadd(desk.timeline, {b"\xff\xfe": NOW / 1e6})
    desk.raw.hset(desk.payloads, b"\xff\xfe", b"x")
    async with without(desk, "lpush") as promotions:
        for _ in range(2):
            with pytest.raises(StoreError):
                await promotions.promote(desk.topic, limit=10, nonce=N1)
    assert (desk.entries(), desk.raw.xlen(desk.dead), desk.left()[:2]) == ([], 0, (2, 2))
    promotion = await desk.promote()
    assert (promotion.promoted, len(promotion.deaths), desk.raw.xlen(desk.dead)) == (1, 1, 1)
    assert [entry.timer_id for entry in desk.entries()] == ["a"]


async def test_a_key_of_another_type(desk: Desk) -> None:
    """Somebody else's data under the list's name: the timers stay."""
    await desk.schedule("a")
    desk.raw.set(desk.ready, "theirs")
    with pytest.raises(StoreError, match="holds a string, not a list"):
        await desk.promote()
    assert desk.left()[:2] == (1, 1)


async def test_bounded_by_bytes(desk: Desk) -> None:
    """A batch ends before its payloads are too many; the first is taken whatever its size."""
    for n in range(3):
        await desk.schedule(f"t{n}", NOW - 3 + n, bytes(3 << 20))
    assert (await desk.promote()).promoted == 2  # 6 MiB, and with the first alone there was room
    assert (await desk.promote(N2)).promoted == 1


async def test_large_ones_behind_a_small_one(desk: Desk) -> None:
    """The first says nothing of those behind it: what may be large is moved by the few."""
    desk.policy = replace(desk.policy, max_payload_bytes=8 << 20)
    await desk.schedule("small", NOW - 60)
    for n in range(12):
        await desk.schedule(f"t{n:02}", NOW - 50 + n, bytes(1 << 20))
    assert (await desk.promote()).promoted == 5
    assert (await desk.promote(N2)).promoted == 4


async def test_a_sweep_is_told(desk: Desk) -> None:
    """What has left the timeline must not come back from the cold store: it is marked during a sweep."""
    await desk.schedule("a")
    await desk.promote()
    assert not desk.raw.exists(desk.marks)
    desk.raw.hset(desk.marks, "any", "0")
    await desk.schedule("b")
    await desk.promote(N2)
    assert desk.raw.hgetall(desk.marks).keys() == {b"any", b"tb"}


async def test_the_journal_says_so(desk: Desk) -> None:
    """A promoted timer has ended for the journal; it is not lost."""
    desk.keep = 1000
    await desk.schedule("a")
    await desk.promote()
    promoted = (await desk.records())[-1]
    assert (promoted.kind, promoted.timer_id, promoted.due) == (RecordKind.PROMOTED, "a", NOW)


# ------------------------------------------------------------------------- the processing list


def take(desk: Desk) -> bytes:
    """As a worker does that may die."""
    taken = desk.raw.rpoplpush(desk.ready, desk.processing)
    assert isinstance(taken, bytes)
    return taken


async def test_what_the_dead_have_left_comes_back(desk: Desk) -> None:
    """After the timeout, the same entry, and it is the next one to be taken."""
    desk.patience(10)
    await desk.schedule("a", NOW - 1)
    await desk.schedule("b")
    await desk.promote()
    entry = take(desk)
    assert (await desk.tidy()).returned == 0  # seen for the first time
    desk.later(9.9)
    assert (await desk.tidy()).returned == 0
    desk.later(10)
    assert (await desk.tidy()).returned == 1
    assert desk.raw.llen(desk.processing) == 0
    assert take(desk) == entry


async def test_an_entry_of_a_later_clock(desk: Desk) -> None:
    """Its time begins anew where the server's clock has stepped back since it was seen."""
    desk.patience(10)
    await desk.schedule("a", NOW - 1)
    await desk.promote()
    entry = take(desk)
    assert (await desk.tidy()).returned == 0
    desk.later(-3600)
    assert (await desk.tidy()).returned == 0
    desk.later(-3590)
    assert (await desk.tidy()).returned == 1
    assert take(desk) == entry


async def test_who_finishes_is_left_alone(desk: Desk) -> None:
    """Nothing comes back, and nothing is remembered of it."""
    desk.patience(10)
    await desk.schedule("a")
    await desk.promote()
    entry = take(desk)
    await desk.tidy()
    desk.raw.lrem(desk.processing, 1, entry.decode())
    desk.later(20)
    assert (await desk.tidy()).returned == 0
    assert (desk.raw.llen(desk.ready), desk.raw.hlen(desk.taken)) == (0, 0)


@pytest.mark.parametrize("right", ["rpush", "hset", "hdel", "lrem", "xadd"])
async def test_a_return_that_is_not_permitted(desk: Desk, right: str) -> None:
    """Where one command is not, the entries stay where they are: none is pushed or buried again and again."""
    desk.patience(10, attempts=2)
    await desk.schedule("a", NOW - 1)
    await desk.schedule("b")
    await desk.promote()
    for times in (1, 0):
        entry = read(take(desk))
        desk.raw.hset(desk.taken, entry.head["occurrence_id"], f"{NOW};{times}")
    processing, taken = desk.raw.lrange(desk.processing, 0, -1), desk.raw.hgetall(desk.taken)
    desk.later(11)
    async with without(desk, right) as promotions:
        for _ in range(2):
            with pytest.raises(StoreError):
                await promotions.tidy(desk.topic)
    assert (desk.raw.xlen(desk.dead), desk.raw.llen(desk.ready)) == (0, 0)
    assert (desk.raw.lrange(desk.processing, 0, -1), desk.raw.hgetall(desk.taken)) == (processing, taken)
    tidied = await desk.tidy()
    assert (tidied.returned, tidied.deaths) == (1, (("a", "attempts"),))


async def test_the_time_begins_anew(desk: Desk) -> None:
    """For the worker that takes what came back."""
    desk.patience(10)
    await desk.schedule("a")
    await desk.promote()
    take(desk)
    await desk.tidy()
    desk.later(10)
    await desk.tidy()
    take(desk)
    desk.later(11)
    assert (await desk.tidy()).returned == 0
    desk.later(20.9)
    assert (await desk.tidy()).returned == 0
    desk.later(21)
    assert (await desk.tidy()).returned == 1


async def test_what_kills_every_worker_dies(desk: Desk) -> None:
    """After max_attempts: a dead letter with all of it, which can be redriven."""
    desk.patience(10, attempts=2)
    await desk.schedule("a", NOW, b"poison", headers={"k": "v"}, content_type="text/plain")
    await desk.promote()
    tidied = []
    for begin in (0, 20):
        take(desk)
        desk.later(begin)
        tidied.append(await desk.tidy())
        desk.later(begin + 10)
        tidied.append(await desk.tidy())
    assert [each.deaths for each in tidied] == [(), (), (), (("a", "attempts"),)]
    assert (desk.raw.llen(desk.ready), desk.raw.llen(desk.processing), desk.raw.hlen(desk.taken)) == (0, 0, 0)
    page = await desk.topics.dead_page(desk.topic, limit=10, cursor="")
    letter = await desk.topics.dead_letter(desk.topic, page.letters[0].dead_id)
    assert letter is not None
    assert (letter.timer_id, letter.attempts, letter.payload) == ("a", 2, b"poison")
    assert (letter.headers, letter.content_type) == ({"k": "v"}, "text/plain")
    await desk.topics.redrive(desk.topic, [letter.dead_id])
    desk.later(31)
    assert (await desk.promote(N2)).promoted == 1
    assert desk.entries()[0].head["occurrence_id"] == letter.occurrence_id


async def test_large_entries_come_back_in_steps(desk: Desk) -> None:
    """So many bytes at a time as the server can look at; the oldest is the next to be taken."""
    desk.patience(10)
    for n in range(50):
        await desk.schedule(f"t{n:02}", NOW - 60 + n, bytes(500_000))
        await desk.promote()
        take(desk)
    assert (await desk.tidy()).returned == 0
    desk.later(10)
    assert (await desk.tidy()).returned == 48
    assert [entry.timer_id for entry in desk.entries()] == [f"t{n:02}" for n in range(48)]
    assert (await desk.tidy()).returned == 2
    assert desk.raw.llen(desk.processing) == 0
    assert desk.raw.llen(desk.ready) == 50


async def test_behind_other_peoples_entries(desk: Desk) -> None:
    """However many of them stand where the oldest are, ours come back: in one round, or in several."""
    desk.patience(10)
    await desk.schedule("a")
    await desk.promote()
    desk.raw.lpush(desk.processing, *("theirs" for _ in range(1200)))
    take(desk)
    await desk.tidy()
    desk.later(10)
    assert (await desk.tidy()).returned == 1
    take(desk)
    desk.raw.rpush(desk.processing, *("theirs" for _ in range(LOOK * LOOKS)))
    returned = []
    for seconds in (11, 12, 13, 24, 25, 26):
        desk.later(seconds)
        returned.append((await desk.tidy()).returned)
    assert sorted(returned) == [0, 0, 0, 0, 0, 1]
    assert desk.raw.llen(desk.processing) == 1200 + LOOK * LOOKS


@pytest.mark.slow
async def test_many_large_ones_of_other_peoples(desk: Desk) -> None:
    """They are passed over step by step."""
    desk.patience(10)
    await desk.schedule("a")
    await desk.promote()
    desk.raw.lpush(desk.processing, *(bytes(5 << 20) for _ in range(16)))
    take(desk)
    returned = []
    for seconds in (0, 1, 12, 13):
        desk.later(seconds)
        returned.append((await desk.tidy()).returned)
    assert sorted(returned) == [0, 0, 0, 1]


async def test_what_is_finished_among_many_is_forgotten(desk: Desk) -> None:
    """After a while, since never all of them are looked at in one step."""
    desk.patience(10)
    desk.raw.lpush(desk.processing, *("theirs" for _ in range(LOOK + 1)))
    desk.raw.hset(desk.taken, mapping={f"t{n}/{n:032x}": f"{NOW};0" for n in range(3 * LOOK)})
    desk.later(609)
    await desk.tidy()
    assert desk.raw.hlen(desk.taken) == 3 * LOOK
    desk.later(610)
    for _ in range(9):
        await desk.tidy()
    assert desk.raw.hlen(desk.taken) == 0


async def test_other_peoples_entries_are_left_alone(desk: Desk) -> None:
    """Whatever else stands in the processing list is not ours to move."""
    desk.patience(10)
    desk.raw.lpush(desk.processing, "theirs", '{"a": 1}', "\n", "[1]\nx", '{"timer_id": "a"}\nx')
    for seconds in (0, 20, 40):
        desk.later(seconds)
        assert (await desk.tidy()).returned == 0
    assert desk.raw.llen(desk.processing) == 5


@pytest.mark.parametrize(
    "theirs",
    [
        {"headers": ["a"]},
        {"headers": {"a": {}}},
        {"headers": {"a": "x" * 70_000}},
        {"content_type": 7},
        {"content_type": None},
        {"due_time": {}},
        {"occurrence_id": "short"},
    ],
)
async def test_an_entry_that_looks_like_ours(desk: Desk, theirs: dict[str, Any]) -> None:
    """It is given back and dies like one of ours, and does not keep those beside it from being given back."""
    desk.patience(10, attempts=1)
    entry = {"timer_id": "theirs", "occurrence_id": f"theirs/{'ab' * 16}", "due_time": 1, **theirs}
    desk.raw.lpush(desk.processing, f"{json.dumps(entry)}\npayload")
    await desk.schedule("a")
    await desk.promote()
    take(desk)
    await desk.tidy()
    desk.later(10)
    assert sorted((await desk.tidy()).deaths) == [("a", "attempts"), ("theirs", "attempts")]
    assert desk.raw.llen(desk.processing) == 0
    page = await desk.topics.dead_page(desk.topic, limit=10, cursor="")
    await desk.topics.redrive(desk.topic, [letter.dead_id for letter in page.letters])
    desk.later(20)
    assert (await desk.promote(N2)).promoted == 2


async def test_no_timeout_no_look(desk: Desk) -> None:
    """Without `processing_timeout` the processing list is the workers' own."""
    await desk.schedule("a")
    await desk.promote()
    take(desk)
    for seconds in (0, 1000):
        desk.later(seconds)
        await desk.tidy()
    assert desk.raw.llen(desk.processing) == 1
    assert desk.raw.exists(desk.taken) == 0
