"""Functions around each delivery, the first registered the outermost."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import Delivery

CallNext: TypeAlias = Callable[[Delivery], Awaitable[Any]]
"""Calls the next middleware, or the handler. It returns and raises what the handler does."""
Middleware: TypeAlias = Callable[[Delivery, CallNext], Awaitable[Any]]
"""An async function around each delivery."""


def check_middleware(middleware: Middleware) -> None:
    """Refuse what is not an async function. Raises `InvalidArgument`."""
    call = getattr(middleware, "__call__", None)  # noqa: B004 (the method is wanted)
    if not inspect.iscoroutinefunction(middleware) and not inspect.iscoroutinefunction(call):
        raise InvalidArgument(
            "middleware must be an async function of delivery and call_next", field="middleware"
        )


def wrapped(handler: CallNext, layers: Iterable[Middleware]) -> CallNext:
    """Return the handler with all layers around it."""
    for layer in reversed(list(layers)):
        handler = _around(layer, handler)
    return handler


def _around(layer: Middleware, inner: CallNext) -> CallNext:
    return lambda delivery: layer(delivery, inner)
