"""What a policy's bounds do to calls and streams of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc
import pytest

from relay.core.timers import NewTimer
from relay.core.trust.access import AccessPolicy
from relay.core.trust.bounds import Bound
from relay.core.trust.globs import Glob
from relay.core.trust.usage import Bounds
from relay.engine.clock import SystemClock
from relay.v1 import delivery_service_pb2 as pb
from relay.v1.timer_service_pb2 import ScheduleRequest
from tests.worlds.engine.fake_clock import FakeClock
from tests.worlds.engine.served import Served, gone, put, served
from tests.worlds.engine.stubs import Stream, spec, unpacked
from tests.worlds.waiting import PATIENCE, until

ANYBODY = [Glob("anonymous")]


@asynccontextmanager
async def bounded(
    clock: Any = None, **numbers: Any
) -> AsyncIterator[tuple[Served, Bounds, list[tuple[str, ...]]]]:
    """A relay with one bound for all; what it told of it."""
    told: list[Any] = []
    bounds = Bounds(
        (clock or SystemClock()).now,
        lambda *what: told.append(what),
        lambda principal, _: told.append((principal, "held back")),
    )
    bounds.use(AccessPolicy(bounds=[Bound("it", ANYBODY, **numbers)]))
    async with served(bounds_of_callers=bounds) as relay:
        yield relay, bounds, told


async def refusal(call: Any) -> float:
    """The seconds after which the relay wants to be asked again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught, anyio.fail_after(PATIENCE):
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, caught.value
    (retry,) = unpacked(caught.value.trailing_metadata())
    pause: Any = retry.retry_delay  # type: ignore[attr-defined]
    return float(pause.ToMicroseconds()) / 1e6


async def test_calls_a_second() -> None:
    """Refused before anything is done for it, and before it is parsed."""
    clock = FakeClock()
    async with bounded(clock, calls_per_second=0.5) as (relay, _, told):
        await put(relay, "a")
        assert await refusal(relay.timers.Schedule(ScheduleRequest(timer=spec("b")))) == 2.0
        raw: Any = relay.channel.unary_unary("/relay.v1.TimerService/Schedule", response_deserializer=None)
        assert await refusal(raw(b"\xff")) == 2.0
        assert relay.store.count("schedule") == 1
        await clock.advance(2.0)
        await put(relay, "b")
    assert told == [("anonymous", "calls_per_second")] * 2


async def test_calls_at_a_time() -> None:
    """A call holds its place until it ends: answered, failed, or given up by its caller."""
    async with bounded(max_calls=1) as (relay, bounds, _):
        usage = bounds.begin()
        assert usage is not None
        usage.end()
        door = relay.store.hold("schedule", times=3)
        for ends in ("answered", "given up"):
            first = relay.timers.Schedule(ScheduleRequest(timer=spec(ends)))
            waiting = asyncio.ensure_future(first)
            await until(lambda: usage.calls == 1, "the first is under way")
            assert await refusal(relay.timers.Schedule(ScheduleRequest(timer=spec("b")))) > 0
            if ends == "answered":
                door.open()
                await waiting
                door = relay.store.hold("schedule", times=3)
            else:
                first.cancel()
            await until(lambda: usage.calls == 0, "its place is free")
        relay.store.open_all()
        with pytest.raises(grpc.aio.AioRpcError):
            await relay.timers.Schedule(ScheduleRequest(timer=spec(topic="")))
        await put(relay, "c")


async def test_bytes_count_both_ways() -> None:
    """What a call brings, and what its answer has."""
    clock = FakeClock()
    async with bounded(clock, bytes_per_second=1000) as (relay, _, _told):
        request = ScheduleRequest(timer=spec("a", payload=bytes(3000)))
        answer = await relay.timers.Schedule(request)
        spent = request.ByteSize() + answer.ByteSize()
        refused = ScheduleRequest(timer=spec("b", payload=bytes(500)))
        pause = 0.0
        for _ in range(2):  # what is refused has come, too
            spent += refused.ByteSize()
            pause = await refusal(relay.timers.Schedule(refused))
            assert pause == pytest.approx((spent - 999) / 1000, abs=1e-5)
        await clock.advance(pause)
        await put(relay, "b")


