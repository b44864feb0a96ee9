"""A topic gets another number of partitions while it is used, on each real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from relay.core.errors import InvalidField, OtherLayout, StoreFull, WrongKeyType
from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Verb, Verdict
from relay.core.partitions import LEAVING, Layout, place_of
from relay.core.timers import KEEP_EXISTING, Change, NewTimer, NewTimers
from relay.store.examine import out_of_use
from relay.store.keys import KeyNames
from relay.store.server.scripts import Call
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.verbs import move
from relay.store.verbs.terms import Words
from tests.store.moving import IDS, LATER, LEASE, Relay, assert_at_home, homes, nothing
from tests.worlds.scripts.asking import N1, N2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
async def relay(redis_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Relay]:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    async with Server(redis_server.url, connections=3, timeout=60.0) as server:
        yield Relay(server, topic)


@pytest.fixture
async def other(relay: Relay, redis_server: RunningServer) -> AsyncIterator[Relay]:
    """Another relay, which knows of nothing yet."""
    async with Server(redis_server.url, connections=3, timeout=60.0) as server:
        yield Relay(server, relay.topic)


# ---------------------------------------------------------------------------------------- moving


async def test_forth_and_back(relay: Relay, redis_server: RunningServer) -> None:
    """From one partition, which has no layout, to eight and back: after each batch all timers are there for
    every call, and at the end each is where it belongs."""
    await relay.put(*IDS)
    for target in (2, 4, 8, 4, 2, 1):
        layout = await relay.moves.begin(relay.topic, target)
        assert (layout.towards, layout.emptied != ()) == (target, True)

        async def use(size: int) -> None:
            assert sorted(await relay.listed()) == sorted(IDS)
            for timer_id in IDS[::17]:
                assert await relay.get(timer_id)
            assert await relay.cancel(IDS[5]) is Change.CANCELLED
            assert await relay.cancel(IDS[5]) is Change.GONE
            await relay.put(IDS[5])

        await relay.moves.run(layout, use)
        assert (relay.layout.count, relay.layout.towards) == (target, 0)
        assert_at_home(relay, [redis_server], IDS)
        assert (await relay.topics.stats(relay.topic)).timers == len(IDS)


async def test_what_a_failover_gives_back_to_a_partition_that_was_emptied(
    relay: Relay, redis_server: RunningServer
) -> None:
    """Nobody takes it there, and it is counted, until the topic has as many partitions again."""
    await relay.put(*IDS)
    await relay.move(2)
    await relay.move(4)
    keys = [relay.server.keys.key(name, f"{relay.topic}#3") for name in ("timeline", "payloads")]
    with redis_server.client() as raw:
        before = [raw.dump(key) for key in keys]
        await relay.move(2)
        assert await out_of_use(relay.server, relay.layout) == 0
        for key, kept in zip(keys, before, strict=True):
            raw.restore(key, 0, kept)
    there = [name for name in IDS if Layout(relay.topic, 1, 4).partition(name).startswith(f"{relay.topic}#3")]
    assert await out_of_use(relay.server, relay.layout) == len(there) > 0
    await relay.move(4)
    assert await out_of_use(relay.server, relay.layout) == 0
    assert_at_home(relay, [redis_server], IDS)


async def test_calls_for_several_timers_while_they_move(relay: Relay) -> None:
    """Those that have left, that leave and that stay are answered in the caller's order; conditions hold by
    the timer that is there."""
    await relay.put(*IDS)
    await relay.move(2)
    layout = await relay.moves.begin(relay.topic, 4)
    partition = layout.emptied[0]
    leaving = [name for name in IDS if layout.partition(name) == partition]
    await relay.carrier.take(layout, partition, "t", leaving[:10])
    new = next(f"n{n}" for n in range(99) if layout.partition(f"n{n}") == partition)
    names = [*leaving[20:22], new, *leaving[:2]]
    told = await relay.timers.schedule(partition, [NewTimer(name, b"y", LATER) for name in names])
    replaced, created = Change.REPLACED, Change.CREATED
    assert [each.change for each in told] == [replaced, replaced, created, replaced, replaced]
    timers = NewTimers.of([NewTimer(name, b"z", LATER, intent=KEEP_EXISTING) for name in names])
    assert {each.change for each in await relay.timers.schedule(partition, timers)} == {Change.UNCHANGED}
    ran = await relay.timers.run(partition, names)
    assert {each.change for each in ran} == {Change.RUN}
    gone = await relay.timers.cancel(partition, names)
    assert {each.change for each in gone} == {Change.CANCELLED}


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.REJECT])
@pytest.mark.parametrize("when", ["before it moves", "on its way", "afterwards", "two moves on"])
async def test_leases_move_along(relay: Relay, redis_server: RunningServer, verb: Verb, when: str) -> None:
    """A delivery from before the move is settled and renewed wherever its timer is by then, by whoever holds
    it; a lease that is held stays one."""
    await relay.put(*IDS[:40], due=SECOND)
    claimed = await relay.claim()
    assert len(claimed) == 40
    layout = await relay.moves.begin(relay.topic, 2)
    if when == "on its way":
        leaving = [name for name in claimed if layout.partition(name).endswith(LEAVING)]
        assert await relay.server.call(leave(layout, leaving))
    elif when != "before it moves":
        await relay.moves.run(layout, nothing)
    if when == "two moves on":
        await relay.move(4)
    assert await relay.claim(N2) == {}, "all are held"
    extensions = [Extension(name, N1, received=True) for name in claimed]
    (partition,) = set(claimed.values())
    assert set(await relay.timers.extend(partition, extensions, lease=LEASE)) == {Verdict.OK}
    results = await relay.end(claimed, verb)
    assert Verdict.GONE not in results
    assert Verdict.STALE not in results
    if relay.layout.towards:
        await relay.moves.run(relay.layout, nothing)
    kept = sorted(claimed) if verb is Verb.NACK else []
    assert_at_home(relay, [redis_server], kept)
    assert (await relay.topics.stats(relay.topic)).dead == (40 if verb is Verb.REJECT else 0)
    letters = (await relay.topics.dead_page(relay.topic, limit=100, cursor="")).letters
    for letter in letters:
        partition = relay.layout.partitions[int(letter.dead_id.partition("#")[2])]
        assert partition == relay.at(letter.timer_id), "letters are where their timers would be"


def leave(layout: Layout, names: Sequence[str]) -> Call[Words]:
    """Take timers out of the first partition, as a mover does that dies then."""
    return move.leave(layout.partitions[0], "t", names)


@pytest.mark.parametrize("when", ["on its way", "afterwards", "two moves on"])
async def test_a_lost_claim_moves_along(relay: Relay, when: str) -> None:
    """What it took is found wherever it is by then, once each."""
    await relay.put(*IDS[:40], due=SECOND)
    (partition,) = relay.layout.partitions
    request = ClaimRequest(500, LEASE, N1, 1 << 20, NO_LIMITS)
    claim = await relay.timers.claim(partition, request)
    layout = await relay.moves.begin(relay.topic, 2)
    leaving = [name for name in IDS[:40] if layout.partition(name).endswith(LEAVING)]
    if when == "on its way":
        assert await relay.server.call(leave(layout, leaving[:9]))
    else:
        await relay.moves.run(layout, nothing)
    if when == "two moves on":
        await relay.move(4)
    found = await relay.timers.claimed(partition, request, since=claim.now - 1, until=claim.now + 1)
    assert sorted(found.timers.timer_ids) == sorted(IDS[:40])
    assert found.deadline == claim.deadline


async def test_letters_of_the_dead_while_they_move(relay: Relay, redis_server: RunningServer) -> None:
    """They are listed, redriven where they belong, and purged; all are there at the end."""
    await relay.put(*IDS[:60], due=SECOND)
    await relay.end(await relay.claim(), Verb.REJECT)
    layout = await relay.moves.begin(relay.topic, 2)
    letters = (await relay.topics.dead_page(relay.topic, limit=100, cursor="")).letters
    assert sorted(letter.timer_id for letter in letters) == sorted(IDS[:60])
    leaves = [letter for letter in letters if layout.partition(letter.timer_id).endswith(LEAVING)]
    stays = [letter for letter in letters if letter not in leaves]
    chosen = [*leaves[:3], *stays[:2]]
    changes = await relay.topics.redrive(relay.topic, [letter.dead_id for letter in chosen])
    assert changes == [Change.RUN] * 5
    assert await relay.topics.purge(relay.topic, [leaves[4].dead_id, stays[4].dead_id]) == 2
    await relay.moves.run(layout, nothing)
    assert_at_home(relay, [redis_server], [letter.timer_id for letter in chosen])
    left = (await relay.topics.dead_page(relay.topic, limit=100, cursor="")).letters
    assert len(left) == 60 - 5 - 2
    for letter in left:
        number = int(letter.dead_id.partition("#")[2])
        assert relay.layout.partitions[number] == relay.at(letter.timer_id)


async def test_a_letter_is_redriven_and_no_other(relay: Relay, redis_server: RunningServer) -> None:
    """While another one is on its way. A living timer of its id is spared, wherever it is."""
    await relay.put(*IDS[:20], due=SECOND)
    await relay.end(await relay.claim(), Verb.REJECT)
    layout = await relay.moves.begin(relay.topic, 2)
    letters = (await relay.topics.dead_page(relay.topic, limit=100, cursor="")).letters
    dead = [each for each in letters if layout.partition(each.timer_id).endswith(LEAVING)]
    entry, place = dead[0].dead_id.partition("#")[0], layout.partitions[0]
    assert await relay.server.call(move.leave(place, "d", [entry]))
    assert await relay.topics.redrive(relay.topic, [dead[1].dead_id]) == [Change.RUN]
    assert homes(relay, redis_server) == {f"timers_timeline:{relay.topic}#1": [dead[1].timer_id]}
    with redis_server.client() as raw:  # as if scheduled before the move
        keys = [KeyNames().key(name, place) for name in ("timeline", "payloads")]
        source = [KeyNames().key(name, layout.partitions[1]) for name in ("timeline", "payloads")]
        raw.zadd(keys[0], {dead[2].timer_id: 4e9})
        raw.hset(keys[1], dead[2].timer_id, raw.hget(source[1], dead[1].timer_id))
    assert await relay.topics.redrive(relay.topic, [dead[2].dead_id]) == [Change.UNCHANGED]
    timer = await relay.timers.get(relay.at(dead[2].timer_id), dead[2].timer_id)
    assert timer is not None
    assert timer.due == LATER


async def test_letters_are_not_trimmed_because_they_move(relay: Relay) -> None:
    """A topic that holds no more of them than it may keeps all, though one partition has more than its share
    before they have moved, or afterwards."""
    await relay.put(*IDS[:60], due=SECOND)
    await relay.end(await relay.claim(), Verb.REJECT)
    await relay.moves.begin(relay.topic, 2)
    assert await relay.topics.trim(relay.topic, max_count=60, max_age=0) == 0
    await relay.moves.run(relay.layout, nothing)
    assert await relay.topics.trim(relay.topic, max_count=40, max_age=0) > 0


async def test_an_older_state_comes_back(relay: Relay, redis_server: RunningServer) -> None:
    """A server restarts with what it had saved, and there a batch is on its way that has arrived since."""
    await relay.put(*IDS)
    layout = await relay.moves.begin(relay.topic, 2)
    partition = layout.emptied[0]
    leaving = [name for name in IDS if layout.partition(name) == partition]
    assert await relay.server.call(leave(layout, leaving[:9]))
    with redis_server.client() as raw:
        key = KeyNames().key("move", layout.partitions[0])
        saved = raw.dump(key)
        await relay.carrier.carry(layout, partition)
        await relay.carrier.take(layout, partition, "t", leaving[9:20])
        raw.restore(key, 0, saved, replace=True)
    with anyio.fail_after(20):
        assert await relay.get(leaving[0])
        await relay.moves.run(layout, nothing)
    assert_at_home(relay, [redis_server], IDS)


async def test_a_full_server_gets_its_timers_back(relay: Relay, redis_server: RunningServer) -> None:
    """Where there is no room the batch goes back, and every call finds its timers; with room the move goes
    on."""
    await relay.put(*IDS)
    layout = await relay.moves.begin(relay.topic, 2)
    await relay.carrier.mark(layout.partitions[1])
    with redis_server.client() as raw:
        raw.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreFull):
                await relay.moves.run(layout, nothing)
            assert sorted(await relay.listed()) == sorted(IDS)
        finally:
            raw.config_set("maxmemory", "0")
    await relay.moves.run(layout, nothing)
    assert_at_home(relay, [redis_server], IDS)


# ----------------------------------------------------------------------------------------- races


async def test_a_key_of_somebody_else_stays(relay: Relay, redis_server: RunningServer) -> None:
    """What lies where the layout is to be is no layout, and no lease records."""
    await relay.put(*IDS[:5])
    key = relay.server.keys.key("layout", relay.topic)
    with redis_server.client() as raw:
        raw.zadd(key, {"theirs": 1.0})
        with pytest.raises(WrongKeyType):
            await relay.moves.begin(relay.topic, 2)
        assert raw.zrange(key, 0, -1) == [b"theirs"]


async def test_what_a_dead_mover_has_left_on_its_way_is_carried_by_claims(relay: Relay) -> None:
    """It took timers out, and nothing more. They wait for nobody else."""
    await relay.put(*IDS)
    layout = await relay.moves.begin(relay.topic, 2)
    leaving = [timer_id for timer_id in IDS if layout.partition(timer_id).endswith(LEAVING)]
    batch = await relay.server.call(move.leave(layout.partitions[0], "t", leaving[:100]))
    assert len(batch) == 201
    request = ClaimRequest(1, LEASE, N1, 1 << 20, NO_LIMITS)

    with anyio.fail_after(60):
        while (await relay.server.call(move.mark(layout.partitions[0])))[1:]:
            assert not (await relay.timers.claim(layout.partitions[0], request)).timers
    assert sorted(await relay.listed()) == sorted(IDS)


async def test_two_who_begin_a_move(relay: Relay, other: Relay) -> None:
    """The second finds that of the first; a number that is there already is no move."""
    await relay.put(*IDS[:20])
    first = await relay.moves.begin(relay.topic, 2)
    assert await other.moves.begin(relay.topic, 8) == first == Layout(relay.topic, 2, 1, 2)
    await other.moves.run(first, nothing)
    with pytest.raises(OtherLayout):
        await relay.moves.run(first, nothing)
    assert relay.layout == other.layout == Layout(relay.topic, 3, 2)
    assert await relay.moves.begin(relay.topic, 2) == relay.layout


async def test_two_who_move(relay: Relay, other: Relay, redis_server: RunningServer) -> None:
    """One has died with a batch on its way: the other carries it, and ends the move."""
    await relay.put(*IDS)
    layout = await relay.moves.begin(relay.topic, 2)
    leaving = [name for name in IDS if layout.partition(name).endswith(LEAVING)]
    assert await relay.server.call(leave(layout, leaving[:9]))
    before = await relay.moves.last(layout)
    assert before
    await other.layouts.ask(relay.topic)
    await other.moves.run(layout, nothing)
    with pytest.raises(OtherLayout):
        await relay.moves.last(layout)
    assert relay.layout == other.layout
    assert_at_home(relay, [redis_server], IDS)


async def test_a_relay_that_knows_of_nothing(relay: Relay, other: Relay, redis_server: RunningServer) -> None:
    """Each of its calls is refused, says what there is now, and has done nothing: it goes by a layout of
    three changes ago, or by none."""
    await relay.put(*IDS[:20])
    assert other.layouts.known(relay.topic) == Layout(relay.topic)
    await relay.move(2)
    await relay.move(4)
    with pytest.raises(OtherLayout):
        await other.cancel(IDS[0])
    assert other.layout == relay.layout
    assert await other.cancel(IDS[0]) is Change.CANCELLED
    old = Layout(relay.topic, 3, 2).partition(IDS[1])
    with pytest.raises(OtherLayout):
        await other.timers.schedule(old, [NewTimer(IDS[1], b"y", LATER)])
    assert_at_home(relay, [redis_server], IDS[1:20])


async def test_a_page_skips_nothing_because_others_have_moved(relay: Relay) -> None:
    """While a page is read, its first timers leave, and get a later due time: no page begins behind what the
    old partition has not told yet."""
    await relay.put(*IDS[:40])
    layout = await relay.moves.begin(relay.topic, 2)
    leaving = [name for name in sorted(IDS[:40]) if layout.partition(name) == layout.emptied[0]]

    async def arrive(_: Layout) -> None:
        if some := leaving[:2]:
            del leaving[:2]
            await relay.carrier.take(layout, layout.emptied[0], "t", some)
            timers = [NewTimer(name, b"x", LATER + SECOND) for name in some]
            await relay.timers.schedule(layout.emptied[0], timers)

    relay.timers._timers = RedisStore(relay.server, arrive=arrive)
    assert sorted(set(await relay.listed(limit=2))) == sorted(IDS[:40])


async def test_an_outcome_that_always_comes_after_a_move(
    relay: Relay, other: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written, however many moves come before it."""
    await relay.put(IDS[0], due=SECOND)
    claimed = await relay.claim()
    plain = relay.timers._timers
    settle, targets = plain.settle, [1, 2] * 5

    async def late(*args: Any, **more: Any) -> Any:
        if targets:
            await other.move(targets.pop())
        return await settle(*args, **more)

    monkeypatch.setattr(plain, "settle", late)
    results = await relay.end(claimed, Verb.ACK)
    assert set(results) == {Verdict.OK}
    assert not targets


