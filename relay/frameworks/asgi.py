"""ASGI applications without a lifespan, such as Django's: the client is open while they are served.

>>> application = served(get_asgi_application(), client)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from relay.client import RelayClient

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


def served(application: Application, client: RelayClient) -> Application:
    """Return the application with the client's life: it opens as the server starts, and drains and closes as
    it stops. The server needs a lifespan, as uvicorn and Hypercorn have; `application` does not see it."""

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(client, receive, send)
        else:
            await application(scope, receive, send)

    return serve


async def _live(client: RelayClient, receive: Receive, send: Send) -> None:
    await receive()  # lifespan.startup
    try:
        await client.open()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": f"relay client: {error}"})
        raise
    try:
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    finally:
        await client.aclose()
    await send({"type": "lifespan.shutdown.complete"})