@pytest.mark.parametrize("other", [{"calls_per_second": 1.0}, {"max_calls": 0}])
async def test_bytes_of_a_call_that_is_over_another_bound(other: dict[str, Any]) -> None:
    """They count, and the caller is told to wait for them as well."""
    async with bounded(FakeClock(), bytes_per_second=1000, **other) as (relay, _, told):
        if "calls_per_second" in other:
            await put(relay, "a")
        request = ScheduleRequest(timer=spec("b", payload=bytes(9000)))
        assert 8.0 < await refusal(relay.timers.Schedule(request)) < 9.5
        assert told == [("anonymous", *other)]


async def test_streams_beyond_the_bound_are_refused_until_one_ends() -> None:
    async with bounded(max_streams=1) as (relay, _, told):
        first = await relay.stream().open()
        second = relay.stream()
        assert await refusal(second.call.read()) > 0
        assert told == [("anonymous", "max_streams")]
        await put(relay, "a")
        (delivery,) = await first.deliveries(1)
        await first.ack([delivery])
        await first.finish()
        await relay.stream().open()


@asynccontextmanager
async def resting(**numbers: Any) -> AsyncIterator[tuple[Served, FakeClock, Stream, pb.Delivery, Bounds]]:
    """A stream of one place that has had a large delivery, and rests. Its clock is in the test's hand."""
    clock = FakeClock()
    async with bounded(clock, **numbers) as (relay, bounds, told):
        stream = await relay.stream().open(max_outstanding=1)
        (session,) = await relay.attached()
        session._clock = clock
        await relay.engine.schedule("t", NewTimer("large", bytes(50_000), delay=0))
        (large,) = await stream.deliveries(1)
        await until(lambda: ("anonymous", "held back") in told, "the stream rests")
        yield relay, clock, stream, large, bounds


async def test_deliveries_wait_where_calls_are_refused() -> None:
    """The next frame comes when the last is paid for. Calls go on meanwhile, and so do outcomes."""
    async with resting(bytes_per_second=10_000) as (relay, clock, stream, large, _):
        (session,) = await relay.attached()
        await stream.ack([large])
        await put(relay, "b")
        await until(lambda: session._unsent == 1, "the next is claimed, and waits")
        await gone(relay, "large")
        await clock.advance(3.9)
        assert session._unsent == 1
        await clock.advance(0.2)
        await stream.deliveries(1)


async def test_a_drain_does_not_wait_for_bytes() -> None:
    """It would take a day."""
    async with resting(bytes_per_second=1) as (relay, _, stream, large, _bounds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.engine.drain, PATIENCE)
            assert (await stream.next()).WhichOneof("message") == "drain"
            await stream.ack([large])
            await stream.finish()
        assert await relay.engine.get("t", "large") is None


async def test_another_stream_does_not_begin_with_a_frame_beyond_the_bound() -> None:
    """Whoever opens one for each frame would have no bound."""
    async with resting(bytes_per_second=10_000) as (relay, clock, stream, large, _):
        await stream.ack([large])
        await stream.finish()
        second = await relay.stream().open(max_outstanding=1)
        (session,) = await relay.attached()
        await put(relay, "b")
        await until(lambda: session._unsent == 1, "the next is claimed, and waits")
        await clock.advance(3.9)
        assert session._unsent == 1
        await clock.advance(0.2)
        await second.deliveries(1)


async def test_a_rest_ends_with_the_bound_that_asked_for_it() -> None:
    """Whoever mends a rate that was far too low must not have to restart the applications."""
    async with resting(bytes_per_second=1) as (relay, clock, stream, large, bounds):
        (session,) = await relay.attached()
        await stream.ack([large])
        await put(relay, "b")
        await until(lambda: session._unsent == 1, "the next is claimed, and waits")
        bounds.use(AccessPolicy(bounds=[Bound("it", ANYBODY, bytes_per_second=1_000_000)]))
        await clock.advance(1.0)
        await stream.deliveries(1)


async def test_a_drain_ends_the_pause_of_what_an_application_says() -> None:
    """Outcomes that nobody reads are deliveries that come again."""
    async with resting(bytes_per_second=1) as (relay, _, stream, large, bounds):
        bounds._of("anonymous").said(1_000_000)
        await stream.settle(received=[large.token])
        (session,) = await relay.attached()
        await until(lambda: session.leases[large.token].received, "the next word waits")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.engine.drain, PATIENCE)
            assert (await stream.next()).WhichOneof("message") == "drain"
            await stream.ack([large])
            await stream.finish()
        assert await relay.engine.get("t", "large") is None
