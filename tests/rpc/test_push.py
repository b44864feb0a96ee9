"""Push: what each end of a call means, and that an application which can't be called loses nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.core.outcomes import Extension, Verb
from relay.core.policy import RetryPolicy
from relay.rpc.application import Application
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler_pb
from relay.v1 import timer_service_pb2 as service
from tests.rpc.handler import Batcher, Handler, Server, Wire, answer, pushing, serve
from tests.settlements import End
from tests.worlds.engine.served import Served, served
from tests.worlds.engine.stubs import ACK, EXTEND, LATER, NACK, REJECT, invalid_field, spec
from tests.worlds.waiting import PATIENCE, until

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(params=[Handler, Batcher])
async def handler(request: pytest.FixtureRequest) -> Handler:
    made: Handler = request.param()
    return made


@pytest.fixture
async def closed_relay() -> AsyncIterator[Served]:
    async with served(closed=True) as relay:
        relay.tune("known")
        yield relay


async def schedule(relay: Served, *names: str, **fields: Any) -> None:
    request = service.ScheduleBatchRequest(timers=[spec(name, **fields) for name in names])
    for result in (await relay.timers.ScheduleBatch(request)).results:
        assert result.WhichOneof("result") == "scheduled", result


async def attempts(relay: Served, timer_id: str = "a") -> int:
    """How many attempts have counted."""
    stored = await relay.engine.get("t", timer_id)
    assert stored is not None
    return stored.attempts


async def left(relay: Served) -> int:
    """How many timers there are."""
    page = await relay.engine.page("t", state=None, limit=500, cursor="")
    return len(page.timers)


async def gone(relay: Served) -> None:
    async def nothing_left() -> bool:
        return not await left(relay)

    await until(nothing_left, "every timer is settled")


# One timer


async def test_a_call_carries_all_that_a_stream_would(
    any_relay: Served, handler: Handler, application: Server
) -> None:
    """The delivery is whole, its trace context is in the metadata of a call of its own too, the deadline is
    delivery_timeout, and an empty answer is an ACK."""
    async with pushing(any_relay, application.address, delivery_timeout=450.0):
        await schedule(
            any_relay,
            "a",
            payload=b"\x00content",
            headers={"kind": "reminder", "traceparent": TRACEPARENT},
            content_type="text/plain",
        )
        await until(lambda: bool(handler.seen), "it is delivered")
        await gone(any_relay)
    (seen,) = handler.seen
    assert (seen.topic, seen.timer_id, seen.payload, seen.attempt) == ("t", "a", b"\x00content", 1)
    assert dict(seen.headers) == {"kind": "reminder", "traceparent": TRACEPARENT}
    assert seen.content_type == "text/plain"
    assert seen.occurrence_id.startswith("a/")
    if not isinstance(handler, Batcher):
        assert handler.metadata[0]["traceparent"] == TRACEPARENT
    assert 400 < handler.time_left[0] <= 451


@pytest.mark.parametrize(
    ("outcome", "verb"),
    [
        (ACK, Verb.ACK),
        (NACK, Verb.NACK),
        (REJECT, Verb.REJECT),
        (EXTEND, Verb.NACK),  # no end
        (77, Verb.NACK),  # from a later version: not to be taken for success
    ],
)
async def test_the_outcome_in_the_answer_is_settled(
    relay: Served, handler: Handler, application: Server, outcome: Any, verb: Verb
) -> None:
    async def act(_: delivery.Delivery, __: Any) -> Any:
        return answer(outcome, reason="as told", retry_after=Duration(seconds=60))

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
    (settlement,) = relay.store.items("settle")
    assert isinstance(settlement, End)
    assert settlement.verb is verb
    if outcome == NACK:
        assert settlement.retry_after == 60_000_000


async def test_a_wrong_retry_after_is_left_out_and_said(
    relay: Served, handler: Handler, application: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(_: delivery.Delivery, __: Any) -> Any:
        return answer(NACK, retry_after=Duration(seconds=-1))

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
    (settlement,) = relay.store.items("settle")
    assert isinstance(settlement, End)
    assert settlement.verb is Verb.NACK
    assert settlement.retry_after == 600_000_000, "as the retry policy says"
    assert "retry_after: is negative" in str([vars(record).get("reason") for record in caplog.records])


@pytest.mark.parametrize("outcome", [delivery.OUTCOME_UNSPECIFIED, ACK])
async def test_a_reschedule_in_an_ack_is_no_end(
    relay: Served, handler: Handler, application: Server, outcome: Any
) -> None:
    """A handler that forgot to say RESCHEDULE wants to run again: taken for an ACK, its timer were lost."""

    async def act(_: delivery.Delivery, __: Any) -> Any:
        return answer(outcome, reschedule=delivery.Reschedule(delay=Duration(seconds=60)))

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
    (settlement,) = relay.store.items("settle")
    assert isinstance(settlement, End)
    assert settlement.verb is Verb.NACK
    assert settlement.error.startswith("reschedule: ")


@pytest.mark.parametrize(
    ("code", "verb"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, Verb.REJECT),
        (grpc.StatusCode.INTERNAL, Verb.NACK),
        (grpc.StatusCode.UNKNOWN, Verb.NACK),
        (grpc.StatusCode.UNAVAILABLE, Verb.NACK),  # said by the application: its connection is whole
        (grpc.StatusCode.CANCELLED, Verb.NACK),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Verb.NACK),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Verb.NACK),
    ],
)
async def test_a_status_is_an_outcome(
    relay: Served, handler: Handler, application: Server, code: grpc.StatusCode, verb: Verb
) -> None:
    async def act(_: delivery.Delivery, context: Any) -> Any:
        await context.abort(code, "no good")

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
    (settlement,) = relay.store.items("settle")
    assert isinstance(settlement, End)
    assert settlement.verb is verb


async def test_a_handler_that_raises_has_had_an_attempt(
    relay: Served, handler: Handler, application: Server
) -> None:
    async def act(_: delivery.Delivery, __: Any) -> Any:
        raise RuntimeError("broken")

    handler.act = act
    async with pushing(relay, application.address, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
        await relay.engine._settler.flush()
        assert await attempts(relay) == 1


async def test_a_deadline_that_passes_is_an_attempt(
    relay: Served, handler: Handler, application: Server
) -> None:
    """The handler is cut off after delivery_timeout, and may well have done its work."""

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await anyio.sleep_forever()

    handler.act = act
    async with pushing(relay, application.address, delivery_timeout=0.4, retry=LATER):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("settle")), "it is settled")
        await relay.engine._settler.flush()
        assert await attempts(relay) == 1
        await until(lambda: handler.active == 0, "the handler is cut off")
    (settlement,) = relay.store.items("settle")
    assert isinstance(settlement, End)
    assert (settlement.verb, settlement.error.split(":")[0]) == (Verb.NACK, "DEADLINE_EXCEEDED")


# Who can't be called loses nothing


async def test_a_refused_connection_costs_nothing_and_is_said(
    relay: Served, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """While nobody listens nothing is even claimed; the timer comes as attempt 1 once somebody does."""
    unused = await serve(None)
    await unused.stop()
    with caplog.at_level(logging.WARNING):
        async with pushing(relay, unused.address):
            await schedule(relay, "a")
            await until(lambda: "can't be called" in caplog.text, "it is said")
            assert relay.store.count("claim") == 0
            server = await serve(handler, unused.address)
            await until(lambda: bool(handler.seen), "it is delivered")
            await gone(relay)
            await server.stop()
    assert handler.attempts() == [1]
    record = next(record for record in caplog.records if "can't be called" in record.message)
    assert "refused" in vars(record)["reason"]


async def test_an_application_without_a_handler_costs_nothing_and_is_said(
    relay: Served, handler: Handler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNIMPLEMENTED: one timer is tried, not a hundred, and tried again later."""
    monkeypatch.setattr("relay.rpc.push.FIRST_RETRY", 0.05)
    bare = await serve(None, healthy=True)
    await schedule(relay, *(f"n{i}" for i in range(50)))
    async with pushing(relay, bare.address):
        await until(lambda: relay.store.count("settle") >= 2, "it is tried")
        assert "no handler for the topic" in caplog.text
        claimed = [limit for call in relay.store.calls if call.verb == "claim" for limit in call.items]
        assert set(claimed) == {1}
        assert all(
            isinstance(each, End) and each.verb is Verb.RELEASE and not each.received
            for each in relay.store.items("settle")
        )
        await bare.stop()
        server = await serve(handler, bare.address, healthy=True)
        await gone(relay)
        await server.stop()
    assert {each.attempt for each in handler.seen} == {1}
    assert len(handler.seen) == 50


