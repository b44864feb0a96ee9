"""One delivery stream, from its Open to its end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import grpc.aio

from relay.client import errors
from relay.client.handling.delivery_columns import Row, rows
from relay.client.handling.handlers import Registration
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.outbox import Frame, Outbox, of_a_stream
from relay.client.handling.reported_problems import TokenBook
from relay.client.handling.workers import Workers
from relay.client.unreadable import readable
from relay.v1 import delivery_service_pb2 as pb

if TYPE_CHECKING:
    from relay.client.calls.channel import DeliverCall

_log = logging.getLogger("relay.client")


class DeliveryStream:
    """A stream that brings deliveries and takes outcomes.

    A delivery waits here until a worker is free; then its receipt is written, and only then does
    its handler start. A delivery that still waits when the stream ends was never received as far as the relay
    knows, so it comes again and no attempt counts.
    """

    def __init__(
        self,
        registration: Registration,
        call: DeliverCall,
        workers: Workers,
        on_opened: Callable[[pb.Opened], None],
    ) -> None:
        self._topic = registration.topic
        self._call = call
        self._workers = workers
        self._on_opened = on_opened
        self._waiting: deque[pb.Delivery | Row] = deque()
        self._book = TokenBook(registration.topic)
        self._outbox = Outbox(workers.start, self._unstarted, self._blank, self._start_waiting)
        self._reads_acknowledged = False
        self._draining: asyncio.Task[None] | None = None
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.opened = False
        asked = registration.asked
        self._outbox.put(
            pb.DeliverRequest(
                open=pb.Open(
                    topics=[registration.topic],
                    max_outstanding=registration.max_outstanding,
                    slow_outstanding=registration.slow_outstanding,
                    columns=True,
                    header_columns=True,
                    handlers=[] if asked is None else [asked],
                )
            )
        )

    @property
    def closed(self) -> bool:
        """Whether outcomes are void by now."""
        return self._outbox.closed

    async def run(self) -> None:
        """Serve until the relay ends the stream. Raises `CallError` unless the relay ended it with OK."""
        writer = asyncio.create_task(self._outbox.run(self._call))
        try:
            await self._read()
        except grpc.aio.AioRpcError as error:
            raise errors.from_rpc(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise errors.make(grpc.StatusCode.CANCELLED, "the stream was cut off") from None
        finally:
            await self._end(writer)

    def drain(self, *, tell: bool) -> None:
        """Start no more handlers. When the last one has settled, end the application's side.

        With `tell`, the relay is sent a Drain first.
        """
        self._waiting.clear()
        if tell and not self._outbox.closed:
            self._outbox.put(pb.DeliverRequest(drain=pb.Drain()))
        if self._draining is None:
            self._draining = asyncio.create_task(self._finish_when_idle())

    def cut(self) -> None:
        """Break the stream off."""
        self._call.cancel()

    def wake(self) -> None:
        """Note that more handlers may start than before: their receipts go with the next message."""
        if self._waiting:
            self._outbox.wake()

    def _start_waiting(self) -> None:
        """Start as many waiting deliveries as there are free workers, and write their receipts in one
        message."""
        if not self._waiting or self._outbox.closed:
            return
        count = self._workers.reserve(len(self._waiting))
        if not count:
            return
        self._running += count
        self._idle.clear()
        frame = self._outbox.gather()
        for _ in range(count):
            lease = DeliveryLease(self._waiting.popleft(), self)
            self._book.add(lease)
            if frame.full:
                frame = self._outbox.gather()
            frame.add_receipt(lease)

    def settle(self, token: bytes, settlement: pb.Settlement) -> Frame | None:
        """Queue a settlement and return the frame that carries it; None if the stream is gone."""
        if self._outbox.closed:
            return None
        frame = self._outbox.gather()
        frame.add_settlement(token, settlement)
        return frame

    def finished(self, lease: DeliveryLease) -> None:
        """Note that a handler has ended."""
        self._book.end(lease)
        self._running -= 1
        if self._running == 0:
            self._idle.set()

    async def _read(self) -> None:
        while (response := await self._call.read()) is not grpc.aio.EOF:
            response = readable(response, pb.DeliverResponse)
            assert isinstance(response, pb.DeliverResponse)
            match response.WhichOneof("message"):
                case "columns":
                    self._take(rows(response.columns))
                case "deliveries":
                    self._take(response.deliveries.deliveries)
                case "problems":
                    self._book.report(response.problems.problems)
                case "opened":
                    self.opened = True
                    self._reads_acknowledged = response.opened.acknowledged
                    self._on_opened(response.opened)
                case "drain":
                    _log.info("relay drains: topic=%s", self._topic)
                    self.drain(tell=False)
            del response  # its payloads would be in memory twice while nothing more comes

    def _take(self, deliveries: Iterable[pb.Delivery | Row]) -> None:
        if self._draining is None:
            self._waiting.extend(deliveries)
            self.wake()

    def _blank(self) -> Frame:
        return of_a_stream(acknowledged=self._reads_acknowledged)

    def _unstarted(self, leases: list[DeliveryLease]) -> None:
        self._workers.give_back(len(leases))
        for lease in leases:
            self.finished(lease)

    async def _finish_when_idle(self) -> None:
        await self._idle.wait()
        self._outbox.finish()

    async def _end(self, writer: asyncio.Task[None]) -> None:
        """Void the leases that are left, and end the call and its tasks."""
        self._outbox.fail()
        self._waiting.clear()
        self._call.cancel()  # has no effect on a call that has ended
        leftover = [writer] if self._draining is None else [writer, self._draining]
        for task in leftover:
            task.cancel()
        await asyncio.gather(*leftover, return_exceptions=True)
        if self._running:
            _log.info(
                "stream ended: %d running handlers lost their leases: topic=%s",
                self._running,
                self._topic,
            )