# ----------------------------------------------------------------------------------------- pauses


async def test_a_pause_moves_along(relay: Relay) -> None:
    """A partition that comes into use hands out nothing until it knows whether the topic is paused, and a
    resume reaches all."""
    await relay.put(*IDS[:40], due=SECOND)
    await relay.topics.pause(relay.topic)
    await relay.move(2)
    assert await relay.claim() == {}
    assert (await relay.topics.stats(relay.topic)).paused_until is not None
    await relay.moves.begin(relay.topic, 4)
    await relay.topics.resume(relay.topic)
    await relay.moves.run(relay.layout, nothing)
    assert len(await relay.claim()) == 40
    assert (await relay.topics.stats(relay.topic)).paused_until is None


async def test_a_partition_that_comes_again(relay: Relay) -> None:
    """It has heard neither of the pause's end nor of another pause meanwhile."""
    await relay.put(*IDS[:40], due=SECOND)
    await relay.move(2)
    await relay.topics.pause(relay.topic)
    await relay.move(1)
    await relay.topics.resume(relay.topic)
    await relay.move(2)
    assert len(await relay.claim()) == 40
    await relay.move(1)
    await relay.topics.pause(relay.topic)
    await relay.end(dict.fromkeys(IDS[:40], relay.layout.partitions[0]), Verb.NACK)
    await relay.move(2)
    assert await relay.claim(N2) == {}