async def test_an_application_that_does_not_serve_is_left_alone(
    relay: Served, handler: Handler, application: Server
) -> None:
    """grpc.health.v1: nothing is claimed while it says NOT_SERVING; what is under way goes on."""
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    handler.act = act
    await application.say(serving=False)
    async with pushing(relay, application.address, max_concurrent=4):
        await schedule(relay, "a")
        await anyio.wait_all_tasks_blocked()
        assert relay.store.count("claim") == 0
        await application.say(serving=True)
        await until(lambda: handler.active == 1, "it is delivered")

        await application.say(serving=False)
        session = next(iter(relay.engine._dispatcher.sessions()))
        await until(lambda: session.free <= 0, "the relay knows")
        await schedule(relay, "b")
        claims = relay.store.count("claim")
        assert handler.active == 1  # the middle of it: "a" is still being handled

        # Serving again, "b" need not wait for the end of "a".
        await application.say(serving=True)
        await until(lambda: handler.active == 2, "b is delivered beside a")
        assert relay.store.count("claim") > claims
        release.set()
        await gone(relay)
    assert handler.starts == {"a": 1, "b": 1}


@pytest.mark.slow
async def test_an_orderly_restart_loses_no_attempt(
    relay: Served, handler: Handler, application: Server
) -> None:
    """An application that stops taking calls, ends those that it has and comes back, ten times under load:
    every attempt that the relay reports is one that the handlers have counted.

    With receipts, or a call that met the end of a connection could not be told from one that was handled.
    """
    handler.receipts = True

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await anyio.sleep(0.01)

    handler.act = act
    server = application
    names = [f"n{i}" for i in range(1_000)]
    async with pushing(relay, application.address, max_concurrent=20):
        for turn in range(10):
            await schedule(relay, *names[turn * 100 : turn * 100 + 100])
            count = len(handler.seen)
            await until(lambda: len(handler.seen) > count + 30, "some are delivered")  # noqa: B023
            await server.stop(grace=PATIENCE)
            server = await serve(handler, application.address, healthy=True)
        await gone(relay)
        await server.stop()
    assert set(handler.starts) == set(names)
    assert max(each.attempt for each in handler.seen) == 1
    assert max(handler.starts.values()) == 1


