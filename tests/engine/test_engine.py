"""The whole engine: producers, applications that come and go, drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest

from relay.core.errors import InvalidField, StoreUnavailable
from relay.core.outcomes import Verb
from relay.core.policy import Policies, RetryPolicy
from relay.core.ports import Stores, TopicStore
from relay.core.timers import Change, Changed, NewTimer, NewTimers, Scheduled
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


async def finished(world: World, work: Callable[[], Awaitable[None]]) -> anyio.Event:
    """An event that is set when the work is done."""
    done = anyio.Event()

    async def run() -> None:
        await work()
        done.set()

    world.tasks.start_soon(run)
    await settle()
    return done


async def drain(world: World, timeout: float) -> anyio.Event:
    return await finished(world, lambda: world.engine.drain(timeout))


# ------------------------------------------------------------------------- producers


async def test_schedules_reads_cancels(world: World) -> None:
    """What a producer asks for, with the answers that it expects."""
    engine = world.engine
    due = world.clock.server() + 5_000_000
    assert await engine.schedule(TOPIC, NewTimer("a", b"x", delay=5_000_000)) == Scheduled(
        due, Change.CREATED
    )
    assert await engine.schedule(TOPIC, NewTimer("a", b"y", due=due)) == Scheduled(due, Change.REPLACED)
    stored = await engine.get(TOPIC, "a")
    assert stored is not None
    assert stored.payload == b"y"
    page = await engine.page(TOPIC, state=None, limit=10, cursor="")
    assert [timer.timer_id for timer in page.timers] == ["a"]
    assert await engine.cancel(TOPIC, "a") == Changed(Change.CANCELLED)
    assert await engine.cancel(TOPIC, "a") == Changed(Change.GONE)
    assert world.counts.total["timers.scheduled"] == 2


@pytest.mark.parametrize("batch", [False, True])
async def test_what_is_stored_for_a_caller_who_has_gone(world: World, batch: bool) -> None:
    """His deadline ends while Redis works: his timer is counted, and this relay wakes for it."""
    world.tune(max_polling_interval=60.0)
    app = await world.app()
    stored = world.store.hold("schedule", after=True)
    timer = NewTimer("a", b"x", delay=2_000_000)
    many = {TOPIC: NewTimers.of([timer])}
    call = world.engine.schedule_many(many) if batch else world.engine.schedule(TOPIC, timer)
    gone = asyncio.ensure_future(call)
    await settle()
    assert stored.reached
    gone.cancel()
    stored.open()
    await world.advance(2.0)
    assert app.names() == ["a"]
    assert world.counts.total["timers.scheduled"] == 1


async def test_a_batch_answers_each_timer_by_itself(world: World) -> None:
    """Over several topics, with a bad one and an id that comes twice: the later one stands."""
    timers = [
        NewTimer("x", b"1", delay=0),
        NewTimer("bad", b"3", delay=10**18),
        NewTimer("x", b"4", delay=0),
    ]
    results = await world.engine.schedule_many(
        {"a": NewTimers.of(timers), "b": NewTimers.of([NewTimer("x", b"2", delay=0)]), "c": NewTimers.of([])}
    )
    changes = {topic: [getattr(each, "change", None) for each in some] for topic, some in results.items()}
    assert changes == {"a": [Change.CREATED, None, Change.REPLACED], "b": [Change.CREATED], "c": []}
    assert isinstance(results["a"][1], InvalidField)
    stored = await world.get("x", "a")
    assert stored is not None
    assert stored.payload == b"4"


# ------------------------------------------------------------------------- applications


async def test_a_broken_stream_releases_at_once(world: World) -> None:
    """What was received counts an attempt. All comes back together: see test_losses.py."""
    await world.put("a", "b")
    app = await world.app()
    received, _sent = app.take()
    app.receive(received)
    await world.put("c", "d")
    world.hint(delay=0)
    await settle()
    await app.leave(broken=True)
    assert await world.leased() == set()
    attempts = {name: getattr(await world.get(name), "attempts", None) for name in "abcd"}
    assert attempts == {"a": 1, "b": 0, "c": 0, "d": 0}
    assert (await world.app()).names() == list("abcd")
    assert world.counts.total["timers.released"] == 4


async def test_an_orderly_end_makes_no_suspects(world: World) -> None:
    """What it leaves behind comes again in one batch, also where each loss would make a suspect."""
    world.tune(retry=RetryPolicy(max_attempts=1))
    await world.put("a", "b")
    app = await world.app()
    app.take()
    await app.leave(broken=False)
    assert await world.leased() == set()
    assert (await world.app()).names() == ["a", "b"]


async def test_released_timers_go_to_another_application_at_once(world: World) -> None:
    """On the same relay: neither polling nor the lease's end is waited for."""
    app, other = await world.app(), await world.app(max_outstanding=1)
    await world.put("a")
    world.hint(delay=0)
    await settle()
    taken, heir = (app, other) if app.session.leases else (other, app)
    taken.take()
    world.tune(max_polling_interval=60.0)
    await taken.leave(broken=True)
    world.hint(delay=0)  # what the store publishes
    await settle()
    assert heir.names() == ["a"]


