"""Push to applications that flap, pass on others' words, or are reached by odd ways: what stays true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import anyio
import grpc
import pytest

from relay.api import frames
from relay.core.pacing import FailureBackoff
from relay.engine.delivery.leases import Lease
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler_pb
from tests.rpc.handler import Batcher, Handler, Server, Wire, pushing
from tests.rpc.test_push import TRACEPARENT, attempts, gone, schedule
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import LATER
from tests.worlds.waiting import until


@pytest.fixture(params=[Handler, Batcher])
async def handler(request: pytest.FixtureRequest) -> Handler:
    made: Handler = request.param(receipts=True)
    return made


async def test_an_application_that_flaps_has_no_more_calls_than_max_concurrent(
    relay: Served, handler: Handler, application: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What is under way when it says NOT_SERVING goes on, and keeps its place."""
    caplog.set_level("INFO")
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    async def heard(words: str, times: int) -> None:
        await until(lambda: [each.getMessage() for each in caplog.records].count(words) == times, words)

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=2):
        await schedule(relay, *"abcdef")
        await until(lambda: handler.active == 2, "two are being handled")
        for turn in range(1, 4):
            await application.say(serving=False)
            await heard("the application can't be called; its timers wait", turn)
            await application.say(serving=True)
            await heard("the application can be called", turn + 1)
            await anyio.wait_all_tasks_blocked()
        release.set()
        await gone(relay)
    assert handler.peak == 2


async def test_the_wait_for_a_handler_begins_anew_after_a_success(
    relay: Served, handler: Handler, application: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one call at a time, too."""
    failures: list[int] = []

    def failed(backoff: FailureBackoff) -> float:
        backoff._failures += 1
        failures.append(backoff._failures)
        return 0.0

    async def act(received: delivery.Delivery, context: Any) -> Any:
        if received.timer_id in "ace" and handler.starts[received.timer_id] == 1:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not yet")

    monkeypatch.setattr(FailureBackoff, "failed", failed)
    handler.act, handler.receipts = act, False
    async with pushing(relay, application.address, max_concurrent=1):
        for timer_id in "abcdef":
            await schedule(relay, timer_id)
            await gone(relay)
    assert failures == [1, 1, 1]


async def test_a_connection_that_is_made_anew_at_once_has_broken_all_the_same(
    relay: Served, handler: Handler, wire: Wire
) -> None:
    """Only the call whose receipt came is an attempt, though the next connection has seen no receipt yet."""
    release = asyncio.Event()

    async def act(received: delivery.Delivery, _: Any) -> Any:
        if received.timer_id == "started":
            await release.wait()

    handler.act = act
    async with pushing(relay, wire.address, max_concurrent=10):
        await schedule(relay, "started")
        await until(lambda: bool(relay.store.items("extend")), "its receipt is written")
        handler.gate.clear()
        handler.reached.clear()
        await schedule(relay, "a", "b")
        await until(lambda: handler.reached.keys() == {"a", "b"}, "they wait there")
        wire.snap()
        await until(lambda: len(relay.store.items("settle")) >= 3, "all are settled")
        counted = {name: await attempts(relay, name) for name in ("a", "b", "started")}
        handler.gate.set()
        release.set()
        await gone(relay)
    assert counted == {"a": 0, "b": 0, "started": 1}


async def test_a_timer_that_no_message_can_carry_fails_alone(
    relay: Served, handler: Handler, application: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose occurrence somebody else has named in no UTF-8."""
    fill = frames._fill

    def picky(messages: Any, leases: Iterable[Lease]) -> None:
        leases = list(leases)
        for lease in leases:
            if lease.timer_id == "odd":
                lease.leases.timers.occurrence_ids[lease.place] = "\udcff"
        fill(messages, leases)

    monkeypatch.setattr(frames, "_fill", picky)
    relay.tune(retry=LATER)
    async with pushing(relay, application.address):
        await schedule(relay, "odd", "a", "b")
        await until(lambda: handler.starts.keys() == {"a", "b"}, "the others are delivered")
        await until(lambda: len(relay.store.items("settle")) == 3, "all are settled")
        await relay.engine._settler.flush()
        assert await attempts(relay, "odd") == 1


async def test_words_that_a_handler_passes_on_are_its_own(
    relay: Served, handler: Handler, application: Server
) -> None:
    """A call of its own that found no connection ends in the words that gRPC has for one of ours."""

    async def act(_: delivery.Delivery, context: Any) -> Any:
        words = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.9:5432: refused"
        await context.abort(grpc.StatusCode.UNAVAILABLE, words)

    handler.act, handler.receipts = act, False
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
        assert await attempts(relay) == 1
    assert handler.starts["a"] == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_a_call_that_fails_before_its_receipt_is_no_attempt(
    relay: Served, handler: Handler, application: Server, code: grpc.StatusCode
) -> None:
    """Where receipts are sent: it looks like a connection that broke and was made anew unnoticed."""

    async def act(received: delivery.Delivery, context: Any) -> Any:
        if received.timer_id == "a" and handler.starts["a"] == 1:
            await context.abort(code, "connections to all backends failing; last error: refused")

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "first")
        await gone(relay)
        handler.receipts = False  # it fails before its handler would say so
        await schedule(relay, "a")
        await gone(relay)
    assert handler.attempts() == [1, 1]