# Connections that break


async def test_a_connection_that_breaks_during_a_call_is_an_attempt(
    relay: Served, handler: Handler, wire: Wire
) -> None:
    """The handler may be what broke it: it comes again as attempt 2, and alone if that is its last."""
    release = asyncio.Event()

    async def act(delivered: delivery.Delivery, _: Any) -> Any:
        if delivered.attempt == 1:
            await release.wait()

    handler.act = act
    async with pushing(relay, wire.address, max_concurrent=3, retry=RetryPolicy(max_attempts=2)):
        await schedule(relay, "a", "b", "c")
        await until(lambda: handler.active == 3, "all are being handled")
        await wire.cut()
        await until(lambda: len(relay.store.items("settle")) == 3, "all are released")
        assert all(
            isinstance(each, End) and each.verb is Verb.RELEASE and each.received and each.broken
            for each in relay.store.items("settle")
        )
        await until(lambda: handler.active == 0, "their handlers are cut off")
        handler.peak = 0
        await wire.lay()
        await gone(relay)
        release.set()
    for name in "abc":
        assert handler.attempts(name) == [1, 2]
    assert handler.peak == 1


async def test_receipts_tell_which_calls_had_reached_a_handler(
    relay: Served, handler: Handler, wire: Wire
) -> None:
    """Of two calls on a connection that breaks, only that counts whose handler had started."""
    handler.receipts = True
    release = asyncio.Event()

    async def act(delivered: delivery.Delivery, _: Any) -> Any:
        if delivered.timer_id == "first":
            return
        await release.wait()

    handler.act = act
    async with pushing(relay, wire.address, max_concurrent=2):
        await schedule(relay, "first")
        await gone(relay)
        await schedule(relay, "a")
        await until(lambda: handler.starts["a"] == 1, "a has started")
        handler.gate.clear()
        await schedule(relay, "b")
        await until(lambda: relay.store.count("claim") >= 3, "b is under way")
        session = next(iter(relay.engine._dispatcher.sessions()))
        await until(lambda: session.in_flight == 2, "b is sent")
        await wire.cut()
        await until(lambda: len(relay.store.items("settle")) == 3, "both are released")
        await relay.engine._settler.flush()
        assert (await attempts(relay, "a"), await attempts(relay, "b")) == (1, 0)
        release.set()
        handler.gate.set()


async def test_a_receipt_is_written_while_the_handler_runs(
    relay: Served, handler: Handler, application: Server
) -> None:
    """So that it counts if the relay dies now."""
    handler.receipts = True
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    handler.act = act
    async with pushing(relay, application.address):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("extend")), "the receipt is written")
        assert handler.active == 1
        (extension,) = relay.store.items("extend")
        assert isinstance(extension, Extension)
        assert extension.received
        release.set()
        await gone(relay)


async def test_a_call_that_stays_open_counts_as_received(
    relay: Served, handler: Handler, application: Server
) -> None:
    """From an application that sends no receipts, half a second of silence is one; and it shows that a
    handler lives, so that the others need not wait for the end of the first."""
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=5):
        await schedule(relay, *"abcde")
        await until(lambda: bool(relay.store.items("extend")), "the receipt is written")
        assert isinstance(relay.store.items("extend")[0], Extension)
        await until(lambda: handler.active == 5, "the others come too")
        release.set()
        await gone(relay)


# Many


