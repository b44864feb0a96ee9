"""From a lease to its outcome: call the handler, and read its end by its policy."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from relay.client import trace_context
from relay.client.errors import AlreadySettled, DeliveryLost
from relay.client.handling import settlements
from relay.client.handling.delivery import AckPolicy, Delivery, Nack, Reject, Reschedule
from relay.client.handling.handlers import Handler, Registration
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.middleware import CallNext, wrapped
from relay.v1 import delivery_service_pb2 as pb

_log = logging.getLogger("relay.client")


CallPlain: TypeAlias = Callable[[Handler, Delivery], Awaitable[Any]]
"""Calls a handler that is not a coroutine function."""


class Invocation:
    """Runs one registration's handler and turns each end into an outcome.

    `call_plain` calls handlers that are not async; without it they run in threads.
    """

    def __init__(self, registration: Registration, call_plain: CallPlain | None = None) -> None:
        self._policy = registration.ack_policy
        self._pool: ThreadPoolExecutor | None = None
        handler: CallNext
        if registration.is_async:
            handler = registration.call
        else:
            if call_plain is None:
                self._pool = ThreadPoolExecutor(
                    registration.concurrency, thread_name_prefix=f"relay-{registration.topic}"
                )
            handler = partial(call_plain or self._call_in_thread, registration.call)
        self._handler = wrapped(handler, registration.middleware)
        trace_context.prepare()

    async def handle(self, lease: DeliveryLease) -> None:
        """Call the handler and settle. This never raises, unless the client cancels it."""
        try:
            token = trace_context.attach(lease.message.headers)
            try:
                await self._handler(Delivery(lease))
            finally:
                trace_context.detach(token)
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

    def close(self) -> None:
        """Let the threads end, without waiting for one that still runs."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _failed(self, lease: DeliveryLease, error: BaseException) -> None:
        _log.error("handler failed: %s", lease, exc_info=error)
        if lease.settled or self._policy is AckPolicy.MANUAL:
            return
        reason = type(error).__name__  # alone: an exception's words may quote the payload
        if self._policy is AckPolicy.NACK_ON_ERROR:
            _settle(lease, settlements.nack(None, reason, retryable=True))
        else:
            _settle(lease, settlements.reject(reason))

    async def _call_in_thread(self, handler: Handler, delivery: Delivery) -> None:
        context = contextvars.copy_context()
        result = await asyncio.get_running_loop().run_in_executor(
            self._pool, context.run, called, handler, delivery
        )
        if inspect.isawaitable(result):  # a lambda around a coroutine function, for example
            await result


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