async def test_a_call_that_is_answered_is_not_cancelled(relay: Served) -> None:
    """Servers may write the status after the answer; those that count resets would end the connection."""
    ends: list[str] = []

    async def deliver(_: Any, context: Any) -> None:
        try:
            await context.write(delivered)
            await asyncio.sleep(0.05)
            ends.append("ended")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    delivered = handler_pb.TimerHandlerDeliverResponse()
    server = grpc.aio.server()
    slow = grpc.unary_stream_rpc_method_handler(
        deliver,
        handler_pb.TimerHandlerDeliverRequest.FromString,
        handler_pb.TimerHandlerDeliverResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("relay.v1.TimerHandler", {"Deliver": slow}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with pushing(relay, f"127.0.0.1:{port}"):
        await schedule(relay, "a", "b", "c")
        await gone(relay)
        await until(lambda: len(ends) == 3, "the calls have ended")
    await server.stop(0)
    assert ends == ["ended"] * 3


async def test_no_proxy_stands_between_relay_and_application(
    relay: Served, handler: Handler, application: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's http_proxy is for the world outside."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    async with pushing(relay, application.address):
        await schedule(relay, "a")
        await gone(relay)
    assert handler.starts["a"] == 1


async def test_a_trace_context_too_long_for_metadata_keeps_no_timer_back(
    relay: Served, handler: Handler, application: Server
) -> None:
    headers = {"traceparent": TRACEPARENT, "tracestate": "a=" + 30_000 * "x"}
    async with pushing(relay, application.address):
        await schedule(relay, "a", headers=headers)
        await gone(relay)
    assert dict(handler.seen[0].headers) == headers
    if not isinstance(handler, Batcher):
        assert handler.metadata[0]["traceparent"] == TRACEPARENT
        assert "tracestate" not in handler.metadata[0]


@pytest.mark.slow
async def test_calls_whose_leases_are_lost_count_against_max_concurrent(
    relay: Served, handler: Handler, application: Server
) -> None:
    """A timer that is rescheduled while its handler runs waits, where every place has such a handler."""
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    def tokens() -> set[bytes]:
        return {lease.token for _, lease in relay.engine._dispatcher.leases()}

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=2, lease_ttl=4.0):
        await schedule(relay, "a", "b")
        await until(lambda: handler.active == 2, "two are being handled")
        lost = tokens()
        await schedule(relay, "a", "b")
        await until(lambda: len(tokens()) == 2 and not lost & tokens(), "both are leased anew")
        await anyio.wait_all_tasks_blocked()
        release.set()
        await gone(relay)
    assert handler.peak == 2
    assert handler.starts == {"a": 2, "b": 2}


async def test_what_a_stopping_application_does_not_take_says_nothing_of_its_handlers(
    relay: Served, handler: Handler, application: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused as UNIMPLEMENTED after NOT_SERVING: released, and called again as soon as it serves."""
    caplog.set_level("INFO")

    async def act(_: delivery.Delivery, context: Any) -> Any:
        if handler.starts["a"] == 1:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the application stops")

    handler.act, handler.receipts = act, False
    handler.gate.clear()
    async with pushing(relay, application.address):
        await schedule(relay, "a")
        await until(lambda: handler.reached["a"] == 1, "it waits there")
        await application.say(serving=False)
        await until(lambda: "can't be called" in caplog.text, "it is heard")
        handler.gate.set()
        await until(lambda: bool(relay.store.items("settle")), "it is released")
        assert await attempts(relay) == 0
        await application.say(serving=True)
        await gone(relay)
    assert "no handler" not in caplog.text


async def test_what_an_earlier_connection_has_told_of_receipts_holds_for_the_next(
    relay: Served, handler: Handler, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call on a connection breaks before its handler has started, however long it was open."""
    monkeypatch.setattr("relay.rpc.push_calls.RECEIPT_AFTER", 0.0)
    async with pushing(relay, wire.address):
        await schedule(relay, "first")
        await gone(relay)
        await wire.cut()
        await wire.lay()
        handler.gate.clear()
        await schedule(relay, "a")
        session = next(iter(relay.engine._dispatcher.sessions()))
        await until(lambda: session.in_flight == 1, "it is under way")
        await anyio.wait_all_tasks_blocked()
        await wire.cut()
        await until(lambda: len(relay.store.items("settle")) == 2, "it is given back")
        await relay.engine._settler.flush()
        assert handler.starts["a"] == 0
        assert await attempts(relay, "a") == 0
        handler.gate.set()
