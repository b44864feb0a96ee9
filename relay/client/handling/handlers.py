"""What an application registers: one handler for each topic, and how it is to be called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar, Unpack

from relay.client import arguments, errors
from relay.client.arguments import MAX_OUTSTANDING, Seconds
from relay.client.handling.delivery import AckPolicy, Delivery
from relay.client.handling.middleware import Middleware, check_middleware
from relay.client.handling.options import (
    Backoff,
    HandlerOptions,
    Rejecting,
    check_asked,
    check_reject,
    to_settings,
)
from relay.client.handling.parameters import arguments_of
from relay.client.payloads.schema import Schema
from relay.v1 import delivery_service_pb2 as pb

Handler: TypeAlias = Callable[..., Any]
"""A function of a `Delivery`, of the value of its payload, or of both."""
_H = TypeVar("_H", bound=Handler)
_M = TypeVar("_M", bound=Middleware)


CONCURRENCY = 100
"""Handlers of a topic that run at a time, where the registration does not say how many."""

PREFETCH = 9
"""Deliveries that wait in the application for each handler that may run, while each is quickly done."""


class Observer(Protocol):
    """Counts and times handlers. Its methods return at once."""

    def began(self, topic: str) -> None:
        """A handler of the topic is called."""
        ...

    def ended(self, topic: str, outcome: str, seconds: float) -> None:
        """It has ended, after `seconds`: `ack`, `nack`, `reject`, `reschedule`, `lost`, or `none` if it did
        not settle."""
        ...


@dataclass(frozen=True, slots=True)
class Registration:
    """The arguments of `Handlers.on`, and what it adds: the schema of a topic with a type, the middleware."""

    topic: str
    handler: Handler
    concurrency: int | None = None
    prefetch: int | None = None
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Seconds | None = None
    reject: Rejecting = ()
    schema: Schema[Any] | None = None
    middleware: Sequence[Middleware] = ()
    """The functions around each delivery. More may be added until deliveries begin."""
    observers: Sequence[Observer] = ()
    """What counts deliveries. More may be added until they begin."""
    call: Callable[[Delivery], Any] = field(init=False, compare=False)
    """What is called with each delivery: the handler, or what reads the payload for it."""
    payload: Schema[Any] | None = field(init=False, compare=False)
    """The type of payloads, where the topic or the handler has one."""

    def __post_init__(self) -> None:
        """Refuse what can't work. Raises `InvalidArgument`."""
        arguments.check_name(self.topic, "topic")
        arguments.check_count(self.places, "concurrency", 1, MAX_OUTSTANDING)
        if self.prefetch is not None:
            arguments.check_count(self.prefetch, "prefetch", 0, MAX_OUTSTANDING)
        if not isinstance(self.ack_policy, AckPolicy):
            raise errors.InvalidArgument("ack_policy must be an AckPolicy", field="ack_policy")
        check_asked(self.max_attempts, self.backoff, self.timeout)
        check_reject(self.reject, self.ack_policy)
        if not callable(self.handler):
            raise errors.InvalidArgument("handler must be callable", field="handler")
        if self.ack_policy is AckPolicy.MANUAL and not self.is_async:
            raise errors.InvalidArgument(
                "ack_policy MANUAL needs an async handler: only there can ack() be awaited",
                field="ack_policy",
            )
        wanted = arguments_of(self.handler, self.schema, is_async=self.is_async)
        call = self.handler if wanted is None else wanted.around(self.handler, is_async=self.is_async)
        object.__setattr__(self, "call", call)
        object.__setattr__(self, "payload", self.schema if wanted is None else wanted.schema or self.schema)

    def within(self, wrap: Callable[[Handler], Handler]) -> Registration:
        """Return the same with something around what is called with each delivery: the handler and its
        dependencies, which it outlives."""
        wrapped = copy.copy(self)
        object.__setattr__(wrapped, "call", wrap(self.call))
        return wrapped

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function, or an object that is called as one."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 (the method is wanted)
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    @property
    def places(self) -> int:
        """How many of its handlers run at a time."""
        return CONCURRENCY if self.concurrency is None else self.concurrency

    @property
    def rejecting(self) -> tuple[type[Exception], ...]:
        """The exceptions after which a timer is dead."""
        return check_reject(self.reject, self.ack_policy)

    @property
    def seconds(self) -> float | None:
        """How long the handler may run."""
        return self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout

    @property
    def asked(self) -> pb.HandlerSettings | None:
        """What it asks of the relay; None for nothing."""
        return to_settings(self.topic, self.max_attempts, self.backoff, self.timeout)

    @property
    def max_outstanding(self) -> int:
        """How many unsettled deliveries the stream may hold."""
        prefetch = PREFETCH * self.places if self.prefetch is None else self.prefetch
        return min(self.places + prefetch, MAX_OUTSTANDING)

    @property
    def slow_outstanding(self) -> int:
        """How many it may hold while deliveries take long; 0 means that `max_outstanding` holds then, too."""
        return 0 if self.prefetch is not None else min(2 * self.places, MAX_OUTSTANDING)


