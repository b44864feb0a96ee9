"""Topics of several partitions: producers, applications, fairness, and layouts that become known late."""

from __future__ import annotations

import asyncio
import logging
from itertools import count

import pytest

from relay.core.durability import STORED
from relay.core.errors import GivenUp, OtherLayout, PartlyDone, StoreUnavailable, TopicFull
from relay.core.outcomes import ACKED, Extension
from relay.core.partitions import Layout
from relay.core.ports import AGAIN
from relay.core.timers import Change, Changed, Condition, NewTimer, NewTimers, Scheduled
from relay.engine.clock import SystemClock
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


def one_of(layout: Layout, partition: str) -> str:
    """A timer's id that the partition has."""
    return next(name for name in map(str, count()) if layout.partition(name) == partition)


def batch(*timer_ids: str) -> NewTimers:
    return NewTimers.of([NewTimer(name, b"x", delay=0) for name in timer_ids])


async def where(world: World, layout: Layout) -> dict[str, set[str]]:
    """The timers of each partition that has some."""
    found = {partition: set(await world.stored(partition)) for partition in layout.partitions}
    return {partition: some for partition, some in found.items() if some}


# ------------------------------------------------------------------------- producers


async def test_each_call_goes_to_the_partition_of_its_timer(world: World) -> None:
    """And no other one is asked; what is counted and registered has the topic's name."""
    layout = world.layouts.put(TOPIC, 4)
    engine = world.engine
    partition = layout.partitions[2]
    a = one_of(layout, partition)
    assert (await engine.schedule(TOPIC, NewTimer(a, b"x", delay=9_000_000))).change is Change.CREATED
    stored = await engine.get(TOPIC, a)
    assert stored is not None
    assert stored.payload == b"x"
    assert await engine.run_timer(TOPIC, a) == Changed(Change.RUN)
    assert await engine.cancel(TOPIC, a, Condition(due=1)) == Changed(Change.UNCHANGED)
    assert await engine.cancel(TOPIC, a) == Changed(Change.CANCELLED)
    calls = {(call.verb, call.topic) for call in world.store.calls if call.verb != "ping"}
    assert calls == {(verb, partition) for verb in ("schedule", "get", "run", "cancel")}
    await settle()
    assert world.topics.names == [TOPIC]


async def test_a_batch_over_partitions_is_answered_in_its_order(world: World) -> None:
    """One call for each partition; of an id that comes twice the later timer stands."""
    layout = world.layouts.put(TOPIC, 4)
    ids = [f"{n}" for n in range(40)]
    await world.engine.schedule(TOPIC, NewTimer("7", b"", delay=0))
    before = world.store.count("schedule")
    timers = [NewTimer(name, b"x", delay=n * 1_000_000) for n, name in enumerate([*ids, "3"])]
    results = await world.engine.schedule_many({TOPIC: NewTimers.of(timers), "u": batch("7")})
    found = [(each.due, each.change) for each in results[TOPIC] if isinstance(each, Scheduled)]
    changes = [Change.REPLACED if n in (7, 40) else Change.CREATED for n in range(41)]
    now = world.clock.server()
    assert found == [(now + n * 1_000_000, change) for n, change in enumerate(changes)]
    assert len(results["u"]) == 1
    assert world.store.count("schedule") - before == len(layout.partitions) + 1
    places: dict[str, set[str]] = {}
    for name in ids:
        places.setdefault(layout.partition(name), set()).add(name)
    assert await where(world, layout) == places


async def test_the_timers_of_a_topic_of_one_partition_are_brought_as_they_came(world: World) -> None:
    """Not a copy of them: most topics have one partition, and it is to cost them nothing."""
    one = world.layouts.put("one", 1)
    brought = {TOPIC: batch("a"), "one": batch("b")}
    seen: dict[str, NewTimers] = {}
    submit = world.engine._schedules[STORED].submit_many

    async def watched(timers: dict[str, NewTimers]) -> dict[str, list[Scheduled | Exception]]:
        seen.update(timers)
        return await submit(timers)  # type: ignore[return-value]

    await world.engine._partitioning.schedule(brought, watched)  # type: ignore[arg-type]
    assert seen[TOPIC] is brought[TOPIC]
    assert seen[one.partitions[0]] is brought["one"]
    assert list(seen) == [TOPIC, one.partitions[0]]


