"""Push: the application listens, and a plain gRPC caller plays the relay."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from relay.client import (
    AckPolicy,
    AlreadySettled,
    Delivery,
    DeliveryLost,
    InvalidArgument,
    Nack,
    PushHandlers,
    Reject,
    RelayClient,
    Reschedule,
    UsageError,
)
from relay.client.push import push_handlers
from relay.client.push.health import HealthService
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from relay.v1.timer_handler_pb2_grpc import TimerHandlerStub
from tests.client.scripted_relay import Watched
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import PATIENCE

CODES = grpc.StatusCode
ACK, NACK, REJECT = delivery_pb.OUTCOME_ACK, delivery_pb.OUTCOME_NACK, delivery_pb.OUTCOME_REJECT
RESCHEDULE = delivery_pb.OUTCOME_RESCHEDULE


class Caller:
    """What dials the application."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub = TimerHandlerStub(channel)

    def begin(self, timer_id: str = "a", *, timeout: float = PATIENCE, **fields: Any) -> Any:
        delivery = delivery_pb.Delivery(**{"topic": "t", "timer_id": timer_id, "attempt": 1, **fields})
        return self.stub.Deliver(pb.TimerHandlerDeliverRequest(delivery=delivery), timeout=timeout)

    async def deliver(self, timer_id: str = "a", **fields: Any) -> pb.TimerHandlerDeliverResponse:
        answer: pb.TimerHandlerDeliverResponse = await self.begin(timer_id, **fields)
        return answer

    async def overdue(self, started: Callable[[], object], **fields: Any) -> None:
        """Call with a deadline that passes: the first that is long enough for the handler to start."""
        for timeout in (0.3, 3.0, 30.0):
            code, _ = await self.refused(timeout=timeout, **fields)
            assert code is CODES.DEADLINE_EXCEEDED
            if started():
                return
        raise AssertionError("no handler has started")

    async def refused(self, **fields: Any) -> tuple[grpc.StatusCode, dict[str, Any]]:
        """The status of a call that must fail, and its initial metadata."""
        call = self.begin(**fields)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code(), dict(await call.initial_metadata() or ())


@asynccontextmanager
async def calling(target: str) -> AsyncIterator[Caller]:
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Caller(channel)


@asynccontextmanager
async def served(push: PushHandlers, listen: str) -> AsyncIterator[Caller]:
    async with push.serve(listen), calling(listen) as caller:
        yield caller


def health_of(caller: Caller) -> Any:
    return health_pb2_grpc.HealthStub(caller.channel)


async def waiting(push: PushHandlers, count: int) -> None:
    """Until so many deliveries wait for a place."""
    servicer = push._servicer
    assert servicer is not None
    async with asyncio.timeout(PATIENCE):
        while len(servicer._places["t"]._waiting) != count:  # noqa: ASYNC110  (nobody gives an event for it)
            await asyncio.sleep(0.001)


