"""lua/recur: a turn is written only if the recurrence and its last occurrence are as they were read, whole or
not at all; changes compare in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from relay.core.errors import StoreFull, StoreRefused, WrongKeyType
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Verb
from relay.core.partitions import Layout
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import Overlap, Recurrence, Standing, StoredRecurrence, Turn, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import turn
from relay.core.timers import Change, NewTimer
from relay.store.keys import RECURRENCES, KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.verbs import move, recur
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import score

MINUTE = 60 * SECOND
NAME = "r@2026-01-01T00:00:00Z"
SECOND_NAME = "r@2026-01-01T00:01:00Z"


def store(bench: Bench) -> RedisRecurrences:
    return RedisRecurrences(bench.redis, Carrier(bench.redis))


async def put(bench: Bench, name: str = "r", first: int = NOW, **wanted: object) -> StoredRecurrence:
    """Keep a recurrence of every minute whose next instant is given, and read it."""
    recurrence = Recurrence(name, Rule(every=MINUTE), b"x", **wanted)  # type: ignore[arg-type]
    standing = Standing(version=1, next=first)
    assert await store(bench).keep(bench.topic, None, recurrence, standing, bench.now, reason="put")
    return await read(bench, name)


async def read(bench: Bench, name: str = "r") -> StoredRecurrence:
    _, kept = await store(bench).get(bench.topic, name)
    assert kept is not None
    return kept


def turned(kept: StoredRecurrence, now: int = NOW) -> Turn:
    since = kept.standing.next
    nominals: Iterable[Nominal] = () if since is None else (Nominal(since + n * MINUTE, 0) for n in range(9))
    return turn(kept, nominals, now, "2026a")


async def write(bench: Bench, *turns: Turn, most: int = 0) -> list[Turned]:
    return await store(bench).turn(bench.topic, turns, bench.now, max_waiting=most)


# ------------------------------------------------------------------------------------ turns


async def test_a_turn(bench: Bench) -> None:
    """The occurrence is an ordinary timer, and the recurrence stands at its next instant."""
    made = turned(await put(bench))
    assert await write(bench, made) == [Turned.DONE]
    stored = await bench.store.get(bench.topic, NAME)
    assert stored is not None
    assert (stored.due, stored.payload, stored.headers["relay-run"]) == (NOW, b"x", "1")
    assert (await read(bench)).standing == made.standing
    due = await store(bench).due(bench.topic, 10)
    assert (due.now, due.next, due.kept) == (NOW, NOW + MINUTE, [])


async def test_two_relays_turn(bench: Bench) -> None:
    """Both have read the same: the second one changes nothing."""
    kept = await put(bench, overlap=Overlap.ALLOW)
    assert await write(bench, turned(kept)) == [Turned.DONE]
    before = bench.state()
    assert await write(bench, turned(kept, NOW + MINUTE)) == [Turned.OTHER]
    assert bench.state() == before
    assert (await read(bench)).standing.runs == 1


async def test_a_late_turn_of_what_has_run(bench: Bench) -> None:
    """The occurrence has come and has been acknowledged: the late turn does not bring it again."""
    kept = await put(bench)
    assert await write(bench, turned(kept)) == [Turned.DONE]
    await bench.claim()
    await bench.store.settle(bench.topic, [end_of(NAME, N1, Verb.ACK)])
    assert await write(bench, turned(kept)) == [Turned.OTHER]
    assert await bench.store.get(bench.topic, NAME) is None


@pytest.mark.parametrize("change", ["pause", "rule", "remove"])
async def test_a_change_while_a_turn_is_computed(bench: Bench, change: str) -> None:
    """The turn from before changes nothing."""
    kept = await put(bench)
    made = turned(kept)
    if change == "remove":
        assert await store(bench).remove(bench.topic, kept)
    else:
        paused = replace(kept.standing, version=2, paused=NOW if change == "pause" else None)
        assert await store(bench).keep(bench.topic, kept, kept.recurrence, paused, NOW, reason=change)
    assert await write(bench, made) == [Turned.OTHER]
    assert await bench.store.get(bench.topic, NAME) is None


async def test_the_last_one_ends_while_a_turn_is_computed(bench: Bench) -> None:
    """The turn would leave out what nothing is in the way of any more: it is computed anew."""
    await write(bench, turned(await put(bench)))
    bench.now = NOW + MINUTE
    made = turned(await read(bench), bench.now)
    assert made.occurrences == []
    await bench.store.cancel(bench.topic, [NAME])
    assert await write(bench, made) == [Turned.OTHER]
    again = turned(await read(bench), bench.now)
    assert [each.timer_id for each in again.occurrences] == [SECOND_NAME]
    assert await write(bench, again) == [Turned.DONE]


async def test_the_last_one_comes_back_while_a_turn_is_computed(bench: Bench) -> None:
    await write(bench, turned(await put(bench)))
    await bench.store.cancel(bench.topic, [NAME])
    bench.now = NOW + MINUTE
    made = turned(await read(bench), bench.now)
    await bench.store.schedule(bench.topic, [NewTimer(NAME, b"by hand", NOW)])
    assert await write(bench, made) == [Turned.OTHER]


async def test_the_one_before_is_cancelled(bench: Bench) -> None:
    """With its lease, so that the outcome of a delivery that is under way is void."""
    await write(bench, turned(await put(bench, overlap=Overlap.CANCEL)))
    await bench.claim()
    bench.now = NOW + MINUTE
    assert await write(bench, turned(await read(bench), bench.now)) == [Turned.DONE]
    assert await bench.store.get(bench.topic, NAME) is None
    assert bench.raw.hlen(bench.leases) == 0
    assert bench.raw.hkeys(bench.payloads) == [SECOND_NAME.encode()]


async def test_an_occurrence_that_is_there_already(bench: Bench) -> None:
    """Somebody has scheduled a timer of its name: it stays."""
    kept = await put(bench)
    await bench.store.schedule(bench.topic, [NewTimer(NAME, b"by hand", NOW + 5)])
    assert await write(bench, turned(kept)) == [Turned.DONE]
    stored = await bench.store.get(bench.topic, NAME)
    assert stored is not None
    assert (stored.payload, stored.due) == (b"by hand", NOW + 5)


async def test_what_is_left_of_a_timer_of_the_name(bench: Bench) -> None:
    """A record without a timer does not count for the occurrence."""
    kept = await put(bench)
    await bench.store.schedule(bench.topic, [NewTimer(NAME, b"old", NOW)])
    await bench.claim()
    bench.raw.zrem(bench.timeline, NAME)
    assert await write(bench, turned(kept)) == [Turned.DONE]
    assert bench.raw.hget(bench.leases, NAME) is None


async def test_it_expires(bench: Bench) -> None:
    await write(bench, turned(await put(bench, expires_after=SECOND)))
    bench.now = NOW + SECOND
    claim = await bench.claim()
    assert (len(claim.timers), claim.deaths) == (0, ((NAME, "expired"),))


async def test_a_full_topic(bench: Bench) -> None:
    """The turn waits, whole; one that needs no room is done."""
    await bench.store.schedule(bench.topic, [NewTimer("other", b"", NOW + MINUTE)])
    kept = await put(bench)
    paused = await put(bench, "p")
    standing = replace(paused.standing, version=2, paused=NOW)
    assert await store(bench).keep(bench.topic, paused, paused.recurrence, standing, NOW, reason="paused")
    paused = await read(bench, "p")
    assert await write(bench, turned(kept), turned(paused), most=1) == [Turned.FULL, Turned.DONE]
    assert (await read(bench)).standing == kept.standing
    assert await bench.store.get(bench.topic, NAME) is None


async def test_a_full_topic_where_one_is_cancelled(bench: Bench) -> None:
    """It makes room for the one that comes in its place."""
    assert await write(bench, turned(await put(bench, overlap=Overlap.CANCEL)), most=1) == [Turned.DONE]
    bench.now = NOW + MINUTE
    assert await write(bench, turned(await read(bench), bench.now), most=1) == [Turned.DONE]
    assert bench.raw.zrange(bench.timeline, 0, -1) == [SECOND_NAME.encode()]


async def test_a_full_server(bench: Bench) -> None:
    """Nothing is written, so that the turn can be made again."""
    kept = await put(bench)
    with bench.full(), pytest.raises(StoreFull):
        await write(bench, turned(kept))
    assert (await read(bench)).standing == kept.standing
    assert await bench.store.get(bench.topic, NAME) is None


async def test_a_turn_wakes_pollers(bench: Bench) -> None:
    """By the due time of the occurrence, if nothing is due earlier."""
    kept = await put(bench)
    with bench.listening() as heard:
        await write(bench, turned(kept))
        assert heard.heard() == [float(score(NOW))]


async def test_turns_in_the_journal(bench: Bench) -> None:
    """Which instants a turn has gone through, and what came of them; before the occurrences."""
    bench.keep = 100
    kept = await put(bench)
    bench.now = NOW + MINUTE
    made = turned(kept, bench.now)
    await write(bench, made)
    put_, ticked = (await bench.batches())[-2:]
    (changed,) = put_.records
    assert (changed.kind, changed.timer_id, changed.due, changed.reason) == (
        RecordKind.CHANGED,
        "r",
        NOW,
        "put",
    )
    first, second = ticked.records
    assert (first.kind, first.timer_id) == (RecordKind.TICKED, "r")
    assert (first.previous_due, first.due) == (NOW, NOW + 2 * MINUTE)
    assert (first.count, first.reason) == (1, "catch_up=1")
    assert (second.kind, second.timer_id) == (RecordKind.SCHEDULED, SECOND_NAME)
    assert await store(bench).remove(bench.topic, await read(bench))
    (removed,) = (await bench.batches())[-1].records
    assert (removed.kind, removed.due, removed.reason) == (RecordKind.CHANGED, 0, "removed")


async def test_looks_are_not_in_the_journal(bench: Bench) -> None:
    """One that keeps an occurrence back is looked at each second: that is not worth a record."""
    bench.keep = 100
    kept = await put(bench, overlap=Overlap.BUFFER)
    assert await write(bench, turned(kept)) == [Turned.DONE]
    now = NOW + MINUTE
    assert await write(bench, turned(await read(bench), now)) == [Turned.DONE]
    before = await bench.batches()
    for second in range(1, 4):
        assert await write(bench, turned(await read(bench), now + second * SECOND)) == [Turned.DONE]
    assert await bench.batches() == before


async def test_a_cancel_in_the_journal(bench: Bench) -> None:
    bench.keep = 100
    await write(bench, turned(await put(bench, overlap=Overlap.CANCEL)))
    bench.now = NOW + MINUTE
    await write(bench, turned(await read(bench), bench.now))
    kinds = [(each.kind, each.timer_id) for each in (await bench.batches())[-1].records]
    assert (RecordKind.CANCELLED, NAME) in kinds


# ---------------------------------------------------------------------------------- changes


async def test_two_who_change_one(bench: Bench) -> None:
    """The second has to begin again: what it read is over."""
    kept = await put(bench)
    one = replace(kept.standing, version=2, note="one")
    other = replace(kept.standing, version=2, note="other")
    assert await store(bench).keep(bench.topic, kept, kept.recurrence, one, NOW, reason="put")
    assert not await store(bench).keep(bench.topic, kept, kept.recurrence, other, NOW, reason="put")
    assert not await store(bench).remove(bench.topic, kept)
    assert (await read(bench)).standing.note == "one"


async def test_two_who_create_one(bench: Bench) -> None:
    kept = await put(bench)
    assert not await store(bench).keep(bench.topic, None, kept.recurrence, kept.standing, NOW, reason="put")


async def test_one_that_has_lost_its_rule_can_be_put(bench: Bench) -> None:
    """Its standing by itself is of nothing that a call could have read."""
    kept = await put(bench)
    bench.raw.hdel(KeyNames().key("rules", bench.topic), "r")
    assert (await store(bench).get(bench.topic, "r"))[1] is None
    assert await store(bench).keep(bench.topic, None, kept.recurrence, kept.standing, NOW, reason="put")
    assert (await read(bench)).recurrence == kept.recurrence


async def test_removed(bench: Bench) -> None:
    """Nothing is left of it, but for its occurrences."""
    kept = await put(bench)
    await write(bench, turned(kept))
    assert await store(bench).remove(bench.topic, await read(bench))
    assert (await store(bench).get(bench.topic, "r"))[1] is None
    keys = [KeyNames().key(name, bench.topic) for name in RECURRENCES]
    assert bench.raw.exists(*keys) == 0
    assert await bench.store.get(bench.topic, NAME) is not None


async def test_a_recurrence_moves(bench: Bench) -> None:
    """As it is, from one partition to another; it is in one of them, or on its way."""
    old, new = bench.at("1 2 2 4"), bench.at("3 2 2 4")
    kept = await put(bench.at("1 1 2"))
    batch = await bench.redis.call(move.leave(old.topic, "c", ["r"]))
    assert (await store(bench).get(old.topic, "r"))[1] is None
    assert (await bench.redis.call(move.put(new.topic, batch)))[0] == b"PUT"
    await bench.redis.call(move.left(old.topic, batch[0]))
    _, there = await store(bench).get(new.topic, "r")
    assert there == kept
    assert [each.recurrence.recurrence_id for each in (await store(bench).due(new.topic, 9)).kept] == ["r"]
    page = await store(bench)._page(new.topic, 9, b"-", b"+")
    assert page == ([kept], None)


async def test_a_recurrence_moves_that_is_there_already(bench: Bench) -> None:
    """After a failover its old partition may show it again as it was; instants are not ticked twice."""
    old, new = bench.at("1 2 2 4"), bench.at("3 2 2 4")
    await put(bench.at("1 1 2"))
    batch = await bench.redis.call(move.leave(old.topic, "c", ["r"]))
    assert (await bench.redis.call(move.put(new.topic, batch)))[0] == b"PUT"
    made = turned(await read(new))
    assert await write(new, made) == [Turned.DONE]
    later = [b"%d" % (int(batch[0]) + 1), *batch[1:]]
    assert (await bench.redis.call(move.put(new.topic, later)))[0] == b"PUT"
    assert (await read(new)).standing == made.standing
    due = await store(bench).due(new.topic, 9)
    assert (due.next, due.kept) == (made.standing.next, [])


async def test_a_recurrence_moves_that_lacks_a_part(bench: Bench) -> None:
    """Somebody has removed where it stands, and when to look at it. It is looked at where it comes to, so
    that a relay tells that it can't be read."""
    old, new = bench.at("1 2 2 4"), bench.at("3 2 2 4")
    await put(bench.at("1 1 2"))
    for name, remove in (("standings", "HDEL"), ("ticks", "ZREM")):
        bench.raw.execute_command(remove, KeyNames().key(name, old.topic), "r")
    batch = await bench.redis.call(move.leave(old.topic, "c", ["r"]))
    try:
        (word,) = await bench.redis.call(move.put(new.topic, batch))
    except StoreRefused as refused:
        raise AssertionError("the move goes no further") from refused
    due = await store(bench).due(new.topic, 9)
    assert (word, due.kept, due.unread) == (b"PUT", [], ["r"])