async def test_a_batch_whose_partition_is_away_stores_the_others(world: World) -> None:
    """Each timer has its own answer."""
    layout = world.layouts.put(TOPIC, 2)
    world.store.places.put(**{layout.partitions[0]: "east", layout.partitions[1]: "west"})
    world.store.fail("schedule", StoreUnavailable("gone"), topic=layout.partitions[1])
    ids = [f"{n}" for n in range(10)]
    results = (await world.engine.schedule_many({TOPIC: batch(*ids)}))[TOPIC]
    failed = {name for name, each in zip(ids, results, strict=True) if isinstance(each, StoreUnavailable)}
    assert failed == {name for name in ids if layout.partition(name) == layout.partitions[1]}
    assert await where(world, layout) == {layout.partitions[0]: set(ids) - failed}
    assert not world.engine._redis_health.answers(layout.partitions[1])
    assert world.engine._redis_health.answers(layout.partitions[0])


async def test_a_call_that_failed_for_some_of_its_timers(world: World) -> None:
    """Each has its own answer, and those that are stored are counted."""
    partition = world.layouts.put(TOPIC, 2).partitions[1]
    told = [Scheduled(5, Change.CREATED), StoreUnavailable("gone"), Scheduled(None, Change.GIVEN_UP)]
    world.store.fail("schedule", PartlyDone(told), topic=partition)
    layout = world.layouts.known(TOPIC)
    assert layout is not None
    ids = [name for name in map(str, range(40)) if layout.partition(name) == partition][:3]
    stored, *failed = (await world.engine.schedule_many({TOPIC: batch(*ids)}))[TOPIC]
    assert stored == told[0]
    assert [type(each) for each in failed] == [StoreUnavailable, GivenUp]
    assert world.counts.total["timers.scheduled"] == 1
    gone = [Changed(Change.CANCELLED), StoreUnavailable("gone")]
    world.store.fail("cancel", PartlyDone(gone), topic=partition)
    calls = [world.engine.cancel(TOPIC, name) for name in ids[:2]]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results == gone


@pytest.mark.parametrize("place", ["east", "west"])
async def test_partitions_of_a_batch_are_written_at_once(world: World, place: str) -> None:
    """Those of one place, too; where a call is not answered, the others' timers are stored all the same."""
    layout = world.layouts.put(TOPIC, 2)
    world.store.places.put(**{layout.partitions[0]: "east", layout.partitions[1]: place})
    held = world.store.hold("schedule", topic=layout.partitions[0])
    ids = [f"{n}" for n in range(10)]
    call = asyncio.ensure_future(world.engine.schedule_many({TOPIC: batch(*ids)}))
    await settle()
    assert held.reached == 1
    assert set(await where(world, layout)) == {layout.partitions[1]}
    held.open()
    assert len((await call)[TOPIC]) == 10


async def test_max_waiting_holds_in_the_sum(world: World) -> None:
    """Each partition may hold its share; who is refused hears of the whole."""
    layout = world.layouts.put(TOPIC, 4)
    world.tune(max_waiting=10)
    ids = [f"{n}" for n in range(40)]
    results = (await world.engine.schedule_many({TOPIC: batch(*ids)}))[TOPIC]
    assert {len(some) for some in (await where(world, layout)).values()} == {2}
    refused = [each for each in results if isinstance(each, TopicFull)]
    assert len(refused) == 32
    full = TopicFull.of(TOPIC, 10)
    assert {str(each) for each in refused} == {str(full)}
    with pytest.raises(TopicFull, match="topic 't' holds 10 timers"):
        await world.engine.schedule(TOPIC, NewTimer("further", b"", delay=0))


# ------------------------------------------------------------------------- other layouts


async def test_calls_begin_again_where_the_topic_has_another_layout(world: World) -> None:
    """The relay takes it for one of one partition until Redis refuses; nobody hears of that."""
    layout = world.layouts.put(TOPIC, 2, presumed=True)
    results = await world.engine.schedule_many({TOPIC: batch("a", "b", "c"), "u": batch("x")})
    assert [getattr(each, "change", each) for each in results[TOPIC]] == [Change.CREATED] * 3
    assert world.store.count("schedule", TOPIC) == 1
    assert set().union(*(await where(world, layout)).values()) == {"a", "b", "c"}
    assert set(await world.stored("u")) == {"x"}
    for verb in ("schedule", "get", "run_timer", "cancel"):
        world.layouts.put(TOPIC, 2, presumed=True)
        refused = len(world.store.calls)
        if verb == "schedule":
            await world.engine.schedule(TOPIC, NewTimer("a", b"", delay=0))
        else:
            await getattr(world.engine, verb)(TOPIC, "a")
        assert [call.topic for call in world.store.calls[refused:]] == [TOPIC, layout.partition("a")]


