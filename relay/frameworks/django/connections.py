"""Connections to the database around each delivery, as Django has them around each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from relay.client.handling.handlers import Handlers
from relay.frameworks.around import put_around


def keep_fresh(handlers: Handlers) -> None:
    """Close connections that have broken or are older than `CONN_MAX_AGE`, before and after each handler.

    Call it once, before deliveries begin."""
    put_around(handlers, _fresh, _fresh_on_loop)


@contextmanager
def _fresh() -> Iterator[None]:
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def _fresh_on_loop() -> AsyncIterator[None]:
    close = sync_to_async(close_old_connections)
    await close()
    try:
        yield
    finally:
        await close()