async def test_the_application_s_drain_takes_back_what_was_not_sent(world: World) -> None:
    """Released at once, without an attempt, for others to take; what it holds it may still settle."""
    await world.put("a")
    app = await world.app()
    (held,) = app.take()
    await world.put("b")
    world.hint(delay=0)
    await settle()
    world.engine.quiesce(app.session)
    await settle()
    assert await world.leased() == {"a"}
    assert app.names() == []
    assert not app.drained
    app.end(held)
    await settle()
    assert await world.stored() == {"b": (await world.stored())["b"]}


async def test_a_topic_is_watched_while_it_has_an_application(world: World) -> None:
    """Hints are wanted from the first to the last one."""
    first, second = await world.app(), await world.app()
    assert world.hints.count("watch") == 1
    await first.leave()
    assert TOPIC in world.hints.watchers
    await second.leave()
    assert TOPIC not in world.hints.watchers


async def test_an_application_that_comes_while_the_last_one_leaves_is_not_deaf(world: World) -> None:
    """Detach and attach on the same topic race; whichever call is slow, hints are heard in the end."""
    first = await world.app()
    unwatch = world.hints.hold("unwatch")
    await first.leave()
    assert unwatch.reached
    second = await world.app()
    unwatch.open()
    await settle()
    await world.put("a")
    world.hint(delay=0)
    await settle()
    assert second.names() == ["a"]


async def test_an_application_that_leaves_while_its_topic_is_subscribed_leaves_nobody_deaf(
    world: World,
) -> None:
    """The second one came while the first one's subscription was under way, and relies on it."""
    watch = world.hints.hold("watch")
    first = await world.app("a", "t")
    assert watch.reached
    second = await world.app("t")
    await first.leave(broken=True)
    watch.open()
    await settle()
    assert set(world.hints.watchers) == {"t"}
    await world.put("x")
    world.hint(delay=0)
    await settle()
    assert second.names() == ["x"]


async def test_nothing_waits_for_a_subscription(world: World) -> None:
    """While Redis hangs, a stream opens and closes all the same."""
    world.hints.hold("watch", times=9)
    world.hints.hold("unwatch", times=9)
    await world.put("a")
    app = await world.app()
    assert app.names() == ["a"]
    await app.leave()
    assert await world.leased() == set()


async def test_an_engine_that_does_not_run_takes_no_application(world: World) -> None:
    """And has nothing to clean up afterwards."""
    engine = world.engine
    stopped = type(engine)(
        Stores(world.store, cast("TopicStore", world.topics), world.hints, world.store.places),
        Policies(world.policy),
        world.counts,
        world.clock,
    )
    session = stopped.open([TOPIC], 1)
    with pytest.raises(RuntimeError, match="not running"):
        stopped.attach(session)
    stopped.detach(session, broken=True)


async def test_an_application_that_comes_and_goes_leaks_nothing(world: World) -> None:
    """A thousand short streams leave no pollers, sessions or leases."""
    await world.put("a", "b")
    for n in range(300):
        app = await world.app(max_outstanding=1 + n % 3)
        if n % 2:
            app.take()
        await app.leave(broken=n % 5 == 0)
    assert world.engine._loops._pollers == {}
    assert world.engine._dispatcher.sessions() == set()
    assert await world.leased() == set()
    assert world.engine._settler.idle


# -------------------------------------------------------------------------------- drain


async def outlast(world: World, timeout: float) -> anyio.Event:
    return await finished(world, lambda: world.engine.outlast(timeout))


async def test_outlasting_goes_on_until_the_application_has_drained(world: World) -> None:
    """What falls due meanwhile is delivered, and what is under way then is waited for."""
    app = await world.app()
    done = await outlast(world, 30.0)
    await world.put("a")
    world.hint(delay=0)
    await settle()
    lease = app.one()
    assert world.engine.ready() == []
    world.engine.quiesce(app.session)
    await world.advance(1.0)
    app.end(lease)
    await world.advance(1.0)
    assert not done.is_set(), "its stream is open"
    await app.leave()
    await world.advance(0.1)
    assert done.is_set()
    assert not app.drained, "nobody told it to"


async def test_outlasting_ends_with_its_time(world: World) -> None:
    await world.app()
    done = await outlast(world, 30.0)
    await world.advance(29.9)
    assert not done.is_set()
    await world.advance(0.2)
    assert done.is_set()