async def test_calls_begin_again_at_most_twice(world: World) -> None:
    """Then the error goes on, which passes by itself: callers try again."""
    world.layouts.put(TOPIC, 2)
    world.store.fail("schedule", OtherLayout("9 4"))
    with pytest.raises(OtherLayout):
        await world.engine.schedule(TOPIC, NewTimer("a", b"", delay=0))
    assert world.store.count("schedule") == 1 + AGAIN
    others = world.layouts.put("u", 2, presumed=True).partitions
    world.store.open_all()
    world.store.fail("schedule", OtherLayout("9 4"), topic=others[0])
    world.store.fail("schedule", OtherLayout("9 4"), topic=others[1])
    (result,) = (await world.engine.schedule_many({"u": batch("a")}))["u"]
    assert isinstance(result, OtherLayout)


async def test_a_layout_is_asked_for_where_it_is_not_known(world: World) -> None:
    """Once; a topic that is known waits for no other's question, and an empty batch asks nothing."""
    layout = world.layouts.put(TOPIC, 4, known=False)
    world.layouts.put("other", 4, known=False)
    asked = world.store.hold("ask", topic=TOPIC)
    many = {TOPIC: batch("a", "b"), "u": batch("x"), "other": NewTimers.of([])}
    call = asyncio.ensure_future(world.engine.schedule_many(many))
    await settle()
    assert asked.reached == 1
    assert set(await world.stored("u")) == {"x"}
    asked.open()
    results = await call
    assert [(topic, len(some)) for topic, some in results.items()] == [(TOPIC, 2), ("u", 1), ("other", 0)]
    assert set().union(*(await where(world, layout)).values()) == {"a", "b"}
    await world.engine.get(TOPIC, "a")
    assert world.store.count("ask") == 1


async def test_a_question_that_is_not_answered_is_a_call_that_is_not(world: World) -> None:
    """The place of the topic is away, and the timers of the other topics of the batch are stored."""
    world.layouts.put(TOPIC, 4, known=False)
    world.store.places.put(t="east", u="west")
    world.store.fail("ask", StoreUnavailable("gone"), topic=TOPIC)
    results = await world.engine.schedule_many({TOPIC: batch("a", "b"), "u": batch("x")})
    assert [type(each) for each in results[TOPIC]] == [StoreUnavailable] * 2
    assert [type(each) for each in results["u"]] == [Scheduled]
    assert not world.engine._redis_health.answers(TOPIC)
    with pytest.raises(StoreUnavailable, match="gone"):
        await world.engine.get(TOPIC, "a")


# ------------------------------------------------------------------------- applications


async def test_an_application_takes_all_partitions_of_its_topic(world: World) -> None:
    """It hears nothing of partitions; hints are heard for each, and for none when it has gone."""
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    assert set(world.hints.watchers) == set(layout.partitions)
    for partition in layout.partitions:
        await world.put("x", topic=partition)
        world.hint(delay=0, topic=partition)
    await settle()
    leases = app.take()
    assert [(lease.topic, lease.timer_id) for lease in leases] == [(TOPIC, "x")] * 4
    assert {lease.partition for lease in leases} == set(layout.partitions)
    for lease in leases[:2]:
        app.receive(lease)
    await world.advance(1.0)
    app.ack(leases)
    await settle()
    assert await where(world, layout) == {}
    assert app.complaints() == []
    for verb, most in (("settle", 4), ("extend", 2)):
        called = {call.topic for call in world.store.calls if call.verb == verb}
        assert len(called) == most
        assert called <= set(layout.partitions)
    await app.leave()
    assert world.hints.watchers == {}
    assert world.engine._loops._pollers == {}


async def test_leases_are_renewed_in_their_partitions(world: World) -> None:
    """One id may be in two of them only after a move; here each has its own."""
    layout = world.layouts.put(TOPIC, 2)
    world.tune(lease_ttl=3.0)
    for partition in layout.partitions:
        await world.put(f"of {partition}", topic=partition)
    app = await world.app()
    assert len(app.take()) == 2
    await world.advance(10.0)
    assert app.take() == []
    renewed = {
        (call.topic, item.timer_id)
        for call in world.store.calls
        if call.verb == "extend"
        for item in call.items
        if isinstance(item, Extension)
    }
    assert renewed == {(partition, f"of {partition}") for partition in layout.partitions}


