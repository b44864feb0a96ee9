"""One delivery stream, as a relay sees it, with the rules that hold in every scene."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import grpc
import grpc.aio
from google.protobuf import timestamp_pb2

from relay.conformance.observed import Observed
from relay.v1 import delivery_service_pb2 as pb

TOPIC = "conformance"
DUE_US = 1_767_225_605_000_001
"""When all timers fell due, in microseconds since 1970: a clock of milliseconds would lose the last digit."""
_numbers = itertools.count(1)


def delivery(word: str, timer_id: str = "a", *, attempt: int = 1, **more: Any) -> pb.Delivery:
    """A delivery whose payload tells the client's handler what to do. Its token is new, and no text."""
    due = timestamp_pb2.Timestamp()
    due.FromMicroseconds(DUE_US)
    return pb.Delivery(
        **{
            "topic": TOPIC,
            "timer_id": timer_id,
            "payload": word.encode(),
            "due_time": due,
            "attempt": attempt,
            "lease_deadline": due,
            "occurrence_id": f"{timer_id}/{0:032x}",
            "token": b"\xff\x00\xc3" + next(_numbers).to_bytes(5),
            **more,
        }
    )


class ServedStream:
    """What a client has said on a stream, and what is said to it.

    Everything that the client says is held to the rules of the protocol that are no single scene's.
    """

    def __init__(self, watched: Observed, context: Any) -> None:
        self._watched = watched
        self._context = context
        self._names: dict[bytes, str] = {}
        self._end: asyncio.Future[tuple[grpc.StatusCode, str]] = asyncio.get_running_loop().create_future()
        self._reads_acknowledged = False
        self.open: pb.Open | None = None
        self.opened = False
        self.messages = 0
        """How many messages of receipts and outcomes have come."""
        self.most_running = 0
        """The highest `running` behind any message so far."""
        self.received: list[bytes] = []
        self.extended: list[bytes] = []
        self.outcomes: dict[bytes, pb.Settlement] = {}
        self.drained = False
        self.half_closed = False
        self.over = False
        self.may_end = False
        """Whether an end that is not in order is the scene's doing."""
        self._asked_to_drain = False

    @property
    def running(self) -> int:
        """How many deliveries have a receipt and no outcome."""
        return len(set(self.received) - set(self.outcomes))

    @property
    def ended(self) -> str:
        """How the stream has ended; empty as long as it has not."""
        return "the stream ended" if self.over else ""

    # ------------------------------------------------------ what the relay says

    async def open_it(self, *, acknowledged: bool = False, answer: bytes | None = None) -> None:
        """Answer the Open; `answer` is the message as bytes, where it has what no client knows."""
        self._reads_acknowledged = acknowledged
        self.opened = True
        opened = pb.DeliverResponse(opened=pb.Opened(acknowledged=acknowledged))
        await self._send(opened.SerializeToString() if answer is None else answer)

    async def deliver(self, *deliveries: pb.Delivery) -> None:
        """Send one message with these deliveries."""
        await self.send(pb.DeliverResponse(deliveries=pb.DeliveryBatch(deliveries=deliveries)))

    async def send(self, message: pb.DeliverResponse | bytes) -> None:
        """Send a message. Deliveries in a message that is given as bytes have to be made known before."""
        if isinstance(message, bytes):
            await self._send(message)
            return
        self.make_known(message)
        await self._send(message.SerializeToString())

    def make_known(self, message: pb.DeliverResponse) -> None:
        """Note the tokens of a message: no others may come back."""
        for each in message.deliveries.deliveries:
            self._names[each.token] = each.timer_id
        columns = message.columns
        self._names.update(zip(columns.tokens, columns.timer_ids, strict=True))

    async def problem(self, token: bytes, reason: int) -> None:
        """Say that a settlement changed nothing, or would change nothing."""
        message = pb.DeliverResponse()
        one = message.problems.problems.add(token=token, message="as scripted")
        one.reason = reason  # type: ignore[assignment]
        await self.send(message)

    async def drain(self) -> None:
        """Ask for an orderly end."""
        self._asked_to_drain = True
        await self.send(pb.DeliverResponse(drain=pb.Drain()))

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, text: str = "") -> None:
        """End the stream."""
        self.may_end = True
        if not self._end.done():
            self._end.set_result((code, text))

    async def _send(self, message: bytes) -> None:
        try:
            await self._context.write(message)
        except (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            self._watched.object_to("the client broke the stream off")

    # ---------------------------------------------------------------- the stream

    async def serve(self) -> None:
        """Read to the end, which either side makes."""
        reader = asyncio.create_task(self._read())
        try:
            waits: list[asyncio.Future[Any]] = [reader, self._end]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not self._end.done():
                await reader
                self._watched.changed()
            code, text = await self._end
            if code is not grpc.StatusCode.OK:
                await self._context.abort(code, text)
        finally:
            reader.cancel()
            self.over = True
            if not self.half_closed and not self.may_end:
                self._watched.object_to("the client broke the stream off")
            self._watched.changed()

    async def _read(self) -> None:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            self._hear(request)
            self._watched.changed()
        if self.may_end:
            return  # the stream was cut off; gRPC reads its end, as if the client had said it
        self.half_closed = True
        unsettled = set(self.received) - set(self.outcomes)
        if unsettled:
            self._watched.object_to(
                f"ended its side, or broke off, before the outcome of {self._names[unsettled.pop()]}"
            )
        elif not self.drained and not self._asked_to_drain:
            self._watched.object_to("ended its side, or broke off, and neither side had sent Drain")
        self._watched.changed()

    def _hear(self, request: pb.DeliverRequest) -> None:
        kind = request.WhichOneof("message")
        if self.open is None:
            if kind != "open":
                self._watched.object_to(f"the first message has to be Open, and is {kind or 'empty'}")
            self.open = request.open
        elif kind == "settle":
            self._settle(request.settle)
        elif kind == "drain":
            self.drained = True
        else:
            self._watched.object_to("Open was sent twice" if kind else "an empty message came")

    def _settle(self, said: pb.Settle) -> None:
        self.messages += 1
        for token in said.received:
            self._known(token, "a receipt")
            self.received.append(token)
        for each in said.settlements:
            self._outcome(each)
        if said.acknowledged and not self._reads_acknowledged:
            self._watched.object_to("Settle.acknowledged was used, and Opened did not say that it is read")
        for token in said.acknowledged:
            self._outcome(pb.Settlement(token=token, outcome=pb.OUTCOME_ACK))
        self.most_running = max(self.most_running, self.running)

    def _outcome(self, said: pb.Settlement) -> None:
        name = self._known(said.token, "an outcome")
        if said.token in self.outcomes:
            self._watched.object_to(f"{name} was settled twice")
        elif said.outcome == pb.OUTCOME_EXTEND:
            self.extended.append(said.token)
        else:
            self.outcomes[said.token] = said

    def _known(self, token: bytes, what: str) -> str:
        name = self._names.get(token)
        if name is None:
            self._watched.object_to(f"{what} came with a token that belongs to no delivery of this stream")
        return name or "an unknown delivery"
