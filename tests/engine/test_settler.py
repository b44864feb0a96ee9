"""Outcomes and receipts on their way to the store."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from relay.core.errors import GivenUp, StoreRefused, StoreUnavailable
from relay.core.outcomes import ACKED, Again, Extension, Verb
from relay.core.timers import ClaimedTimer, Content
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.session import Problem
from relay.engine.delivery.settler import RECEIPT_DELAY
from tests.settlements import End
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.leased import leased
from tests.worlds.engine.world import TOPIC, App, World

NAMES = [f"{n:04}" for n in range(700)]


async def test_outcomes_that_wait_together_are_written_together(world: World) -> None:
    """700 outcomes take two calls; a call takes at most 500."""
    await world.put(*NAMES)
    app = await world.app()
    app.ack(app.take())
    await settle()
    assert world.store.count("settle") == 2
    assert await world.stored() == {}
    assert world.counts.total["timers.settled ack"] == 700


@pytest.mark.parametrize(
    ("verb", "options", "calls"),
    [
        (Verb.ACK, {}, 1),
        (Verb.REJECT, {}, 4),
        (Verb.NACK, {}, 4),
        (Verb.RESCHEDULE, {"again": Again(delay=60_000_000, content=Content(b"x" * (3 << 20)))}, 4),
        (Verb.RESCHEDULE, {"again": Again(delay=60_000_000)}, 1),
    ],
)
async def test_a_call_moves_little_content(world: World, verb: Verb, options: Any, calls: int) -> None:
    """500 large ones in one script would hold the server up, or be more than it takes at all: for ever."""
    await world.put(*NAMES[:4], payload=b"x" * (3 << 20))
    app = await world.app()
    call = world.store.hold("settle")
    for lease in app.take():
        app.end(lease, verb, **options)
    call.open()
    await settle()
    assert world.store.count("settle") == calls
    assert world.counts.total[f"timers.settled {verb.value}"] == 4


async def test_what_is_released_together_moves_little_content(world: World) -> None:
    """Leases that end alike are one settlement, but for large ones, which are cut into calls, too."""
    for names, payload in (("abc", b"x" * (3 << 20)), ("def", b"x")):
        timers = [ClaimedTimer(n, payload, {}, "", 0, 1, n) for n in names]
        world.engine._dispatcher.release(leased(*timers))
    await settle()
    calls = [call.items for call in world.store.calls if call.verb == "settle"]
    names_of = [[each.timer_id for each in items if isinstance(each, End)] for items in calls]
    assert names_of == [["a"], ["b"], ["c", "d", "e", "f"]]


async def test_outcomes_gather_while_a_call_is_under_way(world: World) -> None:
    """What comes meanwhile goes with the next call."""
    await world.put("a", "b", "c")
    app = await world.app()
    first, *others = app.take()
    call = world.store.hold("settle")
    app.end(first)
    await settle()
    app.ack(others)
    await settle()
    assert world.store.count("settle") == 1
    call.open()
    await settle()
    assert world.store.count("settle") == 2
    assert await world.stored() == {}


async def test_receipts_are_written_as_renewals(world: World) -> None:
    """And count the attempt should the lease lapse."""
    await world.put("a", "b")
    app = await world.app()
    for lease in app.take():
        app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    assert world.store.count("extend") == 1
    await app.leave()
    for name in ("a", "b"):
        timer = await world.get(name)
        assert timer is not None
        assert timer.attempts == 1


async def test_a_receipt_gives_no_time_where_renewing_is_off(world: World) -> None:
    """There the lease is the handler's limit."""
    world.tune(renew=False)
    await world.put("a")
    app = await world.app()
    await world.advance(10.0)
    app.receive(app.one())
    await world.advance(20.0 + 5.0)
    assert app.one().timer.attempt == 2