async def test_what_is_scheduled_wakes_its_partition(world: World) -> None:
    """At its time, and no other partition's poller."""
    world.tune(max_polling_interval=600.0)
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    before = len(world.store.calls)
    a = one_of(layout, layout.partitions[3])
    await world.schedule(a, delay=2.0)
    await world.advance(2.0)
    assert app.names() == [a]
    assert {call.topic for call in world.store.calls[before:] if call.verb == "claim"} == {
        layout.partitions[3]
    }


async def test_a_dead_place_holds_up_no_other_partition(world: World) -> None:
    """Its outcomes wait, those of the others are written."""
    layout = world.layouts.put(TOPIC, 2)
    world.store.places.put(**{layout.partitions[0]: "east", layout.partitions[1]: "west"})
    for partition in layout.partitions:
        await world.put("x", topic=partition)
    app = await world.app()
    leases = app.take()
    held = world.store.hold("settle", topic=layout.partitions[0])
    app.ack(leases)
    await settle()
    assert held.reached == 1
    assert set(await where(world, layout)) == {layout.partitions[0]}
    held.open()
    await settle()
    assert await where(world, layout) == {}


async def test_a_stream_does_not_wait_for_the_layout(world: World) -> None:
    """Its other topic is served meanwhile, and this one as soon as the answer comes."""
    layout = world.layouts.put(TOPIC, 2, known=False)
    asked = world.store.hold("ask")
    await world.put("x", topic="u")
    await world.put("y", topic=layout.partitions[1])
    app = await world.app(TOPIC, "u")
    assert app.names() == ["x"]
    assert asked.reached == 1
    asked.open()
    await settle()
    assert app.names() == ["y"]
    assert set(world.hints.watchers) == {*layout.partitions, "u"}


async def test_a_stream_that_ends_during_the_question_leaves_nothing(world: World) -> None:
    """Neither pollers nor hints, whenever the answer comes; the next stream asks again."""
    layout = world.layouts.put(TOPIC, 2, known=False)
    asked = world.store.hold("ask")
    app = await world.app()
    assert asked.reached == 1
    await app.leave()
    asked.open()
    await settle()
    assert world.engine._loops._pollers == {}
    assert world.hints.watchers == {}
    await world.engine.get(TOPIC, "a")
    await settle()
    assert world.store.count("claim") == 0
    await world.app()
    assert set(world.hints.watchers) == set(layout.partitions)


async def test_a_layout_is_asked_for_until_it_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Redis may be away, or refuse: that is said once."""
    layout = world.layouts.put(TOPIC, 2, known=False)
    away = world.store.fail("ask", StoreUnavailable("away"))
    ping = world.store.fail("ping", StoreUnavailable("away"))
    await world.put("x", topic=layout.partitions[1])
    app = await world.app()
    await world.advance(30.0)
    assert 1 <= away.reached < 60
    away.open()
    ping.open()
    refused = world.store.fail("ask", RuntimeError("what is this"), times=3)
    await world.advance(30.0)
    assert refused.reached == 3
    assert app.names() == ["x"]
    assert [record.message for record in caplog.records] == [
        "Redis is away; trying again until it is back",
        "Redis refuses to say which partitions a topic has",
        "Redis is back",
    ]


async def test_a_poller_of_a_layout_that_is_not_the_topic_s_is_replaced(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The relay believes in one partition, and its first claim is refused: nobody hears of that."""
    caplog.set_level(logging.INFO)
    layout = world.layouts.put(TOPIC, 2, presumed=True)
    await world.put("x", topic=layout.partitions[1])
    app = await world.app()
    assert app.names() == ["x"]
    assert set(world.engine._loops._pollers) == set(layout.partitions)
    assert set(world.hints.watchers) == set(layout.partitions)
    assert world.store.count("claim", TOPIC) == 1
    await world.advance(60.0)
    assert world.store.count("claim", TOPIC) == 1
    assert caplog.records == []


# ------------------------------------------------------------------------------ fairness


async def test_no_due_timer_waits_behind_the_flood_of_another_partition(world: World) -> None:
    """The race: an application settles all that it holds in one message, and the poller that looks first
    takes all room; it would be the same one each time."""
    layout = world.layouts.put(TOPIC, 2)
    world.tune(max_polling_interval=600.0)
    app = await world.app(max_outstanding=10)
    for start in range(0, 10_000, 500):
        await world.put(*(f"{n}" for n in range(start, start + 500)), topic=layout.partitions[0])
    world.hint(delay=0, topic=layout.partitions[0])
    await settle()
    taken = app.take()
    assert {lease.partition for lease in taken} == {layout.partitions[0]}
    await world.put("alone", topic=layout.partitions[1])
    world.hint(delay=0, topic=layout.partitions[1])
    await world.advance(0.01)
    seen: list[str] = []
    for _ in range(3):
        world.engine.end(app.session, [lease.token for lease in taken], ACKED)
        await world.advance(0.01)
        taken = app.take()
        seen += [lease.timer_id for lease in taken]
    assert "alone" in seen
    assert len(seen) > 20


