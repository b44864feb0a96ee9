"""Topics in several places, one of which does not answer: the others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, cast

import anyio
import pytest

from relay.core.dispatch import Tidied
from relay.core.errors import StoreUnavailable
from relay.core.outcomes import Extension
from relay.core.policy import DeadLetterPolicy
from relay.core.timers import NewTimer, NewTimers, TopicStats
from relay.engine.topic_watch import FRESH, PATIENCE
from relay.engine.upkeep.janitor import Janitor
from relay.engine.upkeep.tidier import Tidier
from relay.telemetry.metrics.gauges import Gauges, RelayState
from tests.worlds.engine.doubles import Doors
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import World

if TYPE_CHECKING:
    from relay.core.ports import Promotions, TopicStore

AWAY = "Redis is away; trying again until it is back"
BACK = "Redis is back"


@pytest.fixture(autouse=True)
def two_places(world: World) -> None:
    """Topics `a` and `a2` are in one place, `b` and `b2` in another."""
    world.store.places.put(a="east", a2="east", b="west", b2="west")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The log lines, with the node that each names."""
    return [(record.message, vars(record).get("node", "")) for record in caplog.records]


# ------------------------------------------------------------------------------- health


async def test_a_place_that_is_away_is_said_by_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One line for the place and change; the relay is ready while another one answers."""
    doors = [world.store.fail("claim", StoreUnavailable("gone"), topic="a")]
    doors.append(world.store.fail("ping", StoreUnavailable("gone"), topic="east"))
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(10.0)
    assert app.names() == ["y"]
    assert said(caplog) == [(AWAY, "east")]
    assert world.engine.ready() == []
    for door in doors:
        door.open()
    await world.advance(10.0)
    assert app.names() == ["x"]
    assert said(caplog) == [(AWAY, "east"), (BACK, "east")]


async def test_the_relay_is_not_ready_while_all_places_are_away(world: World) -> None:
    """Those that it knows of: here two of topics, and the one of what belongs to no topic."""
    await world.app("a", "b")
    for place in ("east", "west"):
        world.store.fail("ping", StoreUnavailable(f"{place} is gone"), topic=place)
    world.store.fail("claim", StoreUnavailable("gone"))
    await world.advance(10.0)
    assert world.engine.ready() == []
    world.store.fail("ping", StoreUnavailable("the third, too"), topic="")
    await world.advance(10.0)
    (reason,) = world.engine.ready()
    assert reason.startswith("Redis is away: ")
    assert all(words in reason for words in ("east is gone", "west is gone", "the third, too"))


async def test_a_ping_that_hangs_keeps_no_other_place_from_its_pings(world: World) -> None:
    """The race: a node takes connections and says nothing, and another one goes at that time."""
    for topic in ("a", "b"):
        world.tune(topic, max_polling_interval=600.0)
    await world.app("a", "b")
    held = world.store.hold("ping", topic="east")
    await world.advance(6.0)
    assert held.reached == 1
    gone = world.store.fail("ping", StoreUnavailable("gone"), topic="west")
    await world.advance(6.0)
    assert gone.reached >= 1
    assert world.engine._redis_health.answers("a")
    assert not world.engine._redis_health.answers("b")


async def test_who_waits_for_a_place_goes_on_when_the_topic_has_another(world: World) -> None:
    """After a failover nobody waits for the node that is gone; its other topics do."""
    for verb, topic in (("claim", "a"), ("claim", "a2"), ("ping", "east")):
        world.store.fail(verb, StoreUnavailable("gone"), topic=topic)
    await world.put("x", topic="a")
    app = await world.app("a", "a2")
    await world.advance(60.0)
    assert app.names() == []
    world.store.open_all()
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    tries = world.store.count("claim", "a2")
    world.store.places.put(a="west")
    await settle()
    assert app.names() == ["x"]
    assert world.store.count("claim", "a2") == tries


async def test_a_place_without_topics_is_forgotten(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A node that was removed is not asked any more, and makes no relay unready."""
    world.store.fail("claim", StoreUnavailable("gone"), topic="a", times=1)
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    await world.app("a")
    await world.advance(5.0)
    assert said(caplog) == [(AWAY, "east")]
    world.store.places.put(a="west", a2="west")
    pings = world.store.count("ping", "east")
    await world.advance(60.0)
    assert world.store.count("ping", "east") == pings
    assert [view.place for view in world.engine._redis_health.views] == ["", "west"]