class Gate(Watched):
    """A handler that waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, delivery: Delivery) -> None:
        self.started.append(delivery.timer_id)
        self.changed()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(delivery.timer_id)
            self.changed()
            raise


# --------------------------------------------------------------------------- outcomes


async def test_a_handler_gets_the_timer_and_returning_is_ack(push: PushHandlers, listen: str) -> None:
    """Everything that the message says; and the receipt comes as initial metadata."""
    got: list[Delivery] = []

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        got.append(delivery)

    async with served(push, listen) as caller:
        call = caller.begin(payload=b"42", headers={"k": "ö"}, attempt=3, occurrence_id="a/1")
        assert dict(await call.initial_metadata())["relay-receipt"] == "1"
        assert (await call).outcome == ACK
    (one,) = got
    assert (one.topic, one.timer_id, one.payload, one.headers) == ("t", "a", b"42", {"k": "ö"})
    assert (one.attempt, one.occurrence_id, one.settled, one.lost) == (3, "a/1", True, False)


async def raise_nack(_: Delivery) -> None:
    raise Nack(retry_after=1.5, reason="busy")


async def raise_reject(_: Delivery) -> None:
    raise Reject("never")


async def raise_any(_: Delivery) -> None:
    raise ValueError("a secret")


async def nack_itself(delivery: Delivery) -> None:
    await delivery.nack(retry_after=2)


async def give_up(_: Delivery) -> None:
    raise Nack(reason="gone", retryable=False)


def snooze_in_a_thread(_: Delivery) -> None:
    raise Reschedule(delay=2)


async def go_on(delivery: Delivery) -> None:
    await delivery.reschedule(due_time=datetime(2030, 1, 1, tzinfo=UTC), payload=b"next")
    raise ValueError


def plain(delivery: Delivery) -> None:
    assert threading.current_thread() is not threading.main_thread()


def plain_fails(delivery: Delivery) -> None:
    raise KeyError("a secret")


@pytest.mark.parametrize(
    ("handler", "policy", "outcome", "retry_after", "reason"),
    [
        (raise_nack, AckPolicy.NACK_ON_ERROR, NACK, 1.5, "busy"),
        (raise_reject, AckPolicy.NACK_ON_ERROR, REJECT, None, "never"),
        (raise_any, AckPolicy.NACK_ON_ERROR, NACK, None, "ValueError"),
        (raise_any, AckPolicy.REJECT_ON_ERROR, REJECT, None, "ValueError"),
        (nack_itself, AckPolicy.MANUAL, NACK, 2.0, ""),
        (plain, AckPolicy.NACK_ON_ERROR, ACK, None, ""),
        (plain_fails, AckPolicy.NACK_ON_ERROR, NACK, None, "KeyError"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_handler_s_end_is_the_answer(
    push: PushHandlers,
    listen: str,
    handler: Any,
    policy: AckPolicy,
    outcome: int,
    retry_after: float | None,
    reason: str,
) -> None:
    """The same mapping as on the stream; always status OK, and never an exception's words."""
    push.on("t", ack_policy=policy)(handler)
    async with served(push, listen) as caller:
        answer = await caller.deliver()
    assert (answer.outcome, answer.reason) == (outcome, reason)
    if retry_after is None:
        assert not answer.HasField("retry_after")
    else:
        assert answer.retry_after == Duration(
            seconds=int(retry_after), nanos=int(retry_after % 1 * 1_000_000_000)
        )


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR])
@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (give_up, pb.TimerHandlerDeliverResponse(outcome=NACK, reason="gone", retryable=False)),
        (
            snooze_in_a_thread,
            pb.TimerHandlerDeliverResponse(
                outcome=RESCHEDULE, reschedule=delivery_pb.Reschedule(delay=Duration(seconds=2))
            ),
        ),
        (
            go_on,
            pb.TimerHandlerDeliverResponse(
                outcome=RESCHEDULE,
                reschedule=delivery_pb.Reschedule(due_time=Timestamp(seconds=1_893_456_000), payload=b"next"),
            ),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_giving_up_and_going_on_are_answered_in_full(
    push: PushHandlers, listen: str, handler: Any, policy: AckPolicy, answer: object
) -> None:
    """To the byte, in every policy for errors."""
    push.on("t", ack_policy=policy)(handler)
    async with served(push, listen) as caller:
        assert await caller.deliver() == answer


async def test_an_unknown_topic_is_unimplemented_and_has_no_receipt(push: PushHandlers, listen: str) -> None:
    """Which releases the timer: no attempt counts."""
    push.on("t")(raise_any)
    async with served(push, listen) as caller:
        code, metadata = await caller.refused(topic="u")
    assert code is CODES.UNIMPLEMENTED
    assert "relay-receipt" not in metadata


async def test_extend_is_refused_in_words(push: PushHandlers, listen: str) -> None:
    """The handler can catch it and go on."""
    said: list[str] = []

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        try:
            await delivery.extend()
        except UsageError as error:
            said.append(str(error))

    async with served(push, listen) as caller:
        assert (await caller.deliver()).outcome == ACK
    assert "delivery_timeout" in said[0]


async def test_an_early_outcome_answers_at_once_and_stands(push: PushHandlers, listen: str) -> None:
    """The handler works on; the end of serving waits for it."""
    go, done = asyncio.Event(), asyncio.Event()

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        await delivery.reject("first")
        with pytest.raises(AlreadySettled):
            await delivery.ack()
        await go.wait()
        done.set()

    async with served(push, listen) as caller:
        assert (await caller.deliver()).outcome == REJECT
        assert not done.is_set()
        go.set()
    assert done.is_set()


async def test_manual_holds_the_call_until_somebody_settles(push: PushHandlers, listen: str) -> None:
    held: asyncio.Queue[Delivery] = asyncio.Queue()
    push.on("t", ack_policy=AckPolicy.MANUAL)(held.put)
    async with served(push, listen) as caller:
        call = caller.begin()
        delivery = await held.get()
        assert not call.done()
        await delivery.ack()
        assert (await call).outcome == ACK


# --------------------------------------------------------------- deadlines and capacity


async def test_the_deadline_cancels_the_handler(push: PushHandlers, listen: str) -> None:
    """The relay counts an attempt; what the handler would have said is void."""
    gate = Gate()
    push.on("t")(gate)
    async with served(push, listen) as caller:
        await caller.overdue(lambda: gate.started)
        await gate.until(lambda: gate.cancelled == gate.started)


async def test_a_broken_connection_cancels_the_handler(push: PushHandlers, listen: str) -> None:
    gate = Gate()
    push.on("t")(gate)
    async with push.serve(listen):
        async with calling(listen) as caller:
            call = caller.begin()
            await gate.until(lambda: gate.started)
        await gate.until(lambda: gate.cancelled == ["a"])
        assert call.done()


async def test_a_plain_handler_finds_its_delivery_lost(push: PushHandlers, listen: str) -> None:
    """A thread can't be cancelled. It keeps its place: no receipt before a handler really starts."""
    go, running = threading.Event(), threading.Event()
    lost: list[bool] = []

    @push.on("t", concurrency=1)
    def handle(delivery: Delivery) -> None:
        running.set()
        assert go.wait(PATIENCE)
        lost.append(delivery.lost)

    async with served(push, listen) as caller:
        call = caller.begin("first")
        assert await asyncio.to_thread(running.wait, PATIENCE)
        call.cancel()
        second = caller.begin("second")
        await waiting(push, 1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert "relay-receipt" not in dict(await second.initial_metadata() or ())
        await waiting(push, 0)
        go.set()
        assert (await caller.deliver("third")).outcome == ACK
    assert lost == [True, False]


async def test_a_lost_delivery_can_t_be_settled(push: PushHandlers, listen: str) -> None:
    started, raised = asyncio.Event(), asyncio.Event()

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await delivery.ack()
            except DeliveryLost:
                raised.set()

    async with served(push, listen) as caller:
        await caller.overdue(started.is_set)
        async with asyncio.timeout(PATIENCE):
            await raised.wait()


async def test_concurrency_bounds_how_many_run(push: PushHandlers, listen: str) -> None:
    """The others wait without a receipt, and each topic has room of its own."""
    gate, other = Gate(), Gate()
    push.on("t", concurrency=2)(gate)
    push.on("u", concurrency=1)(other)
    async with served(push, listen) as caller:
        calls = [caller.begin(f"{n}") for n in range(5)]
        calls.append(caller.begin("u", topic="u"))
        await gate.until(lambda: len(gate.started) == 2)
        await other.until(lambda: other.started)
        assert len(gate.started) == 2
        gate.open.set()
        other.open.set()
        assert [(await call).outcome for call in calls] == [ACK] * 6


# ------------------------------------------------------------------- health and the end


async def test_health_is_served_as_grpc_s_own_package_reads_it(push: PushHandlers, listen: str) -> None:
    async with served(push, listen) as caller:
        stub = health_of(caller)
        for service in ("", "relay.v1.TimerHandler"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert caught.value.code() is CODES.NOT_FOUND
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
        assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_the_end_is_orderly(push: PushHandlers, listen: str) -> None:
    """Health says so, what runs ends and answers, what waits for room is released."""
    gate = Gate()
    push.on("t", concurrency=1)(gate)
    async with calling(listen) as caller:
        async with push.serve(listen):
            watch = health_of(caller).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            running = caller.begin("running")
            await gate.until(lambda: gate.started)
            second = caller.begin("waiting")  # calls may overtake each other
            await waiting(push, 1)

            async def let_go() -> None:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                gate.open.set()

            letting = asyncio.create_task(let_go())
        await letting
        assert await watch.read() is grpc.aio.EOF
        assert (await running).outcome == ACK
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await second
        assert caught.value.code() is CODES.UNIMPLEMENTED
        assert gate.started == ["running"]


async def test_the_end_waits_for_what_others_settle(push: PushHandlers, listen: str) -> None:
    """A delivery under MANUAL outlives its handler, and still has its answer."""
    held: asyncio.Queue[Delivery] = asyncio.Queue()
    push.on("t", ack_policy=AckPolicy.MANUAL)(held.put)
    async with calling(listen) as caller:
        async with push.serve(listen):
            call = caller.begin()
            delivery = await held.get()
            settling = asyncio.get_running_loop().call_later(0.1, asyncio.create_task, delivery.ack())
        assert (await call).outcome == ACK
    assert not settling.cancelled()


async def test_grpc_s_own_health_check_finds_it_serving(push: PushHandlers, listen: str) -> None:
    """A relay that watches health through its channel may call."""
    config = {"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"round_robin": {}}]}
    push.on("t")(raise_nack)
    async with push.serve(listen):
        options = [("grpc.service_config", json.dumps(config)), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(listen, options=options) as channel:
            await asyncio.wait_for(channel.channel_ready(), PATIENCE)
            assert (await Caller(channel).deliver()).outcome == NACK


async def test_who_watches_a_stopping_application_asks_once(
    push: PushHandlers, listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC begins a Watch that ended anew, at once: a thousand times a second while handlers end."""
    watches = 0
    watch = HealthService._watch

    async def counted(self: HealthService, request: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal watches
        watches += 1
        async for status in watch(self, request, context):
            yield status

    monkeypatch.setattr(HealthService, "_watch", counted)
    gate = Gate()
    push.on("t")(gate)
    config = {"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"round_robin": {}}]}
    options = [("grpc.service_config", json.dumps(config)), ("grpc.use_local_subchannel_pool", 1)]
    async with asyncio.timeout(PATIENCE):
        async with push.serve(listen):
            channel = grpc.aio.insecure_channel(listen, options=options)
            await channel.channel_ready()
            call = Caller(channel).begin()
            await gate.until(lambda: gate.started)
            asyncio.get_running_loop().call_later(0.3, gate.open.set)
        await call
        await channel.close()
    assert watches == 1


async def test_a_handler_that_takes_too_long_is_cancelled(
    listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives no outcome: the timer comes again, and an attempt counts."""
    monkeypatch.setattr(push_handlers, "_LAST_WORDS", PATIENCE)  # its answer leaves, however slow that is
    push, gate = PushHandlers(shutdown_timeout=0.2), Gate()
    push.on("t")(gate)
    async with calling(listen) as caller:
        async with push.serve(listen):
            call = caller.begin()
            await gate.until(lambda: gate.started)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() is CODES.ABORTED
    assert gate.cancelled == ["a"]


async def test_run_ends_at_stop_and_can_begin_anew(push: PushHandlers, listen: str) -> None:
    """`stop` may be called in a handler: its outcome is answered first."""

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        push.stop()

    for _ in range(2):
        running = asyncio.create_task(push.run(listen))
        async with calling(listen) as caller:
            await asyncio.wait_for(caller.channel.channel_ready(), PATIENCE)
            assert (await caller.deliver()).outcome == ACK
            await asyncio.wait_for(running, PATIENCE)


async def test_an_application_s_own_server(push: PushHandlers, listen: str) -> None:
    """Beside services of its own; `aclose` waits for handlers."""
    gate = Gate()
    push.on("t")(gate)
    server = grpc.aio.server()
    push.add_to(server)
    server.add_insecure_port(listen)
    await server.start()
    async with calling(listen) as caller:
        call = caller.begin()
        await gate.until(lambda: gate.started)
        closing = asyncio.create_task(push.aclose())
        code, _ = await caller.refused(timer_id="late")
        assert code is CODES.UNIMPLEMENTED
        gate.open.set()
        await closing
        assert (await call).outcome == ACK
    await server.stop(None)


# ------------------------------------------------------------------------- wrong use


async def test_handlers_are_registered_before_they_are_served(push: PushHandlers, listen: str) -> None:
    push.on("t")(raise_any)
    with pytest.raises(UsageError, match="has a handler"):
        push.on("t")(raise_any)
    with pytest.raises(InvalidArgument, match="concurrency"):
        push.on("u", concurrency=0)(raise_any)
    async with push.serve(listen):
        with pytest.raises(UsageError, match="before deliveries begin"):
            push.on("u")(raise_any)
        with pytest.raises(UsageError, match="served already"):
            push.add_to(grpc.aio.server())


async def test_an_address_that_is_taken_is_said(push: PushHandlers) -> None:
    """And nothing is left behind: the handlers can be served elsewhere."""
    async with push.serve("127.0.0.1:0") as port:
        other = PushHandlers()
        with pytest.raises(OSError, match="can't listen"):
            async with other.serve(f"127.0.0.1:{port}"):
                raise AssertionError("it listens")
        async with other.serve("127.0.0.1:0") as another:
            assert another not in (0, port)


async def test_a_socket_s_mode_is_set(push: PushHandlers, tmp_path: Path) -> None:
    """gRPC would make it 0755, which lets nobody else in."""
    path = tmp_path / "push.sock"
    async with push.serve(f"unix:{path}", socket_mode=0o600):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_payloads_stay_out_of_the_log(
    push: PushHandlers, listen: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    push.on("t")(raise_nack)
    gate = Gate()
    push.on("u")(gate)
    async with served(push, listen) as caller:
        await caller.deliver(payload=b"a secret")
        await caller.refused(topic="nobody", payload=b"a secret")
        await caller.overdue(lambda: gate.started, topic="u", payload=b"a secret")
        await gate.until(lambda: gate.cancelled)
    assert "there is no handler: topic=nobody" in caplog.text
    assert "a secret" not in caplog.text


async def test_a_periodic_timer_goes_round_through_a_real_relay(push: PushHandlers, listen: str) -> None:
    """Rescheduled by its handler, given up at the end: each round is an occurrence with attempt 1."""
    rounds: list[tuple[bytes, int, str]] = []

    @push.on("rounds")
    async def handle(delivery: Delivery) -> None:
        rounds.append((delivery.payload, delivery.attempt, delivery.occurrence_id))
        if len(rounds) == 3:
            raise Nack(retryable=False)
        raise Reschedule(delay=0.05, payload=b"1" if len(rounds) == 1 else None)

    settings = {
        "RELAY_TOPICS__rounds__DELIVERY__MODE": "push",
        "RELAY_TOPICS__rounds__DELIVERY__TARGET": listen,
    }
    async with push.serve(listen):
        with one_relay(settings) as relay:
            async with RelayClient(relay.target) as client:
                await client.schedule("rounds", b"0", delay=0, timer_id="a")
                deadline = time.monotonic() + PATIENCE
                while await client.get("rounds", "a") is not None:
                    assert time.monotonic() < deadline, "it goes on for ever"
                    await asyncio.sleep(0.01)  # a process can only be asked
    assert [(payload, attempt) for payload, attempt, _ in rounds] == [(b"0", 1), (b"1", 1), (b"1", 1)]
    assert len({occurrence for _, _, occurrence in rounds}) == 3
