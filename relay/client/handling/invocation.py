"""From a lease to its outcome: call the handler, and read its end by its policy."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from relay.client import trace_context
from relay.client.errors import AlreadySettled, DeliveryLost
from relay.client.handling import settlements
from relay.client.handling.delivery import CURRENT, AckPolicy, Delivery, Nack, Reject, Reschedule
from relay.client.handling.handlers import Handler, Registration
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.middleware import CallNext, wrapped
from relay.v1 import delivery_service_pb2 as pb

_log = logging.getLogger("relay.client")


CallPlain: TypeAlias = Callable[[Handler, Delivery], Awaitable[Any]]
"""Calls a handler that is not a coroutine function."""


class _TooSlow(Exception):
    """The handler has run for longer than its `timeout`."""


class Invocation:
    """Runs one registration's handler and turns each end into an outcome.

    `call_plain` calls handlers that are not async; without it they run in threads.
    """

    def __init__(self, registration: Registration, call_plain: CallPlain | None = None) -> None:
        self._policy = registration.ack_policy
        self._rejecting = registration.rejecting
        self._observers = registration.observers
        self._seconds = registration.seconds
        self._late: dict[Delivery, asyncio.Future[Any]] = {}
        """The calls of plain handlers that were too slow, and run on in their threads."""
        self._pool: ThreadPoolExecutor | None = None
        handler: CallNext
        if registration.is_async:
            handler = registration.call
        elif call_plain is None:
            self._pool = ThreadPoolExecutor(
                registration.places, thread_name_prefix=f"relay-{registration.topic}"
            )
            handler = partial(self._call_in_thread, registration.call)
        else:
            handler = partial(call_plain, registration.call)
            self._seconds = None  # it runs on no loop that could end it
        self._handler = wrapped(handler, registration.middleware)
        trace_context.prepare()

    async def handle(self, lease: DeliveryLease) -> None:
        """Call the handler and settle. This never raises, unless the client cancels it."""
        if not self._observers:
            await self._handle(lease)
            return
        for observer in self._observers:
            observer.began(lease.message.topic)
        began = time.monotonic()
        try:
            await self._handle(lease)
        finally:
            took, outcome = time.monotonic() - began, _named(lease)
            for observer in self._observers:
                observer.ended(lease.message.topic, outcome, took)

    async def _handle(self, lease: DeliveryLease) -> None:
        delivery = Delivery(lease)
        try:
            await self._call(delivery, lease)
        except (Nack, Reject, Reschedule) as raised:
            if lease.settled:
                _log.warning("handler raised %s after settling: %s", type(raised).__name__, lease)
            else:
                _settle(lease, raised.settlement)
        except DeliveryLost:
            _log.info("handler ended without its delivery: %s", lease)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._failed(lease, error)  # the handler awaited something that was cancelled
        except Exception as error:  # noqa: BLE001 (a handler may raise anything)
            self._failed(lease, error)
        else:
            if not lease.settled and self._policy is not AckPolicy.MANUAL:
                _settle(lease, settlements.ACK)
        lease.give_back()
        if (late := self._late.pop(delivery, None)) is not None:
            await asyncio.wait([late])  # its thread is taken, and so is its place

    async def _call(self, delivery: Delivery, lease: DeliveryLease) -> None:
        trace, current = trace_context.attach(lease.message.headers), CURRENT.set(delivery)
        try:
            if self._seconds is None:
                await self._handler(delivery)
            else:
                await self._within(self._seconds, delivery, lease)
        finally:
            CURRENT.reset(current)
            trace_context.detach(trace)

    async def _within(self, seconds: float, delivery: Delivery, lease: DeliveryLease) -> None:
        """Call the handler, and end it once it has had its time since it began, or since the last EXTEND.
        Raises `_TooSlow`."""
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(seconds)

        def again() -> None:
            if not limit.expired():
                limit.reschedule(loop.time() + seconds)

        lease.on_extend = again
        try:
            async with limit:
                await self._handler(delivery)
        except TimeoutError:
            if not limit.expired():
                raise  # the handler's own
        finally:
            lease.on_extend = None
        if limit.expired():  # also where the handler has swallowed its cancellation, and returned halfway
            raise _TooSlow(f"no end within {seconds:g} s")

    def close(self) -> None:
        """Let the threads end, without waiting for one that still runs."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _failed(self, lease: DeliveryLease, error: BaseException) -> None:
        if slow := isinstance(error, _TooSlow):
            _log.error("handler was too slow: %s: %s", lease, error)
        else:
            _log.error("handler failed: %s", lease, exc_info=error)
        if lease.settled or self._policy is AckPolicy.MANUAL:
            return
        # The type alone: an exception's words may quote the payload.
        reason = str(error) if slow else type(error).__name__
        if self._policy is AckPolicy.REJECT_ON_ERROR or isinstance(error, self._rejecting):
            _settle(lease, settlements.reject(reason))
        else:
            _settle(lease, settlements.nack(None, reason, retryable=True))

    async def _call_in_thread(self, handler: Handler, delivery: Delivery) -> None:
        context = contextvars.copy_context()
        call = asyncio.get_running_loop().run_in_executor(self._pool, context.run, called, handler, delivery)
        if self._seconds is not None:
            result = await self._shielded(call, delivery)
        else:
            result = await call
        if inspect.isawaitable(result):  # a lambda around a coroutine function, for example
            await result

    async def _shielded(self, call: asyncio.Future[Any], delivery: Delivery) -> Any:
        """Wait for a call that no cancellation ends, and note it if there was one."""
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if not call.done():
                call.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._late[delivery] = call
            raise


def called(handler: Callable[[Delivery], Any], delivery: Delivery) -> Any:
    """Return the handler's answer. Raises `RuntimeError` in the place of a StopIteration, which no future can
    carry: the future would never be done."""
    try:
        return handler(delivery)
    except StopIteration as stop:
        raise RuntimeError("the handler raised StopIteration") from stop


def _settle(lease: DeliveryLease, settlement: pb.Settlement) -> None:
    """Queue the outcome of a handler that has ended, if the stream is still there."""
    try:
        lease.settle(settlement)
    except (AlreadySettled, DeliveryLost):
        _log.debug("outcome is void: %s", lease)


def _named(lease: DeliveryLease) -> str:
    """Return how a delivery has ended, in one word."""
    if lease.outcome is None:
        return "lost" if lease.lost else "none"
    return pb.Outcome.Name(lease.outcome.outcome).removeprefix("OUTCOME_").lower()