async def test_an_end_drops_the_receipt_that_still_waits(world: World) -> None:
    """One operation per timer is enough: ACK says it all. So a receipt waits a moment."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    app.receive(lease)
    await world.advance(0.9 * RECEIPT_DELAY)
    app.end(lease)
    await world.advance(RECEIPT_DELAY)
    assert world.store.count("extend") == 0
    assert await world.stored() == {}


async def test_no_receipt_waits_for_later_ones(world: World) -> None:
    """A steady flow of receipts doesn't put the first one off."""
    await world.put("a", "b", "c")
    app = await world.app()
    for lease in app.take():
        app.receive(lease)
        await world.advance(0.4 * RECEIPT_DELAY)
    assert len(world.store.items("extend")) == 3


async def test_an_outcome_does_not_wait_with_the_receipts(world: World) -> None:
    """They lie there until their time has come; it is written at once."""
    await world.put("a", "b")
    app = await world.app()
    first, second = app.take()
    app.receive(first)
    await settle()
    app.end(second)
    await settle()
    assert [each.timer_id for each in world.store.settlements()] == ["b"]
    assert world.store.count("extend") == 0


async def test_two_leases_on_one_timer_go_into_separate_calls(world: World) -> None:
    """The store takes a timer once a call; the second waits."""
    await world.put("a")
    app = await world.app()
    lost = app.one()
    await world.put("a")  # somebody schedules it anew
    await world.advance(5.0)
    new = app.one()
    call = world.store.hold("settle", topic="other")
    app.end(lost)
    app.end(new)
    await settle()
    call.open()
    assert [settlement.nonce for settlement in world.store.settlements()] == [lost.nonce, new.nonce]
    assert world.store.count("settle") == 2
    assert app.complaints() == [Problem.STALE]
    assert await world.stored() == {}


async def test_a_stale_or_vanished_timer_is_told_and_counted(world: World) -> None:
    """The application learns that its outcome changed nothing."""
    await world.put("a", "b")
    app = await world.app()
    a, b = app.take()
    await world.put("a", delay=100.0)
    await world.engine.cancel(TOPIC, "b")
    app.ack([a, b])
    await settle()
    assert app.complaints() == [Problem.STALE, Problem.GONE]
    assert world.counts.total["timers.stale"] == 2
    assert world.counts.total["timers.settled ack"] == 0


