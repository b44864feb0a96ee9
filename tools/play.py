"""The play of `docs/reference/protocol.md`: relay, producer, application by stream and by push."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler
from relay.v1 import timer_handler_pb2_grpc as handler_grpc
from relay.v1 import timer_pb2 as timer
from relay.v1 import timer_service_pb2 as service
from relay.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from relay.v1.timer_service_pb2_grpc import TimerServiceStub

TIMEOUT = 60.0
"""Seconds for the whole play."""

WRITTEN = 0.1
"""Seconds after which a relay that is not busy has written a receipt and an extension. Written after the
timer was rescheduled, each would be a problem more."""

WIDTH = 118
DUE = 1_767_225_605
"""When all timers fall due: 2026-01-01T00:00:05Z, which is past."""

ACK, NACK, REJECT = delivery.OUTCOME_ACK, delivery.OUTCOME_NACK, delivery.OUTCOME_REJECT


class Tape:
    """What was said, by the parts of the page. `→` is the application's side, `←` the relay's."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}
        self._part: list[str] = []

    def part(self, name: str) -> None:
        self._part = self.parts.setdefault(name, [])

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is said meanwhile is on no page."""
        self.part("off the page")
        yield
        del self.parts["off the page"]

    def sent(self, what: Message | str, call: str = "") -> None:
        self._note("→", what, call)

    def got(self, what: Message | str, call: str = "") -> None:
        self._note("←", what, call)

    def cut(self) -> None:
        self._note("✂", "(the connection breaks)", "")

    def _note(self, arrow: str, what: Message | str, call: str) -> None:
        text = what if isinstance(what, str) else shown(MessageToDict(what), before=len(call) + 3)
        self._part.append(f"{arrow} {call} {text}" if call else f"{arrow} {text}")


def shown(value: Any, indent: int = 0, before: int = 0) -> str:
    """JSON in one line where it fits behind what stands `before` it, else an entry a line."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + before + len(flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    inner = indent + 2
    if isinstance(value, dict):
        entries = [f'"{key}": {shown(item, inner, len(key) + 5)}' for key, item in value.items()]
    else:
        entries = [shown(item, inner, 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    body = ",\n".join(" " * inner + entry for entry in entries)
    return f"{opening}\n{body}\n{' ' * indent}{closing}"


@asynccontextmanager
async def relay(push_target: str, batch_target: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A relay on a Valkey of its own, and its address."""
    settings = {
        "RELAY_GRPC__LISTEN": "127.0.0.1:0",
        "RELAY_HTTP__LISTEN": "127.0.0.1:0",
        "RELAY_API__ENABLED": "false",
        "RELAY_LOG__FORMAT": "json",
        "RELAY_DEFAULTS__RETRY__INITIAL": "0",  # no dice: what fails comes again at once
        "RELAY_TOPICS__mails__DELIVERY__MODE": "push",
        "RELAY_TOPICS__mails__DELIVERY__TARGET": push_target,
        "RELAY_TOPICS__letters__DELIVERY__MODE": "push",
        "RELAY_TOPICS__letters__DELIVERY__TARGET": batch_target,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "relay.cli", "dev"),
        env=kept | settings,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    reading = None
    try:
        address = ""
        while not address:
            line = await process.stderr.readline()
            if not line:
                raise SystemExit("the relay ended at its start")
            if b'"relay is serving"' in line:
                address = json.loads(line)["grpc"]
        reading = asyncio.create_task(process.stderr.read())  # so that its log never blocks it
        yield process, address
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


class Stream:
    """One delivery stream, on tape."""

    def __init__(self, tape: Tape, channel: grpc.aio.Channel) -> None:
        self._tape = tape
        self._call: Any = DeliveryServiceStub(channel).Deliver()

    async def open(self, topic: str = "invoices", **fields: Any) -> None:
        wanted = delivery.Open(topics=[topic], max_outstanding=10, **fields)
        await self.say(delivery.DeliverRequest(open=wanted))
        await self.hear()

    async def say(self, request: delivery.DeliverRequest) -> None:
        self._tape.sent(request)
        await self._call.write(request)

    async def settle(self, *received: bytes, **outcomes: Any) -> None:
        """Receipts, and `settlements`."""
        await self.say(delivery.DeliverRequest(settle=delivery.Settle(received=received, **outcomes)))

    async def hear(self) -> delivery.DeliverResponse:
        response = await self._call.read()
        if not isinstance(response, delivery.DeliverResponse):
            raise SystemExit(f"the stream ended too early: {await self._call.details()}")
        self._tape.got(response)
        return response

    async def tokens(self) -> list[bytes]:
        """The tokens of the deliveries that come next."""
        return [each.token for each in (await self.hear()).deliveries.deliveries]

    async def end(self) -> None:
        self._tape.sent("(ends its side)")
        await self._call.done_writing()
        if await self._call.read() is not grpc.aio.EOF:
            raise SystemExit("the relay said something more")
        self._tape.got(f"(status {(await self._call.code()).name})")

    async def cut(self) -> None:
        """Break it, after the relay has taken what was said; a wrong token, off the tape, makes it answer."""
        wrong = delivery.Settlement(token=b"wrong", outcome=ACK)
        await self._call.write(delivery.DeliverRequest(settle=delivery.Settle(settlements=[wrong])))
        await self._call.read()
        self._tape.cut()
        self._call.cancel()


def spec(timer_id: str, topic: str = "invoices", **fields: Any) -> timer.TimerSpec:
    new = timer.TimerSpec(topic=topic, timer_id=timer_id, payload=timer_id.encode(), **fields)
    new.due_time.seconds = DUE
    return new


def settlement(token: bytes, outcome: delivery.Outcome, **fields: Any) -> delivery.Settlement:
    return delivery.Settlement(token=token, outcome=outcome, **fields)


class Play:
    """The acts, in the order of the page."""

    def __init__(self, tape: Tape, channel: grpc.aio.Channel) -> None:
        self._tape = tape
        self._channel = channel
        self._timers = TimerServiceStub(channel)

    async def schedule(self, *timer_ids: str, topic: str = "invoices") -> None:
        """Off the tape."""
        specs = [spec(timer_id, topic) for timer_id in timer_ids]
        await self._timers.ScheduleBatch(service.ScheduleBatchRequest(timers=specs))

    async def call(self, method: str, request: Message) -> None:
        """One call of TimerService."""
        self._tape.sent(request, method)
        try:
            self._tape.got(await getattr(self._timers, method)(request))
        except grpc.aio.AioRpcError as failure:
            self._tape.got(f"(status {failure.code().name}: {failure.details()})")

    async def producer(self) -> None:
        self._tape.part("schedule")
        new = spec("inv-1", headers={"tenant": "Søren"}, content_type="text/plain")
        await self.call("Schedule", service.ScheduleRequest(timer=new))
        await self.call("Schedule", service.ScheduleRequest(timer=spec("inv-1", "in{voices")))
        await self.call("Cancel", service.CancelRequest(topic="invoices", timer_id="inv-0"))
        await self.call("GetTimer", service.GetTimerRequest(topic="invoices", timer_id="inv-0"))
        self._tape.part("columns")
        names = ["rem-1", "rem{2"]
        columns = service.ScheduleColumnsRequest(
            topic="reminders",
            timer_ids=names,
            payloads=[name.encode() for name in names],
            due_times_us=[DUE * 1_000_000] * len(names),
        )
        await self.call("ScheduleColumns", columns)

    async def stream(self) -> None:
        await self.schedule("inv-2", "inv-3")
        self._tape.part("open")
        stream = Stream(self._tape, self._channel)
        await stream.open()
        self._tape.part("deliveries")
        first, second, third = await stream.tokens()
        self._tape.part("receipts")
        await stream.settle(first, second, third)
        self._tape.part("outcomes")
        nack = settlement(second, NACK, retry_after={"nanos": 100_000_000}, reason="busy")
        reject = settlement(third, REJECT, reason="no such customer")
        await stream.settle(settlements=[settlement(first, ACK), nack, reject])
        (again,) = await stream.tokens()
        await stream.settle(again, settlements=[settlement(again, delivery.OUTCOME_EXTEND)])
        await asyncio.sleep(WRITTEN)
        self._tape.part("problems")
        wrong = [settlement(first, ACK), settlement(b"\0" * 18, ACK), delivery.Settlement(token=again)]
        await stream.settle(settlements=wrong)
        await stream.hear()
        await self.call("Schedule", service.ScheduleRequest(timer=moved("inv-2")))
        await stream.settle(settlements=[settlement(again, ACK)])
        await stream.hear()
        self._tape.part("drain")
        await self.schedule("inv-4")
        (fourth,) = await stream.tokens()
        await stream.settle(fourth)
        await stream.say(delivery.DeliverRequest(drain=delivery.Drain()))
        await stream.settle(settlements=[settlement(fourth, ACK)])
        await stream.end()

    async def broken(self) -> None:
        await self.schedule("inv-5", "inv-6")
        self._tape.part("broken")
        stream = Stream(self._tape, self._channel)
        await stream.open()
        begun, _ = await stream.tokens()
        await stream.settle(begun)
        await stream.cut()
        stream = Stream(self._tape, self._channel)
        await stream.open()
        begun, other = await stream.tokens()
        await stream.settle(begun, other, settlements=[settlement(begun, ACK), settlement(other, ACK)])
        with self._tape.unseen():
            await stream.end()

    async def columns(self) -> None:
        await self.schedule("rem-3", topic="reminders")
        self._tape.part("delivery-columns")
        stream = Stream(self._tape, self._channel)
        await stream.open("reminders", columns=True)
        tokens = (await stream.hear()).columns.tokens
        await stream.settle(*tokens)
        await stream.settle(acknowledged=tokens)
        with self._tape.unseen():
            await stream.say(delivery.DeliverRequest(drain=delivery.Drain()))
            await stream.end()

    async def push(self, served: Handler) -> None:
        self._tape.part("push")
        await self.schedule("mail-1", topic="mails")
        await served.ended(2)
        await self.schedule("mail-2", topic="mails")
        await served.ended(3)

    async def push_batch(self, served: Batcher) -> None:
        with self._tape.unseen():
            await self.schedule("letter-1", topic="letters")  # goes alone, as the first one of a connection
            await served.ended()
        self._tape.part("push-batch")
        await self.schedule("letter-2", "letter-3", topic="letters")
        await served.ended()

    async def relay_drains(self, process: asyncio.subprocess.Process) -> None:
        await self.schedule("inv-7")
        self._tape.part("relay-drains")
        stream = Stream(self._tape, self._channel)
        await stream.open()
        (token,) = await stream.tokens()
        await stream.settle(token)
        process.send_signal(signal.SIGTERM)
        await stream.hear()
        await stream.settle(settlements=[settlement(token, ACK)])
        await stream.end()


def moved(timer_id: str) -> timer.TimerSpec:
    new = spec(timer_id)
    new.due_time.FromJsonString("2030-01-31T09:00:00Z")
    return new


class Handler(handler_grpc.TimerHandlerServicer):
    """The application that the relay dials."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ended = asyncio.Semaphore(0)
        self._count = 0

    async def Deliver(  # noqa: N802  (gRPC's name)
        self, request: handler.TimerHandlerDeliverRequest, context: Any
    ) -> handler.TimerHandlerDeliverResponse:
        """NACKs a first attempt at mail-1, refuses mail-2."""
        try:
            self._tape.got(request, "Deliver")
            self._tape.sent("(initial metadata relay-receipt: 1)")
            await context.send_initial_metadata((("relay-receipt", "1"),))
            if request.delivery.timer_id == "mail-2":
                self._tape.sent("(status INVALID_ARGUMENT: no such address)")
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such address")
            answer = handler.TimerHandlerDeliverResponse()
            if request.delivery.attempt == 1:
                answer = handler.TimerHandlerDeliverResponse(outcome=NACK, retry_after={"nanos": 100_000_000})
            self._tape.sent(answer)
            return answer
        finally:
            self._ended.release()

    async def ended(self, count: int) -> None:
        """Wait until this number of calls has ended since the beginning."""
        while self._count < count:
            await self._ended.acquire()
            self._count += 1


class Batcher(handler_grpc.TimerHandlerServicer):
    """An application that takes batches."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ended = asyncio.Semaphore(0)

    async def DeliverBatch(  # noqa: N802  (gRPC's name)
        self, request: handler.TimerHandlerDeliverBatchRequest, context: Any
    ) -> None:
        """Begins all; the last one has its outcome first, and is acknowledged like letter-1; the other is
        refused."""

        async def say(**said: Any) -> None:
            response = handler.TimerHandlerDeliverBatchResponse(**said)
            self._tape.sent(response)
            await context.write(response)

        self._tape.got(request, "DeliverBatch")
        tokens = [each.token for each in request.deliveries]
        await say(received=tokens)
        *others, last = tokens
        await say(settlements=[settlement(last, ACK)])
        if others:
            await say(settlements=[settlement(token, REJECT, reason="no such address") for token in others])
        self._tape.sent("(status OK)")
        self._ended.release()

    async def ended(self) -> None:
        """Until one more call has ended."""
        await self._ended.acquire()


async def record() -> dict[str, list[str]]:
    """Play it all."""
    tape = Tape()
    served, batched = Handler(tape), Batcher(tape)
    servers, targets = [], []
    for application in (served, batched):
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handler_grpc.add_TimerHandlerServicer_to_server(application, server)
        targets.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    async with asyncio.timeout(TIMEOUT), relay(*targets) as (process, address):
        async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            play = Play(tape, channel)
            await play.producer()
            await play.stream()
            await play.broken()
            await play.columns()
            await play.push(served)
            await play.push_batch(batched)
            await asyncio.gather(*(server.stop(None) for server in servers))
            await play.relay_drains(process)
        await process.wait()
    return tape.parts