async def test_the_rate_is_told(relay: Relay) -> None:
    """To whoever works on the move, until it ends. A batch is a second's work at most: others take one for
    dead that shows no progress for a few."""
    await relay.put(*IDS)
    layout = await relay.moves.begin(relay.topic, 2, rate=70)
    assert await relay.moves.rate(layout) == 70
    assert place_of(layout.partitions[1]) == f"{relay.topic}#1"
    sizes: list[int] = []

    async def moved(size: int) -> None:
        sizes.append(size)

    await relay.moves.run(layout, moved)
    assert max(sizes) == 70
    assert await relay.moves.rate(await relay.moves.begin(relay.topic, 1)) == 0


async def test_a_topic_from_before(relay: Relay, redis_server: RunningServer) -> None:
    """Its name is that of a partition to come: the move does not begin, and says why."""
    await relay.put(*IDS[:5])
    with redis_server.client() as raw:
        raw.zadd(f"timers_timeline:{relay.topic}#1", {"theirs": 1.0})
        with pytest.raises(InvalidField, match=f"a topic '{relay.topic}#1' is there"):
            await relay.moves.begin(relay.topic, 2)
        raw.delete(f"timers_timeline:{relay.topic}#1")
    await relay.move(2)
    assert_at_home(relay, [redis_server], IDS[:5])


