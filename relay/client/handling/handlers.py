"""What an application registers: one handler for each topic, and how it is to be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from relay.client import arguments, errors
from relay.client.arguments import MAX_OUTSTANDING
from relay.client.handling.delivery import AckPolicy, Delivery
from relay.client.handling.middleware import Middleware, check_middleware
from relay.client.handling.parameters import arguments_of
from relay.client.payloads.schema import Schema

Handler: TypeAlias = Callable[..., Any]
"""A function of a `Delivery`, of the value of its payload, or of both."""
_H = TypeVar("_H", bound=Handler)
_M = TypeVar("_M", bound=Middleware)


PREFETCH = 9
"""Deliveries that wait in the application for each handler that may run, while each is quickly done."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The arguments of `Handlers.on`, and what it adds: the schema of a topic with a type, the middleware."""

    topic: str
    handler: Handler
    concurrency: int
    prefetch: int | None
    ack_policy: AckPolicy
    schema: Schema[Any] | None = None
    middleware: Sequence[Middleware] = ()
    """The functions around each delivery. More may be added until deliveries begin."""
    call: Callable[[Delivery], Any] = field(init=False, compare=False)
    """What is called with each delivery: the handler, or what reads the payload for it."""

    def __post_init__(self) -> None:
        """Refuse what can't work. Raises `InvalidArgument`."""
        arguments.check_name(self.topic, "topic")
        arguments.check_count(self.concurrency, "concurrency", 1, MAX_OUTSTANDING)
        if self.prefetch is not None:
            arguments.check_count(self.prefetch, "prefetch", 0, MAX_OUTSTANDING)
        if not isinstance(self.ack_policy, AckPolicy):
            raise errors.InvalidArgument("ack_policy must be an AckPolicy", field="ack_policy")
        if not callable(self.handler):
            raise errors.InvalidArgument("handler must be callable", field="handler")
        if self.ack_policy is AckPolicy.MANUAL and not self.is_async:
            raise errors.InvalidArgument(
                "ack_policy MANUAL needs an async handler: only there can ack() be awaited",
                field="ack_policy",
            )
        wanted = arguments_of(self.handler, self.schema)
        call = self.handler if wanted is None else wanted.around(self.handler, is_async=self.is_async)
        object.__setattr__(self, "call", call)

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function, or an object that is called as one."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 (the method is wanted)
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    @property
    def max_outstanding(self) -> int:
        """How many unsettled deliveries the stream may hold."""
        prefetch = PREFETCH * self.concurrency if self.prefetch is None else self.prefetch
        return min(self.concurrency + prefetch, MAX_OUTSTANDING)

    @property
    def slow_outstanding(self) -> int:
        """How many it may hold while deliveries take long; 0 means that `max_outstanding` holds then, too."""
        return 0 if self.prefetch is not None else min(2 * self.concurrency, MAX_OUTSTANDING)


class Handlers:
    """The handlers of one application. They are the same whether it dials the relay or is dialled by it."""

    def __init__(self) -> None:
        self.registrations: dict[str, Registration] = {}
        """The registrations by topic; `on` adds to them."""
        self.middleware: list[Middleware] = []
        """The functions around each delivery, the outermost first; `use` adds to them."""

    def on(
        self,
        topic: str,
        *,
        concurrency: int = 100,
        prefetch: int | None = None,
        ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
    ) -> Callable[[_H], _H]:
        """Register a handler for a topic. This is a decorator, which returns the handler unchanged.

        A parameter that is annotated with a pydantic model, a dataclass, a msgspec struct, a TypedDict,
        `dict`, `str` or `bytes` is given the payload as that, beside the `Delivery` or instead of it. A
        payload that does not fit ends as a dead letter, whatever the policy; the reason names the field.
        An async handler runs on the event loop, a plain one in a thread. `concurrency` is the number of
        handlers that run at a time, `prefetch` the number of further deliveries that wait in the application.
        Without `prefetch`, nine times `concurrency` wait while deliveries take less than 0.2 s and have at
        most 16 MiB together, and otherwise as many as `concurrency`. The sum of the two is at most 100,000.
        `prefetch` has no effect where the relay dials. Raises `UsageError` if the topic has a handler already
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
                    concurrency=concurrency,
                    prefetch=prefetch,
                    ack_policy=ack_policy,
                    middleware=self.middleware,
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