async def test_what_fails_at_the_old_place_says_nothing_of_the_new_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The race: a node dies with a call under way, and the topic has its new place before the call fails."""
    call = world.store.hold("claim", topic="a")
    call.error = StoreUnavailable("gone")
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    assert call.reached == 1
    world.store.places.put(a="west", a2="west")
    call.open()
    await settle()
    assert app.names() == ["x"]
    assert world.engine._redis_health.answers("b")
    assert said(caplog) == []


@pytest.mark.parametrize("verb", ["claim", "settle", "schedule"])
async def test_the_node_is_away_that_a_call_was_sent_on_to(
    world: World, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    """The one that sends it on is well, and so are its topics."""
    await world.put("x", topic="a")
    apps = [await world.app("a", "b")] if verb == "settle" else []
    call = world.store.hold(verb, topic="a")
    call.error = StoreUnavailable("gone")
    call.error.place = "west"
    world.store.fail("ping", StoreUnavailable("gone"), topic="west")
    async with anyio.create_task_group() as tasks:
        if verb == "claim":
            await world.app("a", "b")
        elif apps:
            apps[0].ack(apps[0].take())
        else:
            tasks.start_soon(refused, world.engine.schedule("a", NewTimer("y", b"", 0)))
        await settle()
        assert call.reached == 1
        world.store.places.put(a="west")  # as MOVED says
        call.open()
        await settle()
    assert said(caplog)[0] == (AWAY, "west")
    assert {node for _, node in said(caplog)} == {"west"}


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(StoreUnavailable):
        await call


# ----------------------------------------------------------------------------- outcomes


async def test_outcomes_of_one_place_wait_for_no_other(world: World) -> None:
    """Neither while a call to the other place is under way, nor while that place is known to be away."""
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("1", "2", topic="b")
    await world.advance(5.0)
    held = world.store.hold("settle", topic="a")
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    app.end(leases["x"])
    await settle()
    assert held.reached == 1
    app.receive(leases["2"])
    app.end(leases["1"])
    await world.advance(0.1)
    assert set(await world.stored("b")) == {"2"}
    assert world.store.items("extend") == [Extension("2", leases["2"].nonce, received=True)]
    held.error = StoreUnavailable("gone")
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    held.open()
    await world.advance(1.0)
    assert not world.engine._redis_health.answers("a")
    app.end(leases["2"])
    await settle()
    assert await world.stored("b") == {}
    assert world.engine._settler.unwritten == 1
    world.store.open_all()
    await world.advance(10.0)
    assert await world.stored("a") == {}
    assert world.engine._settler.idle


async def test_what_is_held_up_in_a_place_holds_up_no_other_topic_there(world: World) -> None:
    """The race: a slot of a Cluster is on its way, and each call about its topics waits for that. Producers,
    outcomes and receipts of the other topics of the node go on beside it."""
    app = await world.app("a", "a2")
    await world.put("x", topic="a")
    await world.put("1", "2", topic="a2")
    await world.advance(5.0)
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    world.store.places.hold_up("a")
    calls = [world.store.hold(verb, topic="a") for verb in ("settle", "schedule")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.schedule, "y", 60.0, "a")
        app.end(leases["x"])
        app.receive(leases["2"])
        await settle()
        with anyio.fail_after(60):
            await world.schedule("3", 60.0, "a2")
        app.end(leases["1"])
        await world.advance(0.1)
        assert set(await world.stored("a2")) == {"2", "3"}
        assert world.store.count("extend", "a2") == 1
        assert [held.reached for held in calls] == [1, 1]
        world.store.open_all()
    assert world.engine.ready() == []


async def test_outcomes_go_to_the_topic_s_new_place(world: World) -> None:
    """The old one does not answer any more. What waited goes at once, but behind what is under way: that
    comes first if it has to be tried again."""
    app = await world.app("a", "a2")
    await world.put("1", "2", topic="a")
    await world.put("3", topic="a2")
    await world.advance(5.0)
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    held = world.store.hold("settle", topic="a")
    app.end(leases["1"])
    await settle()
    app.end(leases["2"])
    app.receive(leases["3"])
    app.end(leases["3"])
    await settle()
    assert world.store.count("settle") == 1
    world.store.places.put(a="west", a2="west")
    await settle()
    assert await world.stored("a2") == {}
    assert world.store.count("settle", "a") == 1
    held.error = StoreUnavailable("gone")
    held.open()
    await settle()
    assert [each.timer_id for each in world.store.settlements()] == ["1", "3", "1", "2"]
    assert await world.stored("a") == {}
    assert world.engine._settler.idle


async def test_receipts_go_to_the_topic_s_new_place(world: World) -> None:
    """Those that wait for their outcome, and those whose call fails."""
    app = await world.app("a")
    await world.put("1", "2", topic="a")
    await world.advance(5.0)
    first, second = app.take()
    held = world.store.hold("extend", topic="a")
    app.receive(first)
    await world.advance(0.1)
    app.receive(second)
    world.store.places.put(a="west")
    held.error = StoreUnavailable("gone")
    held.open()
    await world.advance(0.1)
    receipts = [each.timer_id for each in world.store.items("extend") if isinstance(each, Extension)]
    assert (receipts[0], sorted(receipts[1:])) == ("1", ["1", "2"])
    assert world.engine._settler.idle


async def test_a_drain_writes_what_a_place_takes_that_answers(world: World) -> None:
    """While a call to another one is under way."""
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(5.0)
    held = world.store.hold("settle", topic="a")
    (x,) = [lease for lease in app.take() if lease.topic == "a"]
    app.end(x)
    await settle()
    assert held.reached == 1
    world.tasks.start_soon(world.engine.drain, 0.0)
    await settle()
    assert (await world.leased("a"), await world.leased("b")) == ({"x"}, set())
    assert world.engine.draining


async def test_a_topic_that_has_gone_is_not_waited_for_where_it_was(world: World) -> None:
    """The race: a call fails, and its topic has a place by then that is away; the topics that stay go on."""
    app = await world.app("a", "a2", "b")
    for name, topic in (("x", "a"), ("y", "a2"), ("z", "b")):
        await world.put(name, topic=topic)
    await world.advance(5.0)
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    for verb, where in (("settle", "b"), ("claim", "b"), ("ping", "west")):
        world.store.fail(verb, StoreUnavailable("gone"), topic=where)
    app.end(leases["z"])
    await world.advance(1.0)
    assert not world.engine._redis_health.answers("b")
    call = world.store.hold("settle", topic="a")
    call.error = StoreUnavailable("gone")
    app.end(leases["x"])
    await settle()
    app.end(leases["y"])
    world.store.places.put(a="west")
    call.open()
    await settle()
    assert await world.stored("a2") == {}


# ------------------------------------------------------------------------------- leases


async def test_leases_of_one_place_are_renewed_while_another_does_not_answer(world: World) -> None:
    """A call that hangs for longer than a lease lasts would cost all leases otherwise."""
    for topic in ("a", "b"):
        world.tune(topic, lease_ttl=6.0)
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(5.0)
    assert sorted(app.names()) == ["x", "y"]
    held = world.store.hold("extend", topic="a")
    await world.advance(30.0)
    assert held.reached == 1
    assert world.store.count("extend", "a") == 1
    assert set(app.names()) == {"x"}, "this one's lease has run out, and it alone comes again"
    assert await world.leased("b") == {"y"}
    assert world.engine.live() == []


async def test_an_extend_that_comes_during_a_call_is_not_forgotten(world: World) -> None:
    """It is renewed when that call is over, and not a tick later."""
    world.tune("a", renew=False)
    app = await world.app("a")
    await world.put("1", "2", topic="a")
    await world.advance(5.0)
    first, second = app.take()
    held = world.store.hold("extend", topic="a")
    app.extend(first)
    await settle()
    app.extend(second)
    await settle()
    assert world.store.count("extend") == 1
    held.open()
    await settle()
    assert [each.timer_id for each in world.store.items("extend") if isinstance(each, Extension)] == [
        "1",
        "2",
    ]


async def test_an_extend_is_not_forgotten_with_its_lane(world: World) -> None:
    """The race: its call hangs at a node that is gone, and all topics have another: nobody waits for it any
    more. Nothing else renews the lease."""
    world.tune("a", renew=False)
    app = await world.app("a")
    await world.put("x", topic="a")
    await world.advance(5.0)
    held = world.store.hold("extend", topic="a")
    app.extend(app.one())
    await settle()
    assert held.reached == 1
    world.store.places.put(a="west")
    await settle()
    assert world.store.count("extend") == 2


# ---------------------------------------------------------------------------- producers


async def test_producers_of_one_place_wait_for_no_other(world: World) -> None:
    """Though as many calls hang as a place may have."""
    held = world.store.hold("schedule", topic="a", times=9)
    for number in range(3):
        names = [f"{number}-{n}" for n in range(100)]
        many = {"a": NewTimers.of([NewTimer(name, b"", delay=0) for name in names])}
        world.tasks.start_soon(world.engine.schedule_many, many)
        await settle()
    assert held.reached == 2
    world.tasks.start_soon(world.engine.schedule, "b", NewTimer("y", b"", delay=0))
    await settle()
    assert set(await world.stored("b")) == {"y"}
    assert await world.stored("a") == {}


async def test_a_claim_that_hangs_again_keeps_no_more_than_one_place_of_the_streams_it_shares(
    world: World,
) -> None:
    """Pings are answered, and claims are not, as while a Cluster elects a new master: a try follows the
    other, and the application's other topics go on meanwhile."""
    app = await world.app("a", "b", max_outstanding=10)
    held = world.store.hold("claim", topic="a")
    held.error = StoreUnavailable("no master")
    await world.put("x", topic="a")
    await world.advance(6.0)
    assert held.reached == 1
    again = world.store.hold("claim", topic="a")
    held.open()
    await world.advance(1.0)
    assert again.reached == 1
    assert app.session.reserved == 1
    await world.put("y", topic="b")
    await world.advance(6.0)
    assert app.names() == ["y"]
    again.open()
    await settle()
    assert app.names() == ["x"]


