"""A small client of the protocol, with one fault at will: what `relay conformance` has to find.

    python -m tests.conformance.raw_client FAULT handle TOPIC PLACES
    python -m tests.conformance.raw_client FAULT schedule TOPIC ID DELAY_MS PAYLOAD

`honest` is no fault. The others are named where they are made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.unknown_fields import UnknownFieldSet

from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc, timer_pb2, timer_service_pb2_grpc
from relay.v1 import timer_service_pb2 as timers

FAULT = sys.argv[1] if __name__ == "__main__" else ""
OPTIONS = [
    ("grpc.max_receive_message_length", 4 * 2**20 if FAULT == "small-messages" else -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Outcome(Exception):
    """What ends a handler; `fields` are those of a Settlement."""

    def __init__(self, outcome: int, **fields: Any) -> None:
        super().__init__()
        self.fields = {"outcome": outcome, **fields}


async def gate(path: str) -> None:
    while not Path(path).exists():
        await asyncio.sleep(0.02)


def duration(ms: str) -> dict[str, int]:
    whole = int(ms) * (1000 if FAULT == "seconds" else 1)
    return {"seconds": whole // 1000, "nanos": whole % 1000 * 1_000_000}


def told(one: pb.Delivery) -> str:
    due = one.due_time.ToMicroseconds()
    due -= due % 1000 if FAULT == "milliseconds" else 0
    header, content = one.headers["ort"], one.payload.hex()
    fields = (one.timer_id, one.attempt, due, one.occurrence_id, one.content_type, header, content)
    return "|".join(map(str, fields))


class Session:
    """One stream."""

    def __init__(self, call: Any, topic: str, places: int) -> None:
        self.call = call
        self.topic = topic
        self.places = asyncio.Semaphore(1000 if FAULT == "starts-all" else places)
        self.wanted = 100 if FAULT == "places" else places
        self.received: list[bytes] = []
        self.settlements: list[pb.Settlement] = []
        self.wake = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.crossed = asyncio.Event()
        self.written = asyncio.Event()
        self.handlers: set[asyncio.Task[None]] = set()
        self.tokens: dict[str, bytes] = {}
        self.draining = False
        self.opened = False
        self.writing = False
        self.tell = False

    async def run(self, old: list[bytes]) -> None:
        opening = pb.DeliverRequest(
            open=pb.Open(topics=[self.topic], max_outstanding=self.wanted, columns=FAULT == "columns-as-acks")
        )
        if FAULT != "receipt-first":
            await self.call.write(opening)
        else:
            await self.call.write(pb.DeliverRequest(settle=pb.Settle(received=[b"x"])))
        if FAULT == "open-twice":
            await self.call.write(opening)
        if FAULT == "empty":
            await self.call.write(pb.DeliverRequest())
        if FAULT == "old-tokens":
            self.settlements += [pb.Settlement(token=token, outcome=pb.OUTCOME_ACK) for token in old]
        writer = asyncio.create_task(self.write())
        try:
            while (said := await self.call.read()) is not grpc.aio.EOF:
                await self.hear(said)
        finally:
            writer.cancel()
            for each in self.handlers:
                each.cancel()

    async def hear(self, said: pb.DeliverResponse) -> None:
        kind = said.WhichOneof("message")
        if FAULT == "strict-fields":
            known = said.opened if kind == "opened" else said
            assert not len(UnknownFieldSet(known)), "an unknown field"
        if FAULT == "strict-kinds":
            assert kind, "an unknown kind"
        if kind == "opened":
            self.opened = True
        elif kind == "deliveries" and not (self.draining and FAULT != "starts-behind-drain"):
            for one in said.deliveries.deliveries:
                self.take(one)
            if self.draining:
                self.crossed.set()
        elif kind == "columns":
            self.settlements += [
                pb.Settlement(token=each, outcome=pb.OUTCOME_ACK) for each in said.columns.tokens
            ]
            self.wake.set()
        elif kind == "problems":
            for problem in said.problems.problems:
                if FAULT == "strict-reasons":
                    pb.ProblemReason.Name(problem.reason)
                assert FAULT != "leaves-at-a-problem", "a lease was lost"
        elif kind == "drain":
            if FAULT == "hangs-up-at-drain":
                await self.call.done_writing()
                self.hung_up.set()
            else:
                await self.drain(tell=False)

    def take(self, one: pb.Delivery) -> None:
        if FAULT == "first-token":
            self.tokens.setdefault(one.timer_id, one.token)
        else:
            self.tokens[one.timer_id] = one.token
        task = asyncio.create_task(self.handle(one))
        self.handlers.add(task)
        task.add_done_callback(self.handlers.discard)

    async def handle(self, one: pb.Delivery) -> None:
        async with self.places:
            if FAULT != "late-receipts":
                self.received.append(one.token)
                written = self.written
                self.wake.set()
                await written.wait()
            else:
                self.received.append(one.token)
            fields: dict[str, Any] = {"outcome": pb.OUTCOME_ACK}
            try:
                await self.work(one)
            except Outcome as outcome:
                fields = outcome.fields
            except RuntimeError as error:
                fields = {"outcome": pb.OUTCOME_NACK, "reason": str(error) if FAULT == "quotes" else "error"}
            if FAULT == "nack-for-ack" and fields["outcome"] == pb.OUTCOME_ACK:
                fields["outcome"] = pb.OUTCOME_NACK
            token = self.tokens[one.timer_id] if FAULT in ("by-timer-id", "first-token") else one.token
            self.settlements.append(pb.Settlement(token=token, **fields))
            self.wake.set()

    async def work(self, one: pb.Delivery) -> None:
        word, _, rest = one.payload.partition(b" ")
        match word.decode():
            case "nack":
                raise Outcome(pb.OUTCOME_NACK, retry_after=duration(rest.decode()) if rest else None)
            case "final":
                raise Outcome(pb.OUTCOME_NACK, retryable=None if FAULT == "never-final" else False)
            case "error":
                raise RuntimeError(rest.decode())
            case "reject":
                raise Outcome(pb.OUTCOME_REJECT, reason="" if FAULT == "no-reason" else rest.decode())
            case "reschedule":
                if FAULT == "reschedule-is-ack":
                    return
                raise Outcome(pb.OUTCOME_RESCHEDULE, reschedule={"delay": duration(rest.decode())})
            case "extend":
                if FAULT != "extend-is-ack":
                    self.settlements.append(pb.Settlement(token=one.token, outcome=pb.OUTCOME_EXTEND))
                    self.wake.set()
                    await gate(rest.decode())
            case "hold":
                await gate(rest.decode())
                if FAULT == "hangs-up-at-drain":
                    await self.hung_up.wait()  # or this outcome might be sent before, and all were well
                if FAULT == "starts-behind-drain":
                    await self.crossed.wait()  # or it might end its side before it has read what crosses
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "tell":
                raise Outcome(pb.OUTCOME_REJECT, reason=told(one))

    async def write(self) -> None:
        """One writer, which gathers."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            self.writing = True
            if self.tell:
                await self.call.write(pb.DeliverRequest(drain=pb.Drain()))
                self.tell = False
            received, self.received = self.received, []
            settlements, self.settlements = self.settlements, []
            for frame in self.frames(received, settlements):
                await self.call.write(pb.DeliverRequest(settle=frame))
            self.writing = False
            written, self.written = self.written, asyncio.Event()
            written.set()

    def frames(self, received: list[bytes], settlements: list[pb.Settlement]) -> list[pb.Settle]:
        if FAULT == "one-by-one":
            receipts = [pb.Settle(received=[each]) for each in received]
            return receipts + [pb.Settle(settlements=[each]) for each in settlements]
        if FAULT == "acknowledges":
            return [pb.Settle(received=received, acknowledged=[each.token for each in settlements])]
        return [pb.Settle(received=received, settlements=settlements)]

    async def drain(self, *, tell: bool) -> None:
        """Tell by the writer: gRPC takes one write at a time, and drops a second one with an error."""
        self.draining, self.tell = True, tell
        self.wake.set()
        self.finishing = asyncio.create_task(self.finish())

    async def finish(self) -> None:
        while self.handlers or self.settlements or self.received or self.writing or self.tell:
            await asyncio.sleep(0.01)
        if FAULT == "leaves-early":
            os._exit(0)
        await self.call.done_writing()


