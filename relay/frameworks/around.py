"""What a framework puts around handlers, where they run: a plain handler's thread, or the event loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from relay.client.handling.handlers import Handler, Handlers


def put_around(
    handlers: Handlers,
    plain: Callable[[], AbstractContextManager[Any]],
    on_loop: Callable[[], AbstractAsyncContextManager[Any]],
) -> None:
    """Enter a context around each handler that is registered: `plain` in the thread of a plain one, `on_loop`
    around an async one.

    Middleware would not do: it runs on the event loop, and what these contexts hold belongs to a thread. Call
    it once, before deliveries begin.
    """
    for topic, known in handlers.registrations.items():
        made = _async(known.handler, on_loop) if known.is_async else _plain(known.handler, plain)
        handlers.registrations[topic] = dataclasses.replace(known, handler=made)


def _plain(handler: Handler, context: Callable[[], AbstractContextManager[Any]]) -> Handler:
    @functools.wraps(handler)
    def call(*arguments: Any) -> Any:
        with context():
            return handler(*arguments)

    return call


def _async(handler: Handler, context: Callable[[], AbstractAsyncContextManager[Any]]) -> Handler:
    @functools.wraps(handler)
    async def call(*arguments: Any) -> Any:
        async with context():
            return await handler(*arguments)

    return call
