"""What faststream-redis-timers promises its users, told of both sides: each as publisher, each as worker.

A test with `worker` in its name's brackets runs with the relay in the place of the peer's subscriber, and
with that subscriber itself. Where the two differ, a test says so of each.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from relay.core.instants import SECOND
from tests.interop.neighbours import Neighbours, fresh, now
from tests.interop.sides import (
    SIDES,
    Call,
    Failed,
    Handler,
    Refused,
    Side,
    cancel,
    empty,
    no_timers,
    publish,
    score,
    working,
)
from tests.worlds.waiting import until

LEASE = 1.5
"""Seconds, for tests that wait for a lease's end."""
LONG_LEASE = 8.0
"""… and for one where it must be renewed, however busy the machine is."""
HOUR = 3600 * SECOND


# ------------------------------------------------------------------------------- the handler's end


async def test_a_timer_leaves_only_after_its_handler(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """While the handler runs the timer is in Redis, leased, and nobody else is given it; then it is gone."""
    hold = anyio.Event()
    await publish(pair, publisher)
    async with working(pair, worker, lambda _: hold.wait(), concurrency=1) as one:
        await one.called()
        leased_until = await score(pair)
        assert leased_until is not None
        assert leased_until > now()
        assert (await pair.sizes())[:2] == (1, 1)
        assert not (await pair.claim(fresh())).timers
        async with working(pair, "peer") as two:
            await publish(pair, publisher, "b")
            await two.called()
            assert {call.timer_id for call in two.calls} == {"b"}
            hold.set()
            await until(lambda: empty(pair))
    assert len(one.calls) == 1


async def test_a_handler_that_fails_is_called_again(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """With the same content: by the peer when the lease is over, by a relay as its retry policy says; a
    handler that returns ends it."""
    leased_until: list[int | None] = []

    async def fails_once(_: Call) -> None:
        leased_until.append(await score(pair))
        if len(leased_until) == 1:
            raise Failed

    await publish(pair, publisher, "a", b"{not json", headers={"trace": "1"})
    async with working(pair, worker, fails_once, lease=LEASE if worker == "peer" else 30.0) as one:
        second = await one.called(2)
        await until(lambda: empty(pair))
    first = one.calls[0]
    assert leased_until[0] is not None
    assert leased_until[0] > first.at
    assert second.at >= (first.at if worker == "relay" else leased_until[0])
    assert (second.timer_id, second.body, second.headers) == (first.timer_id, first.body, first.headers)
    if worker == "relay":  # the peer calls once more where its lease ends before its commit is written
        assert [call.attempt for call in one.calls] == [1, 2]


async def test_a_failure_at_a_relay_does_not_wait_for_the_lease(pair: Neighbours, publisher: Side) -> None:
    """What is raised comes again after the retry policy's back-off, here a second, the longest first one, and
    as attempt 2; the lease had minutes to go."""
    leased_until: list[int | None] = []

    async def fails_once(call: Call) -> None:
        leased_until.append(await score(pair))
        if call.attempt == 1:
            raise Failed

    await publish(pair, publisher)
    async with working(pair, "relay", fails_once, lease=600.0) as one:
        second = await one.called(2)
        await until(lambda: empty(pair))
    first = one.calls[0]
    assert leased_until[0] is not None
    assert first.at + SECOND <= second.at < leased_until[0]
    assert (first.attempt, second.attempt) == (1, 2)


@pytest.mark.slow
async def test_a_handler_that_always_fails(pair: Neighbours, worker: Side) -> None:
    """It is called for ever, on neither side is there a last attempt; a refusal ends it."""

    async def fails_thrice(_: Call) -> None:
        raise Failed if len(one.calls) < 4 else Refused

    await publish(pair, "peer")
    async with working(pair, worker, fails_thrice, lease=30.0 if worker == "relay" else 0.5) as one:
        await one.called(4)
        await until(lambda: empty(pair))
    if worker == "relay":  # the peer calls once more where its lease ends before its refusal is written
        assert len(one.calls) == 4


async def test_a_refused_timer_never_comes_again(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """Reject and RejectMessage remove it, without a retry."""

    async def refuses(_: Call) -> None:
        raise Refused

    await publish(pair, publisher)
    async with working(pair, worker, refuses) as one:
        await one.called()
        await until(lambda: empty(pair))
    assert len(one.calls) == 1


async def test_failures_of_the_peer_are_no_attempts(pair: Neighbours) -> None:
    """Its nack writes nothing, so a relay that takes over knows of no attempt but its own."""

    async def fails(_: Call) -> None:
        raise Failed

    await publish(pair, "peer")
    async with working(pair, "peer", fails, lease=0.1) as theirs:
        await theirs.called(2)
    async with working(pair, "relay") as ours:
        call = await ours.called()
        await until(lambda: empty(pair))
    assert call.attempt == 1


# --------------------------------------------------------------------------------- leases and deaths


async def test_of_claims_at_once_one_wins(pair: Neighbours, publisher: Side) -> None:
    """Two relays and two workers reach for the same hundred timers: each timer goes to one of them."""
    names = [f"t{number}" for number in range(100)]
    for name in names:
        await publish(pair, publisher, name)
    theirs = pair.broker.config.broker_config.store
    time = now() / SECOND

    async def peer(order: list[str]) -> list[str]:
        return [name for name in order if await theirs.claim(pair.topic, name, time, 30) is not None]

    async def relay() -> list[str]:
        found: list[str] = []
        while timers := (await pair.claim(fresh(), limit=7)).timers:
            found += [timer.timer_id for timer in timers]
        return found

    taken = await asyncio.gather(peer(names), relay(), peer(names[::-1]), relay())
    assert sorted(itertools.chain(*taken)) == sorted(names)


@pytest.mark.slow
@pytest.mark.parametrize("dead", SIDES, ids=lambda side: f"dead={side}")
async def test_a_dead_workers_timer_comes_again(
    pair: Neighbours, publisher: Side, dead: Side, worker: Side
) -> None:
    """One that took a timer and never said a word again: the next one has it when the lease is over."""
    await publish(pair, publisher)
    if dead == "relay":
        await pair.one(fresh(), lease=int(LEASE * SECOND))
    else:
        theirs = pair.broker.config.broker_config.store
        assert await theirs.claim(pair.topic, "a", now() / SECOND, cast("int", LEASE)) is not None
    leased_until = await score(pair)
    assert leased_until is not None
    async with working(pair, worker) as one:
        call = await one.called()
        await until(lambda: no_timers(pair))
    assert call.at >= leased_until
    if (dead, worker) == ("relay", "peer"):  # the record of the dead relay's lease
        assert await pair.sizes() == (0, 0, 1)
        await cancel(pair, "relay")
    assert await empty(pair)


async def test_two_workers_share_the_timers(
    pair: Neighbours, publisher: Side, worker: Side, another: Side
) -> None:
    """Any two on one topic: both have a part, and while nobody dies no timer comes twice."""
    meeting = (anyio.Event(), anyio.Event())

    def meet(me: int) -> Handler:
        async def handle(_: Call) -> None:
            meeting[me].set()
            await meeting[1 - me].wait()

        return handle

    names = [f"t{number}" for number in range(60)]
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(working(pair, side, meet(me)))
            for me, side in enumerate((worker, another))
        ]
        for name in names:
            await publish(pair, publisher, name)
        await until(lambda: empty(pair))
    assert sorted(call.timer_id for one in workers for call in one.calls) == sorted(names)
    assert all(one.calls for one in workers)


@pytest.mark.slow
async def test_a_handler_that_outlives_its_lease_at_the_peer(pair: Neighbours, another: Side) -> None:
    """Its lease is a limit for its handler: another has the timer while the first is at work on it."""
    hold = anyio.Event()
    await publish(pair, "peer")
    async with working(pair, "peer", lambda _: hold.wait(), lease=LEASE) as first:
        await first.called()
        async with working(pair, another, lambda _: hold.wait()) as second:
            call = await second.called()
            assert first.ended == 0, "both are at work"
            assert call.at >= first.calls[0].at
            hold.set()
            await until(lambda: empty(pair))


@pytest.mark.slow
async def test_a_handler_that_outlives_its_lease_at_a_relay(pair: Neighbours, another: Side) -> None:
    """Its lease is renewed: nobody else has the timer, for as long as the handler works."""
    hold = anyio.Event()
    await publish(pair, "peer")
    async with working(pair, "relay", lambda _: hold.wait(), lease=LONG_LEASE) as first:
        begun = await first.called()
        async with working(pair, another) as second:
            await until(lambda: now() > begun.at + int(1.5 * LONG_LEASE * SECOND))
            leased_until = await score(pair)
            assert leased_until is not None
            assert leased_until > now()
            assert second.calls == []
            hold.set()
            await until(lambda: empty(pair))
    assert (len(first.calls), len(second.calls)) == (1, 0)


async def test_concurrency_is_bounded(pair: Neighbours, worker: Side) -> None:
    """Of six timers two are handled at a time where two is the limit, and then all."""
    running, peak = 0, 0
    both_run = anyio.Event()

    async def handle(_: Call) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if running == 2:
            both_run.set()
        await both_run.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1

    for number in range(6):
        await publish(pair, "peer", f"t{number}")
    async with working(pair, worker, handle, concurrency=2) as one:
        await one.called(6)
        await until(lambda: empty(pair))
    assert peak == 2


async def test_the_servers_script_cache_is_flushed(pair: Neighbours, worker: Side) -> None:
    """Both load their scripts anew, in the midst of a delivery."""

    async def flushes(_: Call) -> None:
        await pair.redis.script_flush()

    await publish(pair, "peer")
    async with working(pair, worker, flushes) as one:
        await one.called()
        await until(lambda: empty(pair))
        await pair.redis.script_flush()
        await publish(pair, "relay", "b")
        await one.called(2)
        await until(lambda: empty(pair))
