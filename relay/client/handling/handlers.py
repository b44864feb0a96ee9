"""What an application registers: one handler for each topic, and how it is to be called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from relay.client import arguments, errors
from relay.client.arguments import MAX_OUTSTANDING
from relay.client.handling.delivery import AckPolicy, Delivery

Handler: TypeAlias = Callable[[Delivery], Awaitable[Any]] | Callable[[Delivery], Any]
_H = TypeVar("_H", bound=Handler)


PREFETCH = 9
"""Deliveries that wait in the application for each handler that may run, while each is quickly done."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The arguments of `Handlers.on`."""

    topic: str
    handler: Handler
    concurrency: int
    prefetch: int | None
    ack_policy: AckPolicy

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

    def on(
        self,
        topic: str,
        *,
        concurrency: int = 100,
        prefetch: int | None = None,
        ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
    ) -> Callable[[_H], _H]:
        """Register a handler for a topic. This is a decorator, which returns the handler unchanged.

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
            registration = Registration(
                topic=topic,
                handler=handler,
                concurrency=concurrency,
                prefetch=prefetch,
                ack_policy=ack_policy,
            )
            if self.begun:
                raise errors.UsageError("register handlers before deliveries begin")
            if topic in self.registrations:
                raise errors.UsageError(f"topic {topic!r} has a handler already")
            self.registrations[topic] = registration
            return handler

        return register

    @property
    def begun(self) -> bool:
        """Whether deliveries have begun, so that a new handler would get none."""
        raise NotImplementedError