async def test_keeps_everything_while_redis_is_away(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Outcomes do not age: they are written when it is back, however long that takes."""
    caplog.set_level(logging.INFO)
    await world.put("a", "b")
    app = await world.app()
    a, b = app.take()
    doors = [
        world.store.fail(verb, StoreUnavailable("away")) for verb in ("settle", "ping", "claim", "extend")
    ]
    app.end(a)
    await world.advance(20.0)
    app.end(b, Verb.NACK, retry_after=0)
    await world.advance(5.0)
    assert await world.leased() == {"a", "b"}
    assert doors[0].reached < 10
    for door in doors:
        door.open()
    await world.advance(10.0)
    assert list(await world.stored()) == ["b"]
    assert app.one().timer.attempt == 2
    assert app.complaints() == []
    assert [record.message for record in caplog.records] == [
        "Redis is away; trying again until it is back",
        "Redis is back",
    ]


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.REJECT])
async def test_a_repeated_call_whose_reply_was_lost_reports_no_false_problem(
    world: World, verb: Verb
) -> None:
    """The first try has done it; the second finds the timer gone, or no longer leased."""
    await world.put("a")
    app = await world.app()
    world.store.fail("settle", StoreUnavailable("reply lost"), after=True, times=1)
    app.end(app.one(), verb)
    await world.advance(1.0)
    assert world.store.count("settle") == 2
    assert app.complaints() == []
    assert world.counts.total[f"timers.settled {verb.value}"] == 1
    assert world.counts.total["timers.stale"] == 0


async def test_a_call_that_had_no_effect_is_no_excuse(world: World) -> None:
    """The first try came too late for Redis; the second is answered "gone", and that is nobody's doing but
    another's."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.engine.cancel(TOPIC, "a")
    world.store.fail("settle", GivenUp(), times=1)
    app.end(lease)
    await settle()
    assert world.store.count("settle") == 2
    assert app.complaints() == [Problem.GONE]
    assert world.counts.total["timers.stale"] == 1


@pytest.mark.parametrize(("wait", "stale"), [(1.0, 1), (100.0, 0)], ids=["in its lease", "behind it"])
async def test_an_outcome_behind_a_stale_receipt(world: World, wait: float, stale: int) -> None:
    """The application hears of it again. The outcome counts as stale where Redis has refused it; the relay
    itself answers one that comes after the lease's end."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.put("a", delay=1_000.0)
    app.receive(lease)
    await world.advance(1.0)
    assert app.complaints() == [Problem.STALE]
    await world.advance(wait)
    app.end(lease)
    await settle()
    assert app.complaints() == [Problem.STALE]
    assert world.counts.total["timers.stale"] == stale


async def test_a_refused_topic_does_not_hold_up_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of the wrong type under one topic: its timers come again, the others are settled."""
    await world.put("a", topic="bad")
    await world.put("b", topic="good")
    app = await world.app("bad", "good")
    world.store.fail("settle", StoreRefused("no"), topic="bad")
    world.store.fail("extend", StoreRefused("no"), topic="bad")
    for lease in app.take():
        app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    app.ack(app.held)
    await settle()
    assert await world.stored("good") == {}
    assert "Redis refuses to settle" in caplog.text
    assert app.session.unwritten == 0


async def test_an_error_that_nobody_thought_of_stops_no_settling(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said with its traceback."""
    await world.put("a", topic="bad")
    await world.put("b", topic="good")
    app = await world.app("bad", "good")
    world.store.fail("settle", RuntimeError("what is this"), topic="bad")
    app.ack(app.take())
    await settle()
    assert await world.stored("good") == {}
    assert "RuntimeError: what is this" in caplog.text


async def test_a_lost_lease_is_told_at_the_receipt(world: World) -> None:
    """A handler that starts too late can know; it is told once."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.put("a", delay=100.0)
    app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    assert app.complaints() == [Problem.STALE]
    assert lease.lost
    await world.advance(15.0)
    assert app.complaints() == []


async def test_no_receipt_is_kept_for_what_ended_while_redis_was_away(world: World) -> None:
    """Neither renewed later nor counted as unwritten for ever."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    call = world.store.hold("extend")
    call.error = StoreUnavailable("away")
    app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    app.end(lease)
    call.open()
    await world.advance(1.0)
    assert world.store.count("extend") == 1
    assert await world.stored() == {}
    assert world.engine._settler.idle


async def test_who_waits_for_all_hears_of_a_receipt_that_is_dropped(world: World) -> None:
    """Its lease has run out while Redis was away, so nothing is left to be written: a drain need not wait."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    call = world.store.hold("extend")
    call.error = StoreUnavailable("away")
    app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    over = anyio.Event()

    async def flush() -> None:
        await world.engine._settler.flush()
        over.set()

    world.tasks.start_soon(flush)
    await settle()
    app.session.give_up([lease.token])
    assert not over.is_set()
    call.open()
    await settle()
    assert over.is_set()


async def flushed(world: World, app: App) -> anyio.Event:
    """An event that is set once all of the application's outcomes are written."""
    event = anyio.Event()

    async def wait() -> None:
        await world.engine.flush(app.session)
        event.set()

    world.tasks.start_soon(wait)
    await settle()
    return event


async def test_flush_waits_for_the_session_s_own_outcomes(world: World) -> None:
    """Not for those of others, which may never cease."""
    mine, other = await world.app(), await world.app()
    await world.put(*NAMES[:20])
    world.hint(delay=0)
    await settle()
    call = world.store.hold("settle")
    mine.ack(mine.take())
    other_leases = other.take()
    await settle()
    done = await flushed(world, mine)
    other.end(other_leases.pop())
    assert not done.is_set()
    following = world.store.hold("settle")
    call.open()
    await settle()
    assert following.reached
    assert done.is_set()


async def test_flush_returns_under_constant_load_of_another_session(world: World) -> None:
    """Each call brings the other new work; still it ends."""
    await world.put("a", *NAMES)
    other = await world.app(max_outstanding=5)
    mine = await world.app(max_outstanding=1)
    stop = anyio.Event()

    async def load() -> None:
        while not stop.is_set():
            other.ack(other.take())
            await anyio.lowlevel.checkpoint()

    world.tasks.start_soon(load)
    mine.ack(mine.take())
    with anyio.fail_after(60):
        await world.engine.flush(mine.session)
    stop.set()
    assert mine.session.unwritten == 0


async def test_flush_ends_when_redis_refuses(world: World) -> None:
    """What is dropped is not waited for."""
    await world.put("a")
    app = await world.app()
    world.store.fail("settle", StoreRefused("no"))
    app.ack(app.take())
    assert (await flushed(world, app)).is_set()


async def test_several_may_wait_for_a_flush(world: World) -> None:
    """Streams that end at the same time all hear of the same call."""
    await world.put(*NAMES[:5])
    apps = [await world.app(max_outstanding=1) for _ in range(5)]
    call = world.store.hold("settle")
    for app in apps:
        app.ack(app.take())
    waiting = [await flushed(world, app) for app in apps]
    call.open()
    await settle()
    assert all(event.is_set() for event in waiting)


async def test_a_receipt_that_repeats_itself_is_one_receipt(world: World) -> None:
    """The client may send it twice."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    for _ in range(5):
        app.receive(lease)
    await world.advance(RECEIPT_DELAY)
    assert world.store.items("extend") == [Extension("a", lease.nonce, received=True)]


async def test_each_answer_reaches_its_own_delivery(world: World) -> None:
    """What is acknowledged is answered behind all else, whichever came first."""
    await world.put("a", "b", "c", "d")
    app = await world.app()
    a, b, c, d = app.take()
    await world.put("c", delay=500.0)  # a newer intent
    app.end(a)
    app.end(b, Verb.NACK, retry_after=60_000_000)
    app.end(c)
    app.end(d, Verb.NACK, retry_after=60_000_000)
    await settle()
    assert app.session.take().problems == [(c.token, Problem.STALE)]
    assert (
        world.store.count("settle"),
        world.counts.total["timers.settled ack"],
        world.counts.total["timers.settled nack"],
    ) == (1, 1, 2)


async def test_a_second_try_keeps_the_order(world: World) -> None:
    """What failed goes before what came meanwhile; once it is written nothing is remembered of it."""
    await world.put("a", "b", "c")
    app = await world.app()
    a, b, c = app.take()
    call = world.store.hold("settle", after=True)
    call.error = StoreUnavailable("away")
    app.end(b)
    app.end(a, Verb.NACK, retry_after=60_000_000)
    await settle()
    assert call.reached
    app.end(c)
    call.open()
    await world.advance(5.0)
    calls = [call.items for call in world.store.calls if call.verb == "settle"]
    names = [[each.timer_id for each in items if isinstance(each, End)] for items in calls]
    assert names == [["b", "a"], ["b", "a", "c"]]
    assert (app.complaints(), world.engine._settler.idle) == ([], True)


async def test_acknowledged_by_the_proof_of_each(world: World) -> None:
    """A stream's entries have one each, also those of one claim."""
    timers = [ClaimedTimer(n, b"", {}, "", 0, 1, n, proof=n.encode() * 20) for n in "abc"]
    leases = leased(*timers)
    session = world.engine.open([TOPIC], 10)
    world.engine._settler.settle(EndedLeases.of(leases, range(3), ACKED, session))
    await settle()
    assert [(s.timer_id, s.nonce) for s in world.store.settlements()] == [(n, n.encode() * 20) for n in "abc"]
