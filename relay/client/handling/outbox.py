"""Receipts and outcomes, gathered into few messages and written by one task: on a stream, or in answer to a
batch.

gRPC allows one write at a time. While one is under way, receipts and outcomes gather in the
next frame. So batches grow with the load by themselves, and an idle stream adds no delay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc.aio

from relay.client.handling import settlements
from relay.client.handling.lease import DeliveryLease
from relay.v1 import delivery_service_pb2 as pb

MAX_FRAME = 500
"""How many receipts, and how many outcomes, one message may hold."""


class Far(Protocol):
    """Where frames are written."""

    async def write(self, message: Any) -> Any:
        """Write one frame; return when it has left."""
        ...

    async def done_writing(self) -> Any:
        """End this side."""
        ...


class Frame:
    """One message that is being filled, and those who wait until it is written.

    `said` is the part of the message that takes receipts and outcomes, as `received` and `settlements`;
    without it the frame takes none. `acknowledged` is the list of acknowledged tokens, if the relay reads
    one.
    """

    __slots__ = (
        "_acknowledged",
        "_outcomes",
        "_received",
        "_settlements",
        "_waiters",
        "full",
        "message",
        "starts",
    )

    def __init__(self, message: Any, said: Any = None, acknowledged: Any = None) -> None:
        self.message = message
        self.full = said is None
        self.starts: list[DeliveryLease] = []
        self._waiters: list[asyncio.Future[bool]] = []
        # Reading an attribute of a protobuf message costs more than everything else that is done here.
        self._received = None if said is None else said.received
        self._settlements = None if said is None else said.settlements
        self._acknowledged = acknowledged
        self._outcomes = 0

    def add_receipt(self, lease: DeliveryLease) -> None:
        """Add the receipt of a handler, which starts once the frame is written."""
        if self._received is None:
            raise AssertionError("a frame of its own takes no receipts")
        self._received.append(lease.token)
        self.starts.append(lease)
        self.full = len(self.starts) >= MAX_FRAME or self.full

    def add_settlement(self, token: bytes, settlement: pb.Settlement) -> None:
        """Add the outcome of a delivery, or an EXTEND."""
        if self._settlements is None:
            raise AssertionError("a frame of its own takes no outcomes")
        if settlement is not settlements.ACK:
            self._settlements.add(token=token).MergeFrom(settlement)
        elif self._acknowledged is not None:  # by far the most
            self._acknowledged.append(token)
        else:
            self._settlements.add(token=token, outcome=pb.OUTCOME_ACK)
        self._outcomes += 1
        self.full = self._outcomes >= MAX_FRAME or self.full

    async def wait(self) -> bool:
        """Wait until the frame is written; return False if the stream broke before."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter

    def release(self, *, written: bool) -> None:
        """Wake those who wait."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(written)


def of_a_stream(*, acknowledged: bool) -> Frame:
    """Return an empty frame of a stream; `acknowledged` says whether its relay reads the list of that
    name."""
    request = pb.DeliverRequest()
    said = request.settle
    return Frame(request, said, said.acknowledged if acknowledged else None)


class Outbox:
    """The frames that wait to be written; `blank` makes an empty one.

    `before_write` is called whenever a frame may leave, and adds what can go with it. So the places that the
    handlers of a whole batch leave are filled in one step. `on_started` is called with the leases whose
    receipts were just written, and `on_unstarted` with those whose receipts never will be, so that their
    handlers must not run.
    """

    def __init__(
        self,
        on_started: Callable[[list[DeliveryLease]], None],
        on_unstarted: Callable[[list[DeliveryLease]], None],
        blank: Callable[[], Frame],
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_started = on_started
        self._on_unstarted = on_unstarted
        self._blank = blank
        self._before_write = before_write
        self._frames: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self.closed = False
        """Whether nothing more is taken in; what was taken in before may still be written."""

    def put(self, request: pb.DeliverRequest) -> None:
        """Add a message of its own: Open or Drain."""
        self._append(Frame(request))

    def gather(self) -> Frame:
        """Return the frame that takes receipts and outcomes now."""
        if self._frames and not self._frames[-1].full:
            return self._frames[-1]
        return self._append(self._blank())

    def wake(self) -> None:
        """Wake the writer: there may be something for `before_write` to add."""
        self._wake.set()

    def finish(self) -> None:
        """Take in nothing more. After the last frame the application's side ends."""
        self.closed = True
        self._wake.set()

    async def run(self, call: Far) -> None:
        """Write frames until `finish`, or until the stream breaks; the stream's reader learns why."""
        try:
            while frame := await self._next():
                try:
                    await call.write(frame.message)
                except BaseException:
                    self._frames.appendleft(frame)
                    raise
                frame.release(written=True)
                self._on_started(frame.starts)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        finally:
            self.fail()

    def fail(self) -> None:
        """Give up what was not written: the stream is gone."""
        self.closed = True
        while self._frames:
            frame = self._frames.popleft()
            frame.release(written=False)
            self._on_unstarted(frame.starts)

    async def _next(self) -> Frame | None:
        while True:
            self._before_write()
            if self._frames:
                return self._frames.popleft()
            if self.closed:
                return None
            self._wake.clear()
            await self._wake.wait()

    def _append(self, frame: Frame) -> Frame:
        self._frames.append(frame)
        self._wake.set()
        return frame
