"""What a framework puts around handlers, where they run: a plain handler's thread, or the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any

from relay.client.handling.delivery import Delivery
from relay.client.handling.handlers import Handler, Handlers


def put_around(
    handlers: Handlers,
    plain: Callable[[], AbstractContextManager[Any]],
    on_loop: Callable[[], AbstractAsyncContextManager[Any]],
) -> None:
    """Enter a context around each handler that is registered, and around its dependencies: `plain` in the
    thread of a plain one, `on_loop` around an async one.

    Middleware would not do: it runs on the event loop, and what these contexts hold belongs to a thread. Call
    it once, before deliveries begin.
    """
    for topic, known in handlers.registrations.items():
        around = partial(_async, context=on_loop) if known.is_async else partial(_plain, context=plain)
        handlers.registrations[topic] = known.within(around)


def _plain(call: Handler, context: Callable[[], AbstractContextManager[Any]]) -> Handler:
    def within(delivery: Delivery) -> Any:
        with context():
            return call(delivery)

    return within


def _async(call: Handler, context: Callable[[], AbstractAsyncContextManager[Any]]) -> Handler:
    async def within(delivery: Delivery) -> Any:
        async with context():
            return await call(delivery)

    return within
