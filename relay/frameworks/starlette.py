"""Starlette, and what is built on it: the client is open while the application is.

>>> client = RelayClient()
>>> app = Starlette(routes=[…], lifespan=lifespan(client))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection

from relay.client import RelayClient, UsageError

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""What an application takes as its `lifespan`."""

STATE = "relay_client"
"""The name of the open client in the state of a lifespan, and so in `request.state`."""


def lifespan(client: RelayClient, around: Lifespan | None = None) -> Callable[[Any], Any]:  # see 0131
    """Return an application's `lifespan`: the client opens as the server starts, with its handlers, and
    drains and closes as it stops.

    `around` is the application's own lifespan, which opens what handlers need, such as a pool of connections:
    it begins before the client opens, and ends once the client has closed. A relay that is away does not keep
    the server from starting. A stream that the relay refuses is logged, and makes `client.ready()` false: ask
    that in the readiness probe.

    >>> app = FastAPI(lifespan=lifespan(client))
    """

    @asynccontextmanager
    async def live(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            own = None if around is None else await stack.enter_async_context(around(app))
            # Not `async with client`: a refused stream would cancel the server's task of the lifespan, and
            # the server would go on without it.
            await client.open()
            stack.push_async_callback(client.aclose)
            yield {STATE: client, **(own or {})}

    return live


def relay_client(connection: HTTPConnection) -> RelayClient:
    """Return the open client, of a request or a WebSocket. With FastAPI: `Depends(relay_client)`.

    Raises `UsageError` if the application runs without its lifespan, as in a `TestClient` outside of `with`.
    """
    client = getattr(connection.state, STATE, None)
    if not isinstance(client, RelayClient):
        raise UsageError(
            "the application runs without the client's lifespan: give it lifespan=lifespan(client), "
            "and in tests use `with TestClient(app)`"
        )
    return client