async def test_no_more_calls_than_max_concurrent(
    relay: Served, handler: Handler, application: Server
) -> None:
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=7):
        await schedule(relay, *(f"n{i}" for i in range(60)))
        await until(lambda: handler.active == 7, "as many as may be are handled")
        await anyio.wait_all_tasks_blocked()
        release.set()
        await gone(relay)
    assert handler.peak == 7
    assert set(handler.starts.values()) == {1}


async def test_topics_of_one_target_share_a_connection(relay: Served, handler: Handler, wire: Wire) -> None:
    async with pushing(relay, wire.address, "t", "u", "v"):
        for topic in "tuv":
            await schedule(relay, f"of-{topic}", topic=topic)
        await until(lambda: len(handler.seen) == 3, "all are delivered")
    assert {(each.topic, each.timer_id) for each in handler.seen} == {(t, f"of-{t}") for t in "tuv"}
    assert wire.connections == 1


async def test_a_topic_without_a_handler_does_not_hold_up_another(
    relay: Served, handler: Handler, application: Server
) -> None:
    async def act(delivered: delivery.Delivery, context: Any) -> Any:
        if delivered.topic == "u":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no handler for u")

    handler.act = act
    async with pushing(relay, application.address, "t", "u"):
        await schedule(relay, "x", "y", topic="u")
        await schedule(relay, *(f"n{i}" for i in range(20)))
        await gone(relay)
        page = await relay.engine.page("u", state=None, limit=10, cursor="")
        assert {stored.timer_id: stored.attempts for stored in page.timers} == {"x": 0, "y": 0}


async def test_a_unix_socket(relay: Served, handler: Handler, tmp_path: Path) -> None:
    server = await serve(handler, f"unix:{tmp_path}/app.sock", healthy=True)
    async with pushing(relay, server.address):
        await schedule(relay, "a")
        await gone(relay)
    await server.stop()
    assert handler.attempts() == [1]


# Draining, and the rest of the house


async def test_a_drain_waits_for_calls_and_makes_no_more(
    relay: Served, handler: Handler, application: Server
) -> None:
    release = asyncio.Event()

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.wait()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=1), anyio.create_task_group() as tasks:
        await schedule(relay, "a", "b")
        await until(lambda: handler.active == 1, "one is being handled")
        tasks.start_soon(relay.engine.drain, PATIENCE)
        await anyio.wait_all_tasks_blocked()
        assert handler.active == 1
        release.set()
    assert handler.starts.total() == 1
    assert await left(relay) == 1


async def test_a_drain_that_times_out_gives_calls_back(
    relay: Served, handler: Handler, application: Server
) -> None:
    """The handler had started, as its receipt says: that was an attempt."""
    handler.receipts = True

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await anyio.sleep_forever()

    handler.act = act
    async with pushing(relay, application.address):
        await schedule(relay, "a")
        await until(lambda: bool(relay.store.items("extend")), "the receipt is written")
        await relay.engine.drain(0.05)
        assert await attempts(relay) == 1


async def test_a_pushed_topic_has_no_streams(relay: Served) -> None:
    relay.tune(target="127.0.0.1:1")
    stream = relay.stream()
    await stream.send(open=delivery.Open(topics=["t"], max_outstanding=1))
    assert await invalid_field(stream.call.read()) == "topics"


async def test_what_grpc_says_of_a_call_that_never_began() -> None:
    """The details by which `Application.never_began` knows it: if they change, attempts are at stake."""
    unused = await serve(None)
    await unused.stop()
    async with Application(unused.address, lambda _: None) as application, anyio.create_task_group() as tasks:
        tasks.start_soon(application.run)
        call = application.call(handler_pb.TimerHandlerDeliverRequest(), timeout=60, metadata=())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert application.never_began(caught.value, application.connection), caught.value.details()
        tasks.cancel_scope.cancel()


async def test_closed_topics_refuse_every_call_and_stream(closed_relay: Served) -> None:
    """A misspelt topic is told at once, by whatever call it comes."""
    timers = closed_relay.timers
    await timers.Schedule(service.ScheduleRequest(timer=spec("a", topic="known", delay=Duration(seconds=60))))
    for call in (
        timers.Schedule(service.ScheduleRequest(timer=spec("a", topic="unknwon"))),
        timers.Cancel(service.CancelRequest(topic="unknwon", timer_id="a")),
        timers.GetTimer(service.GetTimerRequest(topic="unknwon", timer_id="a")),
        timers.ListTimers(service.ListTimersRequest(topic="unknwon")),
    ):
        assert await invalid_field(call) == "topic"
    stream = closed_relay.stream()
    await stream.send(open=delivery.Open(topics=["known", "unknwon"], max_outstanding=1))
    assert await invalid_field(stream.call.read()) == "topics"