# ---------------------------------------------------------------------------------- reading


async def test_what_is_due(bench: Bench) -> None:
    """The first ones first, at most so many; and when the next one is."""
    for n in range(5):
        await put(bench, f"r{n}", NOW - 5 + n)
    await put(bench, "later", NOW + MINUTE)
    due = await store(bench).due(bench.topic, 3)
    assert [each.recurrence.recurrence_id for each in due.kept] == ["r0", "r1", "r2"]
    assert due.next == NOW - 2
    for limit in (5, 9):
        due = await store(bench).due(bench.topic, limit)
        assert (len(due.kept), due.next) == (5, NOW + MINUTE)


async def test_what_another_version_has_written(bench: Bench) -> None:
    """It stays as it is, and is in nobody's way."""
    for name in ("a", "b", "c", "d"):
        await put(bench, name, NOW - 1)
    bench.raw.hset(f"{bench.leases}#rules", "b", '{"rule":{"every":1000000},"overlap":"queue"}')
    bench.raw.hset(f"{bench.leases}#standings", "c", "half")
    due = await store(bench).due(bench.topic, 9)
    assert [each.recurrence.recurrence_id for each in due.kept] == ["a", "d"]
    assert due.unread == ["b", "c"]
    with pytest.raises(StoreRefused, match="'b' was written by another version"):
        await read(bench, "b")
    found, cursor = list[str](), ""
    while True:
        page = await store(bench).page(Layout(bench.topic), prefix="", limit=1, cursor=cursor)
        found += [each.recurrence.recurrence_id for each in page.kept]
        if not (cursor := page.cursor):
            break
    assert found == ["a", "d"]