# ------------------------------------------------------------------------------- upkeep


class Upkept(Doors):
    """Of `TopicStore` and `Promotions` what the upkeep calls, behind doors."""

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        return True

    async def topics(self) -> list[str]:
        return ["a", "a2", "b", "b2"]

    async def trim(self, topic: str, *, max_count: int, max_age: int) -> int:
        async def work() -> int:
            return 0

        return await self.through("trim", topic, work)

    async def orphans(self, topic: str, *, limit: int) -> tuple[list[str], bool]:
        return [], True

    async def tidy(self, topic: str) -> Tidied:
        async def work() -> Tidied:
            return Tidied()

        return await self.through("tidy", topic, work)


async def test_the_janitor_s_round_goes_on_where_it_is_answered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A place that does not answer costs it one call."""
    upkept = Upkept()
    upkept.fail("trim", StoreUnavailable("gone"), topic="a")
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    await janitor(world, upkept).step()
    assert [call.topic for call in upkept.calls] == ["a", "b", "b2"]


async def test_the_janitor_goes_on_where_another_partition_is_away(world: World) -> None:
    """The place of a topic answers, and that of one of its partitions does not: the other topics of the
    place have their turn."""
    upkept = Upkept()
    upkept.fail("trim", StoreUnavailable("gone"), topic="a")
    await janitor(world, upkept).step()
    assert [call.topic for call in upkept.calls] == ["a", "a2", "b", "b2"]


def janitor(world: World, upkept: Upkept) -> Janitor:
    """One that trims."""
    world.tune(dead_letters=DeadLetterPolicy(max_count=1))
    policy = world.policies["t"]
    topics = cast("TopicStore", upkept)
    return Janitor(topics, world.store.places, lambda _: policy, world.clock, world.counts)


async def test_lists_and_streams_are_tidied_where_it_is_answered(world: World) -> None:
    """A place that does not answer costs a round one call, and none while it is known to be away."""
    upkept, health = Upkept(), world.engine._redis_health
    upkept.fail("tidy", StoreUnavailable("gone"), topic="a")
    tidier = Tidier(
        cast("Promotions", upkept),
        cast("TopicStore", upkept),
        ["a", "a2", "b", "b2"],
        health,
        world.clock,
        world.counts,
    )
    await tidier.step()
    assert [call.topic for call in upkept.calls] == ["a", "b", "b2"]
    health.of("a").failed(StoreUnavailable("gone"))
    await tidier.step()
    assert [call.topic for call in upkept.calls[3:]] == ["b", "b2"]


# ------------------------------------------------------------------------------ metrics


class Shown(Gauges):
    """The topics that the engine showed last."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.connected: dict[str, bool] = {}

    def show(self, relay: RelayState, topics: Sequence[TopicStats]) -> None:
        self.topics = sorted(stats.topic for stats in topics)
        self.connected = dict(relay.connected)


async def test_metrics_show_the_topics_of_places_that_answer(world: World) -> None:
    """While a read of another place is under way, and while that place is known to be away, when nobody asks
    it any more; also where that is the place of the names of all topics."""
    world.topics.names = ["a", "b", "c"]
    shown = Shown()
    await world.engine.look(shown)
    await world.advance(FRESH)
    await world.engine.look(shown)
    assert shown.topics == ["a", "b", "c"]
    for lost, place, left in (("a", "east", ["b", "c"]), ("c", "", ["a", "b"])):
        await world.advance(FRESH)
        read = world.topics.hold("overview", topic=lost)
        world.tasks.start_soon(world.engine.look, shown)
        await world.advance(PATIENCE)
        assert shown.topics == left
        world.store.fail("ping", StoreUnavailable("gone"), topic=place)
        world.engine._redis_health.of(lost).failed(StoreUnavailable("gone"))
        read.open()
        await world.advance(FRESH)
        reads = world.topics.count("overview", lost)
        await world.engine.look(shown)
        assert shown.topics == left
        assert not shown.connected[place]
        assert world.topics.count("overview", lost) == reads
        world.store.open_all()
        await world.advance(10.0)
