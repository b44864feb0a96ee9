"""The two relays in memory that tests use: one for asyncio, one for tests without a loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Generator
from contextlib import closing
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from relay.client.calls.channel import Method
from relay.client.calls.recurrence_calls import put_spec
from relay.client.calls.timer_calls import run_blocking
from relay.client.client import RelayClient
from relay.client.errors import CallError, UsageError
from relay.client.handling.delivery import Delivery
from relay.client.handling.handlers import Handler, Handlers, Registration
from relay.client.handling.invocation import Invocation, called
from relay.client.push.push_handlers import PushHandlers
from relay.client.sync import SyncRelayClient
from relay.client.testing.held import HeldDelivery
from relay.client.testing.records import Delivered, Died
from relay.client.testing.service import MemoryService, at_once
from relay.client.testing.timers import MemoryTimers, span
from relay.core.policy import RetryPolicy, TopicPolicy

__all__ = ["InMemoryRelay", "RetryPolicy", "SyncInMemoryRelay"]

_TIMEOUT = 1.0  # nothing waits

End = RelayClient | SyncRelayClient | PushHandlers
"""A client or server by which an application talks to its relay."""


class _Double:
    """A `Wire` that ends in memory."""

    def __init__(self, service: MemoryService) -> None:
        self._service = service

    async def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        return self._service.answer(method, request)

    async def close(self) -> None:
        pass


class _SyncDouble:
    """A `SyncWire` that ends in memory."""

    def __init__(self, service: MemoryService) -> None:
        self._service = service

    def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        return self._service.answer(method, request)

    def close(self) -> None:
        pass


class _Application:
    """The application under test: its clients, joined to timers in memory, and its handlers."""

    def __init__(self, ends: tuple[End, ...], now: datetime | None, policy: TopicPolicy) -> None:
        self.timers = MemoryTimers(now, policy)
        self._ends = ends
        self._declared: set[tuple[str, str]] = set()

    def attach(self) -> None:
        for end in self._ends:
            if isinstance(end, Handlers) and end.begun:
                raise UsageError(f"give the relay in memory this {type(end).__name__} before it is opened")
        self._declare()
        for end in self._ends:
            if isinstance(end, RelayClient):
                end.double = _Double(self.timers.service)
            elif isinstance(end, SyncRelayClient):
                end.double = _SyncDouble(self.timers.service)

    def detach(self) -> None:
        for end in self._ends:
            if not isinstance(end, PushHandlers):
                end.double = None

    def deliveries(self, length: int) -> closing[Generator[tuple[Registration, HeldDelivery], None, None]]:
        """Yield what falls due while the clock moves on by `length` (microseconds)."""
        self._declare()
        return closing(self.timers.deliveries(self._registrations(), length))

    def _declare(self) -> None:
        """Put the recurrences above handlers that have not been put yet. Raises `CallError`, `UsageError`."""
        wire = _SyncDouble(self.timers.service)
        for end in self._ends:
            for key, spec in end.declarations.items() if isinstance(end, RelayClient) else ():
                if key in self._declared:
                    continue
                try:
                    run_blocking(wire, put_spec(spec, None, _TIMEOUT))
                except CallError as error:
                    error.add_note(f"(recurrence {spec.recurrence_id!r} of topic {spec.topic!r})")
                    raise
                self._declared.add(key)

    def _registrations(self) -> dict[str, tuple[Registration, bool]]:
        """Return the current handlers by topic, and whether they are pushed to. Raises `UsageError`."""
        found: dict[str, tuple[Registration, bool]] = {}
        for end in self._ends:
            if isinstance(end, Handlers):
                for topic, registration in end.registrations.items():
                    if topic in found:
                        raise UsageError(f"topic {topic!r} has two handlers")
                    found[topic] = (registration, isinstance(end, PushHandlers))
        return found


class InMemoryRelay:  # see 0024
    """A relay in memory for asyncio tests, joined to the application's own clients.

    `ends` are the `RelayClient`, `SyncRelayClient` and `PushHandlers` of the application; without
    any, `client` is a new one. Inside the `async with` their calls end in memory, whether they
    are open or not, and nothing is dialled; the recurrences above handlers are declared. The clock starts
    at `now` (an aware datetime, by default the real time) and stands still until `advance` moves it.
    `lease_ttl`, `delivery_timeout` (seconds), `max_payload_bytes`, `max_waiting` and `retry` mean what they
    mean in the relay's settings, for every topic, with one difference: the wait before another attempt is
    not random, but always the longest that a real relay could take: 1, 2, 4 … 600 s unless `retry` says
    otherwise.

    >>> async with InMemoryRelay() as relay:
    ...     relay.client.on("invoices")(remind)
    ...     await relay.client.schedule("invoices", b"42", delay=60)
    ...     assert await relay.advance(seconds=59) == []
    ...     (delivered,) = await relay.advance(seconds=1)
    """

    def __init__(
        self,
        *ends: End,
        now: datetime | None = None,
        lease_ttl: float = 30.0,
        delivery_timeout: float = 600.0,
        max_payload_bytes: int = 1 << 20,
        max_waiting: int = 0,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 (it is frozen)
    ) -> None:
        policy = TopicPolicy(
            lease_ttl=lease_ttl,
            delivery_timeout=delivery_timeout,
            max_payload_bytes=max_payload_bytes,
            max_waiting=max_waiting,
            journal=True,
            retry=retry,
        )
        clients = [end for end in ends if isinstance(end, RelayClient)]
        self.client = clients[0] if clients else RelayClient()
        """The first `RelayClient` that was given, or one of the relay's own."""
        self._application = _Application(ends if clients else (*ends, self.client), now, policy)
        self._handlings: dict[str, Invocation] = {}

    @property
    def now(self) -> datetime:
        """The time by the relay's clock, as an aware datetime in UTC."""
        return self._application.timers.now

    @property
    def dead(self) -> list[Died]:
        """The timers that died, the first death first."""
        return list(self._application.timers.dead)

    async def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> list[Delivered]:
        """Move the clock, and call the handler of each timer that falls due on the way, at its time.

        They run one after the other, in the order of their due times, each awaited to its end; NACKed
        timers come again when they would. Recurrences tick at each nominal instant on the way. Returns the
        deliveries in that order. An exception of a handler is logged and settled as in production; a
        `BaseException` that is not an `Exception`, such as that of `pytest.fail`, is raised here. Timers of
        topics without a handler wait.
        """
        delivered: list[Delivered] = []
        with self._application.deliveries(span(delta, days, hours, minutes, seconds)) as deliveries:
            for registration, held in deliveries:
                handling = self._handlings.setdefault(registration.topic, Invocation(registration))
                await asyncio.create_task(handling.handle(held.lease))
                delivered.append(held.delivered())
        return delivered

    async def run_due(self) -> list[Delivered]:
        """Deliver what is due now; the clock stands still."""
        return await self.advance()

    def outage(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Move the clock as if no relay had run meanwhile: nothing is delivered, no recurrence ticks, leases
        run out. What has fallen due comes with the next `advance` or `run_due`; of the nominal instants that
        have passed, those come that `catch_up` says.
        """
        self._application.timers.stand_still(span(delta, days, hours, minutes, seconds))

    async def __aenter__(self) -> Self:
        self._application.attach()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._application.detach()
        for handling in self._handlings.values():
            handling.close()


class SyncInMemoryRelay:
    """A relay in memory for tests without an event loop, such as Django's: it needs `with`, and no `await`.

    `client` is the first `SyncRelayClient` among `ends`, or a new one. Handlers are those of
    the `RelayClient`s and `PushHandlers` among them. A plain handler runs in the calling thread,
    so that it sees the test's database transaction; an async one on a loop of the relay's own.
    """

    def __init__(
        self,
        *ends: End,
        now: datetime | None = None,
        lease_ttl: float = 30.0,
        delivery_timeout: float = 600.0,
        max_payload_bytes: int = 1 << 20,
        max_waiting: int = 0,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 (it is frozen)
    ) -> None:
        policy = TopicPolicy(
            lease_ttl=lease_ttl,
            delivery_timeout=delivery_timeout,
            max_payload_bytes=max_payload_bytes,
            max_waiting=max_waiting,
            journal=True,
            retry=retry,
        )
        clients = [end for end in ends if isinstance(end, SyncRelayClient)]
        self.client = clients[0] if clients else SyncRelayClient()
        """The first `SyncRelayClient` that was given, or one of the relay's own."""
        self._application = _Application(ends if clients else (*ends, self.client), now, policy)
        self._runner = asyncio.Runner()

    @property
    def now(self) -> datetime:
        """The time by the relay's clock, as an aware datetime in UTC."""
        return self._application.timers.now

    @property
    def dead(self) -> list[Died]:
        """See `InMemoryRelay.dead`."""
        return list(self._application.timers.dead)

    def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> list[Delivered]:
        """See `InMemoryRelay.advance`."""
        delivered: list[Delivered] = []
        with self._application.deliveries(span(delta, days, hours, minutes, seconds)) as deliveries:
            for registration, held in deliveries:
                handling = Invocation(registration, self._call_here).handle(held.lease)
                if registration.is_async or registration.middleware:
                    self._runner.run(handling)
                else:  # on no loop: Django's ORM refuses to work on one
                    at_once(handling)
                delivered.append(held.delivered())
        return delivered

    def run_due(self) -> list[Delivered]:
        """Deliver what is due now; the clock stands still."""
        return self.advance()

    def outage(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """See `InMemoryRelay.outage`."""
        self._application.timers.stand_still(span(delta, days, hours, minutes, seconds))

    def __enter__(self) -> Self:
        self._application.attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._application.detach()
        self._runner.close()

    async def _call_here(self, handler: Handler, delivery: Delivery) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001 (made for those who write loops)
        if loop is None:
            result = called(handler, delivery)
            if inspect.isawaitable(result):  # a lambda around a coroutine function, for example
                self._runner.run(_awaited(result))
            return
        # Middleware runs on the relay's loop. The handler sees none: Django's ORM refuses to work on one.
        asyncio._set_running_loop(None)  # noqa: SLF001
        try:
            result = called(handler, delivery)
        finally:
            asyncio._set_running_loop(loop)  # noqa: SLF001
        if inspect.isawaitable(result):
            await result


async def _awaited(result: Awaitable[Any]) -> None:
    await result