async def test_what_has_ended_is_never_due(bench: Bench) -> None:
    kept = await put(bench)
    ended = replace(kept.standing, version=2, next=None)
    assert await store(bench).keep(bench.topic, kept, kept.recurrence, ended, NOW, reason="put")
    due = await store(bench).due(bench.topic, 3)
    assert (due.kept, due.next) == ([], None)
    assert (await read(bench)).standing == ended


async def test_pages(bench: Bench) -> None:
    """In the order of the ids' bytes, each once."""
    names = ["a", "b", "b/1", "b/2", "c", "ä"]
    for name in reversed(names):
        await put(bench, name)
    layout = Layout(bench.topic)
    found: list[str] = []
    cursor = ""
    while True:
        page = await store(bench).page(layout, prefix="", limit=4, cursor=cursor)
        found += [each.recurrence.recurrence_id for each in page.kept]
        if not (cursor := page.cursor):
            break
    assert found == names
    page = await store(bench).page(layout, prefix="b", limit=9, cursor="")
    assert [each.recurrence.recurrence_id for each in page.kept] == ["b", "b/1", "b/2"]
    assert (await store(bench).page(layout, prefix="x", limit=9, cursor="")).kept == []


async def test_another_type(bench: Bench) -> None:
    key = f"{bench.leases}#ticks"
    bench.raw.set(key, "x")
    with pytest.raises(WrongKeyType, match="ticks"):
        await store(bench).due(bench.topic, 1)
    bench.raw.delete(key)


async def test_a_change_is_whole(bench: Bench) -> None:
    """On a full server there is nothing of it."""
    recurrence = Recurrence("r", Rule(every=MINUTE))
    with bench.full(), pytest.raises(StoreFull):
        await store(bench).keep(
            bench.topic, None, recurrence, Standing(version=1, next=NOW), NOW, reason="put"
        )
    assert (await store(bench).get(bench.topic, "r"))[1] is None


async def test_a_turn_of_many(bench: Bench) -> None:
    """One call, and a word for each."""
    kept = [await put(bench, f"r{n}") for n in range(20)]
    assert await write(bench, *map(turned, kept)) == [Turned.DONE] * 20
    assert bench.raw.zcard(bench.timeline) == 20
    words = await bench.redis.call(recur.turn(bench.topic, 0, ()))
    assert words == []


async def test_a_name_that_was_used_by_a_timer(bench: Bench) -> None:
    """Recurrences and timers have names of their own."""
    (told,) = await bench.store.schedule(bench.topic, [NewTimer("r", b"", NOW)])
    assert told.change is Change.CREATED
    await put(bench)
    assert await bench.store.get(bench.topic, "r") is not None