async def test_a_sweep_is_under_way(relay: Relay, redis_server: RunningServer) -> None:
    """The timers that rest in the cold store would come into one partition: the move does not begin."""
    await relay.put(*IDS[:5])
    with redis_server.client() as raw:
        raw.hset(f"timers_marks:{relay.topic}", "plan", "p")
        with pytest.raises(InvalidField, match="while a sweep of the cold store is under way"):
            await relay.moves.begin(relay.topic, 2)
        raw.delete(f"timers_marks:{relay.topic}")
    assert (await relay.moves.begin(relay.topic, 2)).towards == 2


async def test_a_search_that_goes_on_at_another_server(
    relay: Relay, redis_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: a slot goes to another server in the midst of a search, whose cursor means nothing there. A
    search that found nothing proves nothing then, and the move does not end by it."""
    await relay.put(*IDS[:20])
    layout = await relay.moves.begin(relay.topic, 2)
    ask, disturbed = relay.server.call, [2]

    async def elsewhere(call: Call[Any]) -> Any:
        reply = await ask(call)
        if call.verb != "move/scan" or not disturbed[0]:
            return reply
        disturbed[0] -= 1
        return [reply[0], b"7"] if call.args[0] == "0" else [b"another", b"0"]

    monkeypatch.setattr(relay.server, "call", elsewhere)
    await relay.moves.run(layout, nothing)
    assert_at_home(relay, [redis_server], IDS[:20])
