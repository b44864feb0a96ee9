"""Topics whose payloads have a type: what is scheduled, and what handlers get, is checked against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from relay.client import arguments
from relay.client.calls import batches, recurrence_calls, timer_calls
from relay.client.calls.change_values import OnConflict, TimerChange
from relay.client.calls.channel import SyncWire, Wire
from relay.client.calls.recurrence_values import PutRecurrence, RecurFields, RecurOptions
from relay.client.calls.timer_values import (
    MAY_BE_NONE,
    NewTimer,
    ScheduledTimer,
    ScheduleOptions,
    ScheduleResult,
    TimerFields,
)
from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import Delivery
from relay.client.handling.handlers import Handlers, Registration
from relay.client.handling.options import HandlerOptions
from relay.client.payloads.schema import Schema, Upcaster

_T = TypeVar("_T")
_R = TypeVar("_R")
_P = ParamSpec("_P")


class Register(Protocol[_T]):
    """A decorator for handlers of the value, of the `Delivery`, or of both in either order. Dependencies come
    behind the value."""

    @overload
    def __call__(self, handler: Callable[[_T], _R], /) -> Callable[[_T], _R]: ...
    @overload
    def __call__(self, handler: Callable[[Delivery], _R], /) -> Callable[[Delivery], _R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # only where the type is Delivery
        self, handler: Callable[[_T, Delivery], _R], /
    ) -> Callable[[_T, Delivery], _R]: ...
    @overload
    def __call__(self, handler: Callable[[Delivery, _T], _R], /) -> Callable[[Delivery, _T], _R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match] # it does, where there are dependencies
        self, handler: Callable[Concatenate[_T, _P], _R], /
    ) -> Callable[Concatenate[_T, _P], _R]: ...


class _OfType(Generic[_T]):
    """A topic's name and the type of its payloads. Raises `InvalidArgument`."""

    def __init__(self, name: str, of: type[_T], version: int) -> None:
        arguments.check_name(name, "topic")
        self.name = name
        """The topic."""
        self._schema = Schema(of, version)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._schema.name}, version {self._schema.version}>"


class HandledTopic(_OfType[_T]):
    """A topic's handler, where the payloads have a type. `PushHandlers.topic` makes one."""

    def __init__(self, handlers: Handlers, name: str, of: type[_T], version: int) -> None:
        super().__init__(name, of, version)
        self._handlers = handlers

    def on(self, **options: Unpack[HandlerOptions]) -> Register[_T]:
        """Register the topic's handler: a function of the value, of the `Delivery`, or of both. Its
        parameters are annotated. Arguments and errors are those of `Handlers.on`.

        >>> @invoices.on(concurrency=50)
        ... async def remind(invoice: Invoice, delivery: Delivery) -> None:
        ...     await send_mail(invoice.to, key=delivery.occurrence_id)
        """

        def register(handler: Callable[..., _R]) -> Callable[..., _R]:
            self._handlers.register(
                Registration(
                    topic=self.name,
                    handler=handler,
                    schema=self._schema,
                    middleware=self._handlers.middleware,
                    observers=self._handlers.observers,
                    **options,
                )
            )
            return handler

        return register

    def upcast(self, version: int) -> Callable[[Upcaster], Upcaster]:
        """Say how payloads of an older `version` become those of the next. This is a decorator for a plain
        function, which gets the JSON object as a dict and returns one. Those of all versions from the
        payload's on are called one after the other.

        What the function raises is a failure of the handler. Raises `InvalidArgument` for a version that is
        not older than the topic's, and `UsageError` if the version has a function already.

        >>> @invoices.upcast(1)
        ... def with_currency(old):
        ...     return {**old, "currency": "EUR"}
        """

        def register(upcaster: Upcaster) -> Upcaster:
            self._schema.upcast(version, upcaster)
            return upcaster

        return register


class _Scheduled(_OfType[_T]):
    """What both clients' topics share."""

    def new_timer(self, value: _T, **fields: Unpack[TimerFields]) -> NewTimer:
        """Make a timer for `schedule_batch`. Raises `InvalidArgument` as `schedule` does.

        >>> timers = [invoices.new_timer(invoice, delay=60) for invoice in unpaid]
        """
        payload = self._payload(value, fields)
        given: dict[str, Any] = {
            name: said for name, said in fields.items() if said is not None or name not in MAY_BE_NONE
        }
        return NewTimer(topic=self.name, payload=payload, **given)

    def _recur(
        self,
        recurrence_id: str,
        value: _T,
        fields: RecurFields,
        if_version: int | None,
        note: str,
        durability: str,
        timeout: float,
    ) -> timer_calls.Steps[PutRecurrence]:
        payload = self._payload(value, fields)
        options: RecurOptions = {**fields, "payload": payload}
        return recurrence_calls.put(self.name, recurrence_id, options, if_version, note, durability, timeout)

    def _payload(self, value: _T, options: TimerFields | RecurFields) -> bytes:
        """Return the payload, and add its content type and its version to the options."""
        payload, options["content_type"], headers = self._schema.encode(
            value, options.get("content_type", "")
        )
        if headers:
            options["headers"] = {**(options.get("headers") or {}), **headers}
        return payload

    def _own(self, timers: Iterable[NewTimer]) -> list[NewTimer]:
        found = list(timers)
        for timer in found:
            if timer.topic != self.name:
                raise InvalidArgument(
                    f"timers must be of topic {self.name!r}: make them by new_timer", field="timers"
                )
        return found


