"""One call to the application until its end, with a batch of deliveries or with one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc

from relay.api import frames
from relay.engine.delivery.leases import Lease
from relay.rpc.push_outcomes import Ends
from relay.rpc.unreadable import UNREADABLE, Unreadable
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as pb

RECEIPT = "relay-receipt"
"""The key of the initial metadata by which an application says that its handler has started."""

RECEIPT_AFTER = 0.5
"""Seconds after which a call that is still open on a ready channel counts as received."""

END_PATIENCE = 5.0
"""Seconds that the call of a batch may stay open after its last outcome. A longer one would hold up a drain,
and many of them would gather: the deadline may be hours away."""

MAX_TRACE = 2048
"""The most characters of `traceparent` or `tracestate` that go into the metadata, of which servers take 8 KiB
in all. A longer one is in the delivery's headers only. The standard asks for 512."""

NOT_READ = "the application's answer can't be read"

log = logging.getLogger(__name__)


class PushBatch:  # see 0057
    """A call of `DeliverBatch`. As outcomes come, `ended` is called with the number of places that are free
    again."""

    def __init__(self, ends: Ends, leases: Sequence[Lease], ended: Callable[[int], None]) -> None:
        self._ends = ends
        self._ended = ended
        self._application = ends.application
        self._connection = ends.application.connection
        self._open = {lease.token: lease for lease in leases}
        """The deliveries without an outcome yet."""
        self._carried = len(leases)
        self._receipts: set[bytes] = set()
        self._heard = False
        """Whether the application has said anything."""

    async def run(self) -> list[Lease]:
        """Make the call and await its end. Returns the deliveries that must go by `Deliver` instead and keep
        their places."""
        request = self._request()
        if not self._open:
            return []
        call = self._application.call_batch(request, timeout=self._ends.time_left(self._open.values()))
        presumed = asyncio.get_running_loop().call_later(RECEIPT_AFTER, self._presume)
        try:
            await self._listen(call)
            self._ends.nack(self._open.values(), "the call ended without an outcome")
        except grpc.aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED and not self._heard:
                if (
                    self._connection == self._application.connection
                ):  # another application may have the method
                    self._application.one_by_one.add(self._ends.topic)
                return self._take(list(self._open))
            await self._failed(failure)
        except Exception as failure:  # whatever it is, it must not end the topic's other calls
            if isinstance(failure, Unreadable):
                words = str(failure)
            else:
                words = repr(failure)
                log.exception("a call to the application failed", extra={"topic": self._ends.topic})
            if self._carried == 1:
                self._ends.nack(self._open.values(), words)
            else:
                self._ends.isolate(self._open.values(), self._receipts)
        finally:
            presumed.cancel()
            call.cancel()
            self._ended(len(self._open))
        return []

    async def _listen(self, call: Any) -> None:
        """Take messages until the call has ended, or should have ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as last_words:
                while (said := await call.read()) is not grpc.aio.EOF:
                    if said is UNREADABLE:
                        raise Unreadable(NOT_READ)
                    self._hear(said)
                    if not self._open and last_words.when() is None:
                        last_words.reschedule(asyncio.get_running_loop().time() + END_PATIENCE)

    def _request(self) -> pb.TimerHandlerDeliverBatchRequest:
        try:
            return frames.pushed_batch(self._open.values())
        except ValueError:  # one odd timer must not affect the others
            odd = [lease.token for lease in self._open.values() if _request(self._ends, lease) is None]
            self._ended(len(self._take(odd)))
            self._carried = len(self._open)
            return frames.pushed_batch(self._open.values())

    def _hear(self, said: pb.TimerHandlerDeliverBatchResponse) -> None:
        """Take a message."""
        self._heard = True
        before = len(self._open)
        odd = self._hear_receipts(said.received) + self._hear_outcomes(said.settlements)
        refused = self._take(said.refused)
        odd += len(said.refused) - len(refused)
        if refused:
            self._ends.refused(refused, "the application refuses them")
        elif len(self._open) < before:
            self._ends.lives(self._connection)
        if odd:
            log.warning(
                "an answer names deliveries that its call doesn't have, or doesn't have any more",
                extra={"topic": self._ends.topic, "count": odd},
            )
        self._ended(before - len(self._open))

    def _hear_receipts(self, tokens: Sequence[bytes]) -> int:
        """Note them; return how many had no effect."""
        known = [token for token in tokens if token in self._open]
        if known:
            self._receipts.update(known)
            self._application.sends_receipts = True
            self._ends.received(known, self._connection)
        return len(tokens) - len(known)

    def _hear_outcomes(self, settlements: Sequence[delivery.Settlement]) -> int:
        """Note them; return how many had no effect."""
        ours = [each for each in settlements if self._open.pop(each.token, None) is not None]
        if any(each.token not in self._receipts for each in ours):
            self._application.sends_receipts = False
        self._ends.settled(ours)
        return len(settlements) - len(ours)

    def _take(self, tokens: Sequence[bytes]) -> list[Lease]:
        """Take out the deliveries that had no outcome yet, and now have one."""
        return [self._open.pop(token) for token in tokens if token in self._open]

    def _presume(self) -> None:
        """Count the call as received once it has stayed open for a while: then it has reached the
        application."""
        if not self._application.sends_receipts:  # otherwise they may wait there for their handlers
            self._ends.received(list(self._open), self._connection)

    async def _failed(self, failure: grpc.aio.AioRpcError) -> None:
        leases = list(self._open.values())
        if not leases:
            return
        if self._carried == 1 and failure.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            receipted = bool(self._receipts)
            await self._ends.failed(leases[0], failure, self._connection, receipted=receipted)
        else:
            await self._ends.batch_failed(leases, failure, self._connection, self._receipts)


async def deliver(ends: Ends, lease: Lease, ended: Callable[[int], None]) -> None:
    """A call of `Deliver`. `ended` is called at its end with the place that is free again."""
    try:
        request = _request(ends, lease)
        if request is not None:
            await _deliver(ends, lease, request)
    finally:
        ended(1)


async def _deliver(ends: Ends, lease: Lease, request: pb.TimerHandlerDeliverRequest) -> None:
    application, connection = ends.application, ends.application.connection

    def presume() -> None:
        if not application.sends_receipts:  # otherwise it may wait there for its handler
            ends.received([lease.token], connection)

    call = application.call(request, timeout=ends.time_left([lease]), metadata=_metadata(lease))
    presumed = asyncio.get_running_loop().call_later(RECEIPT_AFTER, presume)
    receipted = False
    try:
        receipted = RECEIPT in {key for key, _ in await call.initial_metadata()}
        if receipted:
            application.sends_receipts = True
            ends.received([lease.token], connection)
        answer = await call.read()
        await call.read()  # wait for the status: cancelling a call that ends by itself looks like an attack
        if isinstance(answer, pb.TimerHandlerDeliverResponse):
            application.sends_receipts = receipted
            if answer.outcome == delivery.OUTCOME_UNSPECIFIED:
                answer.outcome = delivery.OUTCOME_ACK
            ends.answered(lease, answer)
            ends.lives(connection)
        else:
            ends.nack([lease], NOT_READ if answer is UNREADABLE else "the answer was empty")
    except grpc.aio.AioRpcError as failure:
        await ends.failed(lease, failure, connection, receipted=receipted)
    except Exception as failure:  # as above
        log.exception("a call to the application failed", extra={"topic": ends.topic})
        ends.nack([lease], repr(failure))
    finally:
        presumed.cancel()
        call.cancel()


def _request(ends: Ends, lease: Lease) -> pb.TimerHandlerDeliverRequest | None:
    """Make the request. Returns None for a timer that no message can carry, which is then its attempt."""
    try:
        return frames.pushed(lease)
    except ValueError as failure:
        log.error("a delivery can't be put into a message", extra={"topic": ends.topic})
        ends.nack([lease], f"it can't be put into a message: {type(failure).__name__}")
        return None


def _metadata(lease: Lease) -> tuple[tuple[str, str], ...]:
    """Return the trace context as metadata, where gRPC's own instrumentation looks for it."""
    headers: Mapping[str, str] = lease.timer.headers
    return tuple(
        (name, headers[name])
        for name in ("traceparent", "tracestate")
        if name in headers and _fits(headers[name])
    )


def _fits(text: str) -> bool:
    return len(text) <= MAX_TRACE and text.isascii() and text.isprintable()