async def serve(topic: str, places: int) -> None:
    stopping = asyncio.Event()
    session: Session | None = None

    def stop() -> None:
        if FAULT == "dies-at-sigterm":
            os._exit(0)
        stopping.set()
        if session is not None:
            stop.task = asyncio.create_task(session.drain(tell=True))  # type: ignore[attr-defined]

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    pause = 0.1
    old: list[bytes] = []
    async with grpc.aio.insecure_channel(os.environ["RELAY_TARGET"], options=OPTIONS) as channel:
        stub = delivery_service_pb2_grpc.DeliveryServiceStub(channel)
        while not stopping.is_set():
            session = Session(stub.Deliver(), topic, places)
            try:
                await session.run(old)
            except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
                if FAULT == "dials-once":
                    raise
                code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
                if code is grpc.StatusCode.INVALID_ARGUMENT and FAULT != "stubborn":
                    raise
            old += session.tokens.values()
            pause = 0.1 if session.opened else min(2 * pause, 2.0)
            if FAULT != "no-pause" and not stopping.is_set():
                await asyncio.sleep(pause)


async def schedule(topic: str, timer_id: str, delay_ms: str, payload: str) -> None:
    spec = timer_pb2.TimerSpec(topic=topic, timer_id=timer_id, payload=payload.encode())
    spec.delay.FromMilliseconds(int(delay_ms) // (1000 if FAULT == "delay-in-seconds" else 1))
    # Long, so that a fault is not taken for a slow machine, or a slow machine for a fault.
    life = {"honest": 1.0, "hears-late": 8.0, "retries-later": 1.0}.get(FAULT, 20.0)
    heard = FAULT != "hears-late"
    async with grpc.aio.insecure_channel(os.environ["RELAY_TARGET"], options=OPTIONS) as channel:
        stub = timer_service_pb2_grpc.TimerServiceStub(channel)
        while True:
            began = time.monotonic()
            call = stub.Schedule(timers.ScheduleRequest(timer=spec), timeout=life)
            try:
                await asyncio.wait_for(call, 0.2 if FAULT == "gives-up-early" else None)
            except TimeoutError:
                continue
            except grpc.aio.AioRpcError as error:
                retried = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if error.code() not in retried and heard and not FAULT.startswith("retries-"):
                    raise
                heard = True
                answered = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
                if FAULT in ("retries-at-once", "retries-all"):
                    continue
                await asyncio.sleep(1.6 if answered else max(0.0, began + life - time.monotonic()))
            else:
                return


if __name__ == "__main__":
    role, *rest = sys.argv[2:]
    if role == "push":
        sys.exit(64)  # it has none
    asyncio.run(serve(rest[0], int(rest[1])) if role == "handle" else schedule(*rest))