class TypedTopic(HandledTopic[_T], _Scheduled[_T]):
    """A topic whose payloads have a type; `RelayClient.topic` makes one.

    A value that does not fit the type raises `InvalidArgument` before anything is sent, and the message names
    the field and does not quote the value. All else is as in the methods of `RelayClient`.
    """

    def __init__(
        self,
        handlers: Handlers,
        wire: Callable[[], Wire],
        timeout: float,
        name: str,
        of: type[_T],
        version: int,
    ) -> None:
        super().__init__(handlers, name, of, version)
        self._wire = wire
        self._timeout = timeout

    async def schedule(
        self, value: _T, *, timeout: float | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduledTimer:
        """Store one timer; see `RelayClient.schedule`.

        >>> await invoices.schedule(Invoice(to="a@example.org"), delay=3600, timer_id="invoice-42")
        """
        payload = self._payload(value, options)
        limit = _limit(self._timeout, timeout)
        return await timer_calls.run(
            self._wire(), timer_calls.schedule(self.name, payload, timeout=limit, **options)
        )

    async def schedule_batch(
        self,
        timers: Iterable[NewTimer],
        *,
        create_only: bool = False,
        on_conflict: OnConflict | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> list[ScheduleResult]:
        """Store many timers, which `new_timer` has made; see `RelayClient.schedule_batch`."""
        steps = batches.schedule_batch(
            self._own(timers),
            create_only=create_only,
            on_conflict=on_conflict,
            durability=durability,
            timeout=_limit(self._timeout, timeout),
        )
        return await timer_calls.run(self._wire(), steps)

    async def recur(
        self,
        recurrence_id: str,
        value: _T,
        *,
        if_version: int | None = None,
        note: str = "",
        durability: str = "",
        timeout: float | None = None,
        **options: Unpack[RecurFields],
    ) -> PutRecurrence:
        """Keep a recurrence whose occurrences all have this value; see `RelayClient.recur`.

        >>> await reports.recur("nightly", Report(of="sales"), cron="0 3 * * *", zone="Europe/Berlin")
        """
        limit = _limit(self._timeout, timeout)
        steps = self._recur(recurrence_id, value, options, if_version, note, durability, limit)
        return await timer_calls.run(self._wire(), steps)

    async def cancel(
        self,
        timer_id: str,
        *,
        only_if_pending: bool = False,
        only_if_due_at: datetime | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> TimerChange:
        """Remove a timer; see `RelayClient.cancel`."""
        steps = timer_calls.cancel(
            self.name,
            timer_id,
            only_if_pending=only_if_pending,
            only_if_due_at=only_if_due_at,
            durability=durability,
            timeout=_limit(self._timeout, timeout),
        )
        return await timer_calls.run(self._wire(), steps)


class SyncTypedTopic(_Scheduled[_T]):
    """The same for `SyncRelayClient`, without handlers; see `TypedTopic`."""

    def __init__(
        self, wire: Callable[[], SyncWire], timeout: float, name: str, of: type[_T], version: int
    ) -> None:
        super().__init__(name, of, version)
        self._wire = wire
        self._timeout = timeout

    def schedule(
        self, value: _T, *, timeout: float | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduledTimer:
        """See `TypedTopic.schedule`."""
        payload = self._payload(value, options)
        limit = _limit(self._timeout, timeout)
        return timer_calls.run_blocking(
            self._wire(), timer_calls.schedule(self.name, payload, timeout=limit, **options)
        )

    def schedule_batch(
        self,
        timers: Iterable[NewTimer],
        *,
        create_only: bool = False,
        on_conflict: OnConflict | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> list[ScheduleResult]:
        """See `TypedTopic.schedule_batch`."""
        steps = batches.schedule_batch(
            self._own(timers),
            create_only=create_only,
            on_conflict=on_conflict,
            durability=durability,
            timeout=_limit(self._timeout, timeout),
        )
        return timer_calls.run_blocking(self._wire(), steps)

    def recur(
        self,
        recurrence_id: str,
        value: _T,
        *,
        if_version: int | None = None,
        note: str = "",
        durability: str = "",
        timeout: float | None = None,
        **options: Unpack[RecurFields],
    ) -> PutRecurrence:
        """See `TypedTopic.recur`."""
        limit = _limit(self._timeout, timeout)
        steps = self._recur(recurrence_id, value, options, if_version, note, durability, limit)
        return timer_calls.run_blocking(self._wire(), steps)

    def cancel(
        self,
        timer_id: str,
        *,
        only_if_pending: bool = False,
        only_if_due_at: datetime | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> TimerChange:
        """See `TypedTopic.cancel`."""
        steps = timer_calls.cancel(
            self.name,
            timer_id,
            only_if_pending=only_if_pending,
            only_if_due_at=only_if_due_at,
            durability=durability,
            timeout=_limit(self._timeout, timeout),
        )
        return timer_calls.run_blocking(self._wire(), steps)


def _limit(usual: float, asked: float | None) -> float:
    return arguments.to_timeout(usual if asked is None else asked)
