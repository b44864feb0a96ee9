"""A small application that is pushed to, with one fault at will: what the scenes of push have to find.

It runs in the suite's own process: a scene costs no start of Python.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_health.v1 import health_pb2, health_pb2_grpc

from relay.conformance.observed import Observed
from relay.conformance.stage import NO_PUSH
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from relay.v1 import timer_handler_pb2_grpc as base
from tests.conformance.raw_client import Outcome, duration, gate, told
from tests.worlds.waiting import PATIENCE

RECEIPT = (("relay-receipt", "1"),)
Context = Any


LATE = {"fails-late-calls": grpc.StatusCode.INTERNAL, "receives-late-calls": grpc.StatusCode.UNAVAILABLE}
"""The status with which each fault ends a call that arrives after SIGTERM. UNAVAILABLE is a fault only after
a receipt."""


class RawPush:
    """See `ClientUnderTest`. `nothing` is no fault; `no-health`, `no-batch` and `no-push` are none either."""

    def __init__(self, fault: str, _target: str, _log: Path, watched: Observed) -> None:
        self.fault = fault
        self.may_end = False
        self.exit_code: int | None = None
        self._grace: float | None = PATIENCE
        self._watched = watched
        self._server: grpc.aio.Server | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, *arguments: str) -> None:
        role, self.topic, address, _ = arguments
        assert role == "push"
        if self.fault in ("no-push", "ends-at-once"):
            self.exit(NO_PUSH if self.fault == "no-push" else 1)
            return
        limit = 4 * 2**20 if self.fault == "small-messages" else -1
        options = [("grpc.max_receive_message_length", limit), ("grpc.so_reuseport", 0)]
        server = self._server = grpc.aio.server(options=options)
        self.health, self.handler = Health(self), Handler(self)
        if self.fault != "no-health":
            health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        base.add_TimerHandlerServicer_to_server(self.handler, server)
        server.add_insecure_port(address)
        await server.start()

    def exit(self, code: int) -> None:
        self.exit_code = code
        if not self.may_end:
            self._watched.object_to(f"the client ended by itself ({code}): {self.last_words()}")
        self._watched.changed()

    def terminate(self) -> None:
        self.may_end = True
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        assert self._server is not None
        self.handler.stopping = True
        if self.fault != "says-nothing":
            self.health.stopped.set()
        if self.fault in LATE:
            await self.handler.late.wait()  # otherwise the call that comes late may find no server
        if self.fault != "leaves-at-once":
            await self.handler.idle.wait()
        self.health.ended.set()
        # Its handlers have ended, so it need not wait for long; but their answers have to leave.
        await self._server.stop(None if self.fault == "leaves-at-once" else self._grace)
        self.exit(1 if self.fault == "wrong-code" else 0)

    async def close(self) -> None:
        if self._stopping is not None:
            # It goes on to its end: a stop of gRPC's server that is cancelled breaks the next one. Handlers
            # whose gate the scene has left shut are not waited for.
            self._grace = None
            self.handler.late.set()
            self.handler.idle.set()
            await self._stopping
        elif self._server is not None:
            await self._server.stop(None)

    def last_words(self) -> str:
        return "its last words"


class Health(health_pb2_grpc.HealthServicer):
    """NOT_SERVING once it is stopped."""

    def __init__(self, client: RawPush) -> None:
        self.stopped, self.ended = asyncio.Event(), asyncio.Event()
        if client.fault == "never-serving":
            self.stopped.set()

    async def Watch(self, request: Any, context: Context) -> None:
        status = health_pb2.HealthCheckResponse
        if not self.stopped.is_set():
            await context.write(status(status=status.SERVING))
            await self.stopped.wait()
        await context.write(status(status=status.NOT_SERVING))
        await self.ended.wait()


class Handler(base.TimerHandlerServicer):
    """Does what payloads say."""

    def __init__(self, client: RawPush) -> None:
        self.client, self.fault = client, client.fault
        self.places = asyncio.Semaphore(1 if client.fault == "one-at-a-time" else 1000)
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.stopping = False
        self.late = asyncio.Event()
        self.occurrences: set[str] = set()

    async def refuse(self, request: pb.TimerHandlerDeliverRequest, context: Context) -> None:
        """End a call that no handler is to have."""
        one = request.delivery
        if self.fault == "strict-fields" and (len(UnknownFieldSet(request)) or len(UnknownFieldSet(one))):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an unknown field")
        if one.topic != self.client.topic and self.fault != "any-topic":
            if self.fault == "receipt-first":
                await context.send_initial_metadata(RECEIPT)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no handler")
        if self.stopping and self.fault in LATE:
            self.late.set()
            if self.fault == "receives-late-calls":
                await context.send_initial_metadata(RECEIPT)
            await context.abort(LATE[self.fault], "it stops")

    async def Deliver(self, request: pb.TimerHandlerDeliverRequest, context: Context) -> Any:
        one = request.delivery
        await self.refuse(request, context)
        if self.fault == "once" and one.occurrence_id in self.occurrences:
            return pb.TimerHandlerDeliverResponse()
        self.occurrences.add(one.occurrence_id)
        if self.fault == "late-receipt":
            return self.answer(await self.settle(one))
        try:
            async with self.places:
                await context.send_initial_metadata(RECEIPT)
                said = await self.settle(one)
        except asyncio.CancelledError:
            if self.fault == "dies-with-its-relay":
                self.client.exit(1)
            raise
        if self.fault == "by-status" and said.outcome == delivery_pb.OUTCOME_NACK:
            await context.abort(grpc.StatusCode.UNKNOWN, said.reason)
        if said.outcome == delivery_pb.OUTCOME_REJECT:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, said.reason)
        return self.answer(said)

    def answer(self, said: delivery_pb.Settlement) -> Any:
        fields = {field.name: value for field, value in said.ListFields() if field.name != "token"}
        if self.fault == "answers-extend":
            fields["outcome"] = delivery_pb.OUTCOME_EXTEND
        return pb.TimerHandlerDeliverResponse(**fields)

    async def DeliverBatch(self, request: pb.TimerHandlerDeliverBatchRequest, context: Context) -> None:
        many = request.deliveries
        answer = pb.TimerHandlerDeliverBatchResponse
        if self.fault == "no-batch":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no batches")
        if many[0].topic != self.client.topic:
            await context.write(answer(refused=[each.token for each in many]))
            return
        receipts = answer(received=[each.token for each in many])
        if self.fault != "unsaid-receipt":
            await context.write(receipts)
        if self.fault == "ends-early":
            return
        settled: list[delivery_pb.Settlement] = []
        for each in asyncio.as_completed([self.settle(one) for one in many]):
            said = await each
            if self.fault == "first-token":
                said.token = many[0].token
            settled.append(said)
            if self.fault != "all-at-the-end":
                await context.write(answer(settlements=settled))
                settled = []
        await context.write(answer(settlements=settled))
        if self.fault == "batch-status":
            await context.abort(grpc.StatusCode.ABORTED, "done")

    async def settle(self, one: delivery_pb.Delivery) -> delivery_pb.Settlement:
        self.running += 1
        self.idle.clear()
        fields: dict[str, Any] = {"outcome": delivery_pb.OUTCOME_ACK}
        try:
            await self.work(one)
        except Outcome as outcome:
            fields = outcome.fields
        except RuntimeError as error:
            fields = {
                "outcome": delivery_pb.OUTCOME_NACK,
                "reason": str(error) if self.fault == "quotes" else "error",
            }
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()
        return delivery_pb.Settlement(token=one.token, **fields)

    async def work(self, one: delivery_pb.Delivery) -> None:
        word, _, rest = one.payload.partition(b" ")
        text = "" if word == b"tell" else rest.decode().strip()
        match word.decode():
            case "nack":
                raise Outcome(delivery_pb.OUTCOME_NACK, retry_after=duration(text) if text else None)
            case "final":
                raise Outcome(delivery_pb.OUTCOME_NACK, retryable=False)
            case "error":
                raise RuntimeError(text)
            case "reject":
                raise Outcome(delivery_pb.OUTCOME_REJECT, reason="" if self.fault == "no-reason" else text)
            case "reschedule":
                raise Outcome(delivery_pb.OUTCOME_RESCHEDULE, reschedule={"delay": duration(text)})
            case "hold" if self.fault != "does-no-work":
                await gate(text)
            case "freeze":
                await asyncio.Event().wait()
            case "tell":
                if self.fault == "milliseconds":
                    one.due_time.nanos -= one.due_time.nanos % 1_000_000
                raise Outcome(delivery_pb.OUTCOME_REJECT, reason=told(one))