class Handlers:
    """The handlers of one application. They are the same whether it dials the relay or is dialled by it."""

    def __init__(self) -> None:
        self.registrations: dict[str, Registration] = {}
        """The registrations by topic; `on` adds to them."""
        self.middleware: list[Middleware] = []
        """The functions around each delivery, the outermost first; `use` adds to them."""
        self.observers: list[Observer] = []
        """What counts deliveries."""

    def on(self, topic: str, **options: Unpack[HandlerOptions]) -> Callable[[_H], _H]:
        """Register a handler for a topic. This is a decorator, which returns the handler unchanged.

        A parameter that is annotated with a pydantic model, a dataclass, a msgspec struct, a TypedDict,
        `dict`, `str` or `bytes` is given the payload as that, beside the `Delivery` or instead of it. A
        payload that does not fit ends as a dead letter, whatever the policy; the reason names the field.
        An async handler runs on the event loop, a plain one in a thread. `concurrency` (100) is the number of
        handlers that run at a time, `prefetch` the number of further deliveries that wait in the application.
        Without `prefetch`, nine times `concurrency` wait while deliveries take less than 0.2 s and have at
        most 16 MiB together, and otherwise as many as `concurrency`. The sum of the two is at most 100,000.
        `prefetch` has no effect where the relay dials.

        `ack_policy` says what an exception means, and `reject` which exceptions are REJECT under any policy.
        `max_attempts` is the attempt whose failure is a timer's death, and `backoff` says how long to wait
        for the next one: the relay holds to both for the deliveries that this handler gets, and its own
        settings may allow fewer attempts. `timeout` (seconds or a timedelta) is how long the handler may run,
        and again from each `extend`: then an async one is cancelled, and its attempt has failed; a plain one
        runs on in its thread and keeps its place, but its outcome is void.

        Raises `UsageError` if the topic has a handler already
        or deliveries have begun, and `InvalidArgument` for a wrong argument.

        >>> @client.on("reports", concurrency=4, ack_policy=AckPolicy.REJECT_ON_ERROR)
        ... def build(delivery):    # in a thread
        ...     return None         # ACK
        """

        def register(handler: _H) -> _H:
            self.register(
                Registration(
                    topic=topic,
                    handler=handler,
                    middleware=self.middleware,
                    observers=self.observers,
                    **options,
                )
            )
            return handler

        return register

    def register(self, registration: Registration) -> None:
        """Add a registration; see `on`. Raises `UsageError`."""
        if self.begun:
            raise errors.UsageError("register handlers before deliveries begin")
        if registration.topic in self.registrations:
            raise errors.UsageError(f"topic {registration.topic!r} has a handler already")
        self.registrations[registration.topic] = registration

    def use(self, middleware: _M) -> _M:
        """Put an async function around each delivery of all topics, and return it unchanged.

        It is called with the delivery and with `call_next`, which calls the next middleware or the handler;
        the first one that is registered is the outermost. What it raises is read like an exception of the
        handler, and returning means what the handler's returning means. Raises `UsageError` once deliveries
        have begun, and `InvalidArgument` for what is not an async function.

        >>> @client.use
        ... async def timed(delivery, call_next):
        ...     began = time.monotonic()
        ...     try:
        ...         await call_next(delivery)
        ...     finally:
        ...         print(delivery.topic, time.monotonic() - began)
        """
        check_middleware(middleware)
        if self.begun:
            raise errors.UsageError("register middleware before deliveries begin")
        self.middleware.append(middleware)
        return middleware

    @property
    def begun(self) -> bool:
        """Whether deliveries have begun, so that a new handler would get none."""
        raise NotImplementedError
