"""Opening, reconnecting, draining, closing."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from relay.client import (
    CallError,
    Credentials,
    DeadlineExceeded,
    Delivery,
    DeliveryLost,
    InvalidArgument,
    RelayClient,
    Unavailable,
    UsageError,
    errors,
)
from relay.client.handling.reported_problems import TokenBook
from relay.client.stream import subscription as subscription_module
from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc
from tests.client.scripted_relay import Failure, Link, ScriptedRelay, either, ended, names, serve

columns = either


ROOT = Path(__file__).parents[2]

REFUSED = Failure(grpc.StatusCode.INVALID_ARGUMENT, "no", field="topics")


class Gate:
    """A handler that says when it starts and waits to be let go."""

    def __init__(self, client: RelayClient, concurrency: int = 100) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.lost: list[bool] = []
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        client.on("t", concurrency=concurrency)(self.handle)

    async def handle(self, delivery: Delivery) -> None:
        self.started.append(delivery.timer_id)
        self.began.set()
        await self.go.wait()
        self.lost.append(delivery.lost)
        self.ended.append(delivery.timer_id)


class OpensOnly(delivery_service_pb2_grpc.DeliveryServiceServicer):
    """A relay that opens a stream, and says no more."""

    def Deliver(self, requests: Iterator[pb.DeliverRequest], _: object) -> Iterator[pb.DeliverResponse]:
        next(requests)
        yield pb.DeliverResponse(opened=pb.Opened())
        next(requests, None)


# -------------------------------------------------------------------------------- readiness


async def test_ready_means_that_all_streams_are_open(relay: ScriptedRelay, client: RelayClient) -> None:
    """Not before the opening, not after the close."""
    Gate(client)
    client.on("u")(lambda _: None)
    assert not client.ready()
    async with client:
        assert not client.ready()
        await client.wait_ready(60)
        assert client.ready()
        await relay.until(lambda: len(relay.links) == 2)
    assert not client.ready()
    with pytest.raises(UsageError):
        await client.wait_ready()


async def test_wait_ready_gives_up(client: RelayClient) -> None:
    """Without a relay, the wait ends with `DeadlineExceeded`, and the client still closes."""
    Gate(client)
    async with client:
        with pytest.raises(DeadlineExceeded):
            await client.wait_ready(0.05)


# -------------------------------------------------------------------------------- reconnect


async def test_a_broken_stream_is_reopened_and_its_outcomes_are_void(
    relay: ScriptedRelay, client: RelayClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Handlers in flight run to their end, on the old lease; new deliveries come by the new stream."""
    caplog.set_level(logging.INFO)
    gate = Gate(client)
    async with client:
        first = await relay.link()
        await first.deliver("a")
        await gate.began.wait()
        first.break_off()
        second = await relay.link(1)
        gate.go.set()
        await second.deliver("b")
        await second.settled("b")
    assert gate.ended == ["a", "b"]
    assert gate.lost == [True, False]
    assert first.settlements == []
    assert list(second.outcomes) == ["b"]
    lines = [each.getMessage() for each in caplog.records]
    assert [line for line in lines if "lost their leases" in line] == [
        "stream ended: 1 running handlers lost their leases: topic=t"
    ]


async def broken_write(target: str) -> grpc.aio.AioRpcError | None:
    """Write to a stream whose relay has gone, which the event loop has not heard of; return what gRPC raises.

    None where the write came before gRPC itself had ended the stream, since the channel breaks first.
    """
    server = grpc.server(ThreadPoolExecutor(1))  # beside the event loop, which hears of the end too late
    delivery_service_pb2_grpc.add_DeliveryServiceServicer_to_server(OpensOnly(), server)
    server.add_insecure_port(target)
    server.start()
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = delivery_service_pb2_grpc.DeliveryServiceStub(channel)
        call = stub.Deliver()
        await call.write(pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=1)))
        await call.read()
        server.stop(None).wait()
        while channel.get_state() is grpc.ChannelConnectivity.READY:
            time.sleep(0.001)  # noqa: ASYNC251  (the event loop must not go on)
        try:
            await call.write(pb.DeliverRequest(drain=pb.Drain()))
        except grpc.aio.AioRpcError as failed:
            return failed
    return None


