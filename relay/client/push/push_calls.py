"""The calls by which a relay pushes.

A call of `Deliver` has one answer. A call of `DeliverBatch` is answered like a stream: with receipts as its
handlers start, and with outcomes as they come. Each message holds all that gathered while the one before was
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import grpc
import grpc.aio

from relay.client.handling import settlements
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.outbox import Frame, Outbox
from relay.client.push.push_places import PushCall, PushPlace
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb

CUT_OFF = "the application stopped before its handler ended"
RECEIPT = (("relay-receipt", "1"),)
"""The initial metadata of `Deliver`. It is sent as a handler starts: from there on the attempt counts."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class SingleCall(PushCall):
    """A call of `Deliver`, whose answer is the outcome."""

    def __init__(self, place: PushPlace, message: delivery_pb.Delivery) -> None:
        super().__init__(place, [message])
        (self._lease,) = self.open.values()
        loop = asyncio.get_running_loop()
        self._place_found: asyncio.Future[bool] = loop.create_future()
        self._answer: asyncio.Future[pb.TimerHandlerDeliverResponse | None] = loop.create_future()

    @property
    def closed(self) -> bool:
        """See `PushCall`."""
        return self._answer.done()

    async def run(self, context: Context) -> pb.TimerHandlerDeliverResponse:
        """Wait for a place, start the handler, and give its answer."""
        self._place.admit(self, [self._lease])
        started, answer = False, None
        try:
            if await self._place_found:
                await context.send_initial_metadata(RECEIPT)
                self._place.workers.start([self._lease])
                started = True
                answer = await self._answer
        finally:
            if not started and self._lease in self._begun:
                self._begun.discard(self._lease)
                self._place.give_back()
            self._answer.cancel()  # has no effect on an answer that was given
            self._end()
        if not started:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the application stops")
        if answer is None:
            await context.abort(grpc.StatusCode.ABORTED, CUT_OFF)
            raise AssertionError("abort returned")
        return answer

    def begin(self, lease: DeliveryLease) -> bool:
        """See `PushCall`."""
        if self._place_found.done():  # the call was cut off, and has not heard of it yet
            return False
        self._begun.add(lease)
        self._place_found.set_result(True)
        return True

    def refuse(self, leases: Sequence[DeliveryLease]) -> None:
        """See `PushCall`."""
        self.open.clear()
        if not self._place_found.done():
            self._place_found.set_result(False)

    def cut_off(self, lease: DeliveryLease) -> None:
        """See `PushCall`."""
        self.open.clear()
        if not self.closed:
            self._answer.set_result(None)

    async def wait(self) -> bool:
        """Return at once: the answer leaves as soon as the loop turns."""
        return True

    def _say(self, token: bytes, settlement: delivery_pb.Settlement) -> SingleCall:
        said = {field.name: value for field, value in settlement.ListFields()}
        self._answer.set_result(pb.TimerHandlerDeliverResponse(**said))
        return self


class BatchCall(PushCall):
    """A call of `DeliverBatch`."""

    def __init__(self, place: PushPlace, messages: Iterable[delivery_pb.Delivery]) -> None:
        super().__init__(place, messages)
        self._outbox = Outbox(place.workers.start, self._unstarted, _blank)

    @property
    def closed(self) -> bool:
        """See `PushCall`."""
        return self._outbox.closed

    async def run(self, context: Context) -> None:
        """Answer until each delivery has its outcome."""
        try:
            self._place.admit(self, list(self.open.values()))
            await self._outbox.run(_RelayCaller(context))
        finally:
            self._end()

    def begin(self, lease: DeliveryLease) -> bool:
        """See `PushCall`."""
        if self.closed:
            return False
        self._begun.add(lease)
        self._outbox.gather().add_receipt(lease)
        return True

    def refuse(self, leases: Sequence[DeliveryLease]) -> None:
        """See `PushCall`."""
        self._outbox.gather().message.refused.extend(lease.token for lease in leases)
        for lease in leases:
            del self.open[lease.token]
        self._finish_if_settled()

    def cut_off(self, lease: DeliveryLease) -> None:
        """See `PushCall`."""
        if not self.closed:
            lease.settle(settlements.nack(None, CUT_OFF, retryable=True))

    def _say(self, token: bytes, settlement: delivery_pb.Settlement) -> Frame:
        frame = self._outbox.gather()
        frame.add_settlement(token, settlement)
        self._finish_if_settled()
        return frame

    def _finish_if_settled(self) -> None:
        if not self.open:
            self._outbox.finish()

    def _unstarted(self, leases: list[DeliveryLease]) -> None:
        """Give up these leases, whose receipts were not written: the call is broken."""
        self._place.dismiss(self)
        for lease in leases:
            self._begun.discard(lease)
            self._place.give_back()


class _RelayCaller:
    """The relay as an outbox sees it."""

    def __init__(self, context: Context) -> None:
        self.write = context.write

    async def done_writing(self) -> None:
        """Do nothing: the call ends when its method returns."""


def _blank() -> Frame:
    message = pb.TimerHandlerDeliverBatchResponse()
    return Frame(message, message)