async def test_nobody_is_outlasted_at_once(world: World) -> None:
    """No stream, a stream that has ended, and a pushed application that can't be called."""
    assert (await outlast(world, 30.0)).is_set()
    app = await world.app()
    pushed = await world.app("pushed")
    done = await outlast(world, 30.0)
    await app.leave()
    await world.advance(0.1)
    assert not done.is_set()
    world.engine.resize(pushed.session, 0)
    await world.advance(0.1)
    assert done.is_set()


async def test_drain_says_so_waits_and_ends(world: World) -> None:
    """The application finishes what it has; nothing new is claimed."""
    await world.put("a", "b")
    app = await world.app()
    leases = app.take()
    done = await drain(world, 30.0)
    assert world.engine.ready() == ["draining"]
    app.take()
    assert app.drained
    await world.schedule("c")
    await world.advance(10.0)
    assert not done.is_set()
    assert await world.leased() == {"a", "b"}
    app.ack(leases)
    await settle()
    await app.leave()
    await world.advance(0.1)
    assert done.is_set()
    assert list(await world.stored()) == ["c"]
    assert await world.leased() == set()


async def test_drain_gives_up_after_its_time_and_releases_what_is_left(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """At once and honestly: a received delivery counts."""
    await world.put("a", "b")
    app = await world.app()
    received, _ = app.take()
    app.receive(received)
    done = await drain(world, 20.0)
    await world.advance(19.9)
    assert await world.leased() == {"a", "b"}
    await world.advance(0.2)
    assert done.is_set()
    assert await world.leased() == set()
    attempts = [getattr(await world.get(name), "attempts", None) for name in "ab"]
    assert attempts == [1, 0]
    assert caplog.text == ""
    other = await world.relay()
    assert (await world.app(engine=other)).names() == ["a", "b"], "no suspects: the application lives"


async def test_drain_releases_at_once_what_was_not_sent(world: World) -> None:
    """Another relay can have it while the application works on."""
    await world.put("a")
    app = await world.app()
    app.take()
    await world.put("b")
    world.hint(delay=0)
    await settle()
    await drain(world, 20.0)
    assert await world.leased() == {"a"}


async def test_a_claim_under_way_at_the_drain_is_released(world: World) -> None:
    """Before drain returns: nothing is leased afterwards."""
    await world.put("a")
    claim = world.store.hold("claim", after=True)
    await world.app()
    done = await drain(world, 0.0)
    await world.advance(0.1)
    assert await world.leased() == {"a"}
    assert not done.is_set()
    claim.open()
    await world.advance(0.1)
    assert done.is_set()
    assert await world.leased() == set()


async def test_a_claim_that_fails_during_the_drain_does_not_hold_it_up(world: World) -> None:
    """A poller that waits for Redis to come back has no claim under way."""
    world.store.fail("claim", StoreUnavailable("away"))
    world.store.fail("ping", StoreUnavailable("away"))
    await world.app()
    done = await drain(world, 0.0)
    await world.advance(0.1)
    assert done.is_set()


async def test_an_application_that_comes_during_the_drain_is_told_at_once(world: World) -> None:
    """It gets nothing, and does not hold up the drain, not even by staying."""
    stays = await world.app()
    done = await drain(world, 20.0)
    late = await world.app()
    late.take()
    assert late.drained
    await world.schedule("a")
    assert await world.leased() == set()
    await stays.leave()
    await world.advance(0.1)
    assert done.is_set()
    later = await world.app()
    later.take()
    assert later.drained
    await late.leave()
    await later.leave(broken=True)


async def test_what_is_said_after_the_drain_gave_up_harms_nothing(world: World) -> None:
    """The stream may still be there for a moment."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await drain(world, 0.0)
    await world.advance(0.1)
    app.receive(lease)
    app.extend(lease)
    app.end(lease)
    await settle()
    assert list(await world.stored()) == ["a"]
    assert len(app.complaints()) == 3
    await app.leave(broken=True)


async def test_drain_writes_the_last_outcomes(world: World) -> None:
    """Also those whose call is under way when it begins."""
    await world.put("a", "b")
    app = await world.app()
    call = world.store.hold("settle")
    a, b = app.take()
    app.end(a)
    await settle()
    app.end(b, Verb.NACK, retry_after=0)
    await app.leave()
    done = await drain(world, 10.0)
    assert not done.is_set()
    call.open()
    await world.advance(0.1)
    assert done.is_set()
    stored = await world.get("b")
    assert stored is not None
    assert stored.attempts == 1
    assert list(await world.stored()) == ["b"]


async def test_drain_ends_though_redis_is_away(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that timers will come again later than they might have."""
    monkeypatch.setattr("relay.engine.engine.FLUSH_TIMEOUT", 0.05)
    caplog.set_level(logging.ERROR)
    await world.put("a")
    app = await world.app()
    app.take()
    for verb in ("settle", "ping", "claim", "extend"):
        world.store.fail(verb, StoreUnavailable("away"))
    with anyio.fail_after(60):
        await world.engine.drain(0.0)
    assert "Redis did not take the last releases" in caplog.text