async def test_a_stream_that_breaks_in_a_write_is_unavailable(target: str) -> None:
    """gRPC calls that an internal error, in the place of the status with which the stream has ended."""
    until = time.monotonic() + 60
    failed = None
    while failed is None or failed.code() is not grpc.StatusCode.INTERNAL:
        assert time.monotonic() < until, "gRPC raises no internal error any more"
        failed = await broken_write(target)
        if failed is not None:
            failure = errors.from_rpc(failed)
            assert isinstance(failure, Unavailable)
            assert failure.unanswered


async def test_explicit_outcomes_fail_once_the_stream_is_gone(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """A long handler learns by `DeliveryLost` that somebody else may be at it."""
    errors: list[Exception] = []
    began, go = asyncio.Event(), asyncio.Event()

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        began.set()
        await go.wait()
        try:
            await delivery.extend()
        except DeliveryLost as error:
            errors.append(error)
            raise

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await began.wait()
        link.break_off()
        await relay.link(1)
        go.set()
    assert len(errors) == 1
    assert link.settlements == []


async def test_handlers_of_a_broken_stream_keep_their_places(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`concurrency` holds across streams: what still runs takes up a place on the next one."""
    gate = Gate(client, concurrency=2)
    heard = asyncio.Event()
    monkeypatch.setattr(TokenBook, "report", lambda *_: heard.set())
    async with client:
        first = await relay.link()
        await first.begin("a")
        await gate.began.wait()
        first.break_off()
        second = await relay.link(1)
        await second.begin("b")
        await second.deliver("c")
        await second.problem("b", pb.PROBLEM_REASON_INVALID)
        await heard.wait()  # so c has been read, too: the stream keeps its order
        assert gate.started == ["a", "b"]
        gate.go.set()
        await second.settled("b", "c")
    assert gate.started == ["a", "b", "c"]
    starting_c = next(each for each in second.requests if b"c" in each.settle.received)
    assert ended(starting_c.settle) == [b"b"]


async def test_a_relay_that_is_away_is_told_once(
    relay: ScriptedRelay,
    client: RelayClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line when it goes and one when it is back, however many tries lie between."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(subscription_module, "_FIRST_PAUSE", 0.001)
    Gate(client)
    async with client:
        first = await relay.link()
        relay.refusals = [Failure(grpc.StatusCode.UNAVAILABLE, "no redis") for _ in range(3)]
        first.break_off()
        await relay.link(1)
        await client.wait_ready(60)
    assert not relay.refusals
    connected, lost, back = [each.getMessage() for each in caplog.records if each.name == "relay.client"]
    assert connected == f"connected to the relay at {client.target}: topics t"
    then = r"trying again in \d\.\d\d s, then at longer intervals of at most 5 s"
    assert re.fullmatch(rf"lost the relay at {client.target}: .+; {then}", lost)
    assert re.fullmatch(rf"connected to the relay at {client.target} again after \d+\.\d s: topics t", back)


async def test_a_relay_that_starts_later_is_found(client: RelayClient, target: str) -> None:
    """The application may start before its sidecar does, and outlive it."""
    gate = Gate(client)
    gate.go.set()
    async with client:
        with pytest.raises(DeadlineExceeded):
            await client.wait_ready(0.05)
        for round_number in ("a", "b"):
            async with serve(target) as relay:
                link = await relay.link()
                await link.deliver(round_number)
                await link.settled(round_number)
    assert gate.ended == ["a", "b"]


async def test_a_refused_open_ends_run(relay: ScriptedRelay, client: RelayClient) -> None:
    """INVALID_ARGUMENT is the application's mistake: said once, loudly, never retried."""
    Gate(client)
    relay.refusals = [Failure(grpc.StatusCode.INVALID_ARGUMENT, "topics: not allowed", field="topics")]
    with pytest.raises(InvalidArgument, match="topics: not allowed") as caught:
        await client.run()
    assert caught.value.field == "topics"
    assert "relay t" in caught.value.__notes__[0]
    assert len(relay.calls) == 1
    assert relay.links == []


UNKNOWN = Failure(
    grpc.StatusCode.UNAUTHENTICATED, "authorization: the token is not one that this relay takes"
)


async def test_a_stream_waits_for_another_token(relay: ScriptedRelay, target: str, tmp_path: Path) -> None:
    """The relay has taken the old one back, and the new one is a moment away."""
    file = tmp_path / "token"
    file.write_text("old")
    client = RelayClient(target, timeout=60.0, credentials=Credentials(token_file=str(file)))
    Gate(client)
    async with client:
        first = await relay.link()
        relay.refusals = [UNKNOWN] * 1000
        first.break_off()
        await relay.until(lambda: len(relay.refusals) < 1000)
        assert relay.shown == ["Bearer old"] * 2
        file.write_text("new token")
        await relay.until(lambda: relay.shown[-1] == "Bearer new token")
        relay.refusals = []
        await relay.link(1)
        await client.wait_ready(60)


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("in_a_file", [True, False])
async def test_patience_for_a_token_ends(
    relay: ScriptedRelay,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    opened: bool,
    in_a_file: bool,
) -> None:
    """There is none before the first open, where the token is simply wrong, nor for one that can't change."""
    (tmp_path / "token").write_text("old")
    shown = Credentials(token_file=str(tmp_path / "token")) if in_a_file else Credentials(token="old")
    client = RelayClient(target, timeout=60.0, credentials=shown)
    Gate(client)
    monkeypatch.setattr(subscription_module, "TOKEN_PATIENCE", 1.0 if in_a_file else 600.0)

    async def broken() -> None:
        if opened:
            link = await relay.link()
            relay.refusals = [UNKNOWN] * 1000
            link.break_off()

    if not opened:
        relay.refusals = [UNKNOWN]
    breaking = asyncio.create_task(broken())
    with pytest.raises(CallError, match="UNAUTHENTICATED"):
        await client.run()
    await breaking
    tries = len(relay.calls)
    assert tries > 1 if opened and in_a_file else tries == 1


async def test_a_refused_open_ends_the_body(relay: ScriptedRelay, client: RelayClient) -> None:
    """The body of `async with` is cancelled and the refusal raised in its place."""
    Gate(client)
    relay.refusals = [REFUSED]
    with pytest.raises(InvalidArgument):
        async with client:
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_may_answer_its_cancellation(relay: ScriptedRelay, client: RelayClient) -> None:
    """What the body raises in answer to a refusal is not hidden by it."""
    Gate(client)
    relay.refusals = [REFUSED]
    with pytest.raises(KeyError):  # noqa: PT012
        async with client:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError from None


async def test_a_refused_open_ends_wait_ready(relay: ScriptedRelay, client: RelayClient) -> None:
    """Also for a client that was opened without a body."""
    Gate(client)
    relay.refusals = [REFUSED]
    await client.open()
    with pytest.raises(InvalidArgument):
        await client.wait_ready(60)
    await client.aclose()


async def test_a_bodys_own_error_goes_first(relay: ScriptedRelay, client: RelayClient) -> None:
    """The client closes in order and hides nothing."""
    gate = Gate(client)
    gate.go.set()
    with pytest.raises(KeyError):  # noqa: PT012
        async with client:
            link = await relay.link()
            await link.begin("a")
            raise KeyError
    assert link.half_closed
    assert list(link.outcomes) == ["a"]


# ----------------------------------------------------------------------------------- drains


async def test_the_relay_drains(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is finished and settled, what waits is left alone, then a new stream is opened."""
    gate = Gate(client, concurrency=1)
    heard = asyncio.Event()
    monkeypatch.setattr(TokenBook, "report", lambda *_: heard.set())
    async with client:
        link = await relay.link()
        await link.deliver("a", "b", "c")
        await gate.began.wait()
        await link.drain()
        await link.deliver("d")  # crosses the drain; a real relay sends none
        await link.problem("a", pb.PROBLEM_REASON_INVALID)
        await heard.wait()  # so the drain has been read, too
        gate.go.set()
        await link.until(lambda: link.half_closed)
        second = await relay.link(1)
        await second.deliver("b")
        await second.settled("b")
    assert link.received == [b"a"]
    assert link.outcomes == {"a": pb.OUTCOME_ACK}
    assert link.kinds == ["open", "settle", "settle"]
    assert gate.ended == ["a", "b"]


async def test_the_application_drains(relay: ScriptedRelay, client: RelayClient) -> None:
    """Drain, last settlements, half-close, the relay's OK; unstarted deliveries are left alone."""
    gate = Gate(client, concurrency=2)
    await client.open()
    link = await relay.link()
    link.may_end.clear()
    await link.deliver(*names(5))
    await gate.began.wait()
    closing = asyncio.create_task(client.aclose())
    await link.until(lambda: "drain" in link.kinds)
    assert link.outcomes == {}
    gate.go.set()
    await link.until(lambda: link.half_closed)
    assert not closing.done()  # it waits for the relay to write what it was told
    link.may_end.set()
    await closing
    assert link.kinds == ["open", "settle", "drain", "settle"]
    assert link.received == [b"x0", b"x1"]
    assert link.outcomes == {"x0": pb.OUTCOME_ACK, "x1": pb.OUTCOME_ACK}
    assert gate.ended == ["x0", "x1"]


async def test_closing_twice_is_harmless(relay: ScriptedRelay, client: RelayClient) -> None:
    """Two closers at a time both return once it is closed."""
    Gate(client)
    await client.open()
    await relay.link()
    await asyncio.gather(client.aclose(), client.aclose())
    await client.aclose()
    assert relay.links[0].kinds == ["open", "drain"]


async def test_handlers_may_call_the_relay_while_the_client_closes(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """The channel stays until the last handler has ended."""
    began, go = asyncio.Event(), asyncio.Event()

    @client.on("t")
    async def handler(_: Delivery) -> None:
        began.set()
        await go.wait()
        await client.schedule("t", b"", delay=1, timer_id="next")

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await began.wait()
        link.may_end.clear()
        asyncio.get_running_loop().call_soon(go.set)
        link.may_end.set()
    assert ("t", "next") in relay.timers
    assert link.outcomes == {"a": pb.OUTCOME_ACK}


async def test_a_handler_that_takes_too_long_is_cut_off(target: str, relay: ScriptedRelay) -> None:
    """After `shutdown_timeout` it is cancelled and left unsettled; the others' outcomes stand."""
    client = RelayClient(target, shutdown_timeout=0.05)
    gate = Gate(client)
    quick = asyncio.Event()

    @client.on("u")
    async def handler(_: Delivery) -> None:
        quick.set()

    async with client:
        await client.wait_ready(60)
        await relay.until(lambda: len(relay.links) == 2)
        links: dict[str, Link] = {each.requests[0].open.topics[0]: each for each in relay.links}
        await links["t"].deliver("a")
        await links["u"].deliver("b", topic="u")
        await gate.began.wait()
        await quick.wait()
        await links["u"].settled("b")
    assert gate.ended == []
    assert links["t"].outcomes == {}
    assert links["u"].outcomes == {"b": pb.OUTCOME_ACK}
    assert links["t"].half_closed


async def test_a_relay_that_never_ends_the_stream_is_left(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close does not hang on a relay that hangs."""
    monkeypatch.setattr(subscription_module, "_END_PATIENCE", 0.05)
    Gate(client)
    async with client:
        link = await relay.link()
        link.may_end.clear()
    await link.until(link.ended.is_set)
    assert link.half_closed


async def test_stop_ends_run_from_a_handler(relay: ScriptedRelay, client: RelayClient) -> None:
    """`stop` does what a SIGTERM does; the handler's own outcome is still sent."""

    @client.on("t")
    async def handler(_: Delivery) -> None:
        client.stop()

    running = asyncio.create_task(client.run())
    link = await relay.link()
    await link.deliver("a")
    await running
    assert link.outcomes == {"a": pb.OUTCOME_ACK}


SERVICE = """
import asyncio, sys
from relay.client import RelayClient

client = RelayClient(sys.argv[1])

@client.on("t", concurrency=1)
def handler(delivery):
    sys.stdin.readline()

asyncio.run(client.run())
print("closed in order", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_closes(relay: ScriptedRelay, target: str, number: signal.Signals) -> None:
    """The handler that runs ends and settles, what waits is left, and the process exits with 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, target, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    link = await relay.link()
    await link.deliver("a", "b")
    await link.until(lambda: link.received)
    process.send_signal(number)
    await link.until(lambda: "drain" in link.kinds)
    output, _ = await process.communicate(b"go on\n")
    assert process.returncode == 0
    assert output == b"closed in order\n"
    await link.until(link.ended.is_set)
    assert link.kinds == ["open", "settle", "drain", "settle"]
    assert link.outcomes == {"a": pb.OUTCOME_ACK}
    assert link.received == [b"a"]
    assert link.half_closed