async def test_flooded_partitions_take_turns(world: World) -> None:
    """Also when room comes back one by one."""
    layout = world.layouts.put(TOPIC, 4)
    for partition in layout.partitions:
        await world.put(*(f"{n}" for n in range(50)), topic=partition)
    app = await world.app(max_outstanding=1)
    seen = []
    for _ in range(40):
        lease = app.one()
        seen.append(lease.partition)
        app.end(lease)
        await world.advance(0.01)
    assert {partition: seen.count(partition) for partition in layout.partitions} == dict.fromkeys(
        layout.partitions, 10
    )


async def test_a_partition_that_is_away_keeps_nobody_from_his_turn(world: World) -> None:
    """Its claim hangs, and later it waits for Redis: it is not its turn then."""
    layout = world.layouts.put(TOPIC, 2)
    world.store.places.put(**{layout.partitions[0]: "east", layout.partitions[1]: "west"})
    world.store.fail("claim", StoreUnavailable("gone"), topic=layout.partitions[0])
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    await world.put("x", topic=layout.partitions[0])
    await world.put(*(f"{n}" for n in range(30)), topic=layout.partitions[1])
    app = await world.app(max_outstanding=1)
    for _ in range(30):
        app.end(app.one())
        await world.advance(0.01)


async def test_a_poller_that_ends_while_it_waits_passes_its_turn_on(world: World) -> None:
    """The layout becomes another one while its first poller waits for room."""
    layout = world.layouts.put(TOPIC, 2)
    await world.put("1", "2", topic=layout.partitions[0])
    app = await world.app(max_outstanding=1)
    lease = app.one()
    await world.put("3", topic=layout.partitions[1])
    world.hint(delay=0, topic=layout.partitions[1])
    await settle()
    layout = world.layouts.put(TOPIC, 4)
    await settle()
    assert set(world.hints.watchers) == set(layout.partitions)
    app.end(lease)
    for _ in range(2):
        await world.advance(0.01)
        app.end(app.one())
    await settle()
    assert await world.stored(layout.partitions[0]) == {}
    assert await world.stored(layout.partitions[1]) == {}


# ----------------------------------------------------------------------------- idleness


async def test_idle_partitions_share_their_wake_ups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of them cost about 64 calls in each `max_polling_interval`, and far fewer wake-ups."""
    monkeypatch.setattr(world.clock, "together", SystemClock().together)
    world.layouts.put(TOPIC, 64)
    world.tune(max_polling_interval=5.0)
    await world.app()
    await world.advance(20.0)
    wakes = []
    for _ in range(2_000):
        before = world.store.count("claim")
        await world.advance(0.01)
        wakes.append(world.store.count("claim") - before)
    assert 4 * 64 <= sum(wakes) <= 4 * 64 * 1.25
    assert sum(map(bool, wakes)) <= sum(wakes) / 2


async def test_timers_that_moved_to_a_place_that_is_away(world: World) -> None:
    """Their outcomes are tried again, and others are written meanwhile; the place that they came from is not
    taken for one that is away."""
    layout = world.layouts.put(TOPIC, 2)
    world.store.places.put(**{layout.partitions[0]: "east", layout.partitions[1]: "east"})
    await world.put("a", topic=layout.partitions[0])
    await world.put("b", topic=layout.partitions[1])
    app = await world.app()
    leases = {lease.timer_id: lease for lease in app.take()}
    failure = StoreUnavailable("gone")
    failure.partition = "elsewhere#7"
    world.store.places.put(**{"elsewhere#7": "west"})
    away = world.store.fail("settle", failure, topic=layout.partitions[0])
    app.end(leases["a"])
    await settle()
    app.end(leases["b"])
    await world.advance(1.0)
    assert set(await where(world, layout)) == {layout.partitions[0]}
    assert away.reached > 2
    assert world.engine._redis_health.answers(layout.partitions[0])
    assert not world.engine._redis_health.answers("elsewhere#7")
    away.open()
    await world.advance(1.0)
    assert await where(world, layout) == {}
