"""Answers that carry deliveries. Whether one reached the caller decides whether an attempt counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Send

from relay.api.deliveries import Taken

T = TypeVar("T")

WRITE_TIMEOUT = 30.0
"""Seconds within which the caller must take the answer."""

GONE = "http.disconnect"


class Carrying(Response):
    """An answer with deliveries."""

    taken: Taken


async def attended(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work while the caller is there. Raises `ClientDisconnect` when the caller goes away.

    The request's body must have been read. This uses no task group, which would await something after the
    work is done, and lose the result if it is cancelled there.
    """
    scope = anyio.CancelScope()

    async def watch() -> None:
        while (await receive())["type"] != GONE:
            pass
        scope.cancel()

    watching = asyncio.create_task(watch())
    try:
        with scope:
            return await work()
    finally:
        watching.cancel()
    raise ClientDisconnect


async def hand_over(response: Carrying, receive: Receive, send: Send) -> None:  # see 0049
    """Write the answer. Its deliveries count as received once all of it but the last byte is on its way to a
    caller who seems to be there; before that they are given back. Raises `ClientDisconnect`.

    The last byte comes after that decision: a caller who has it may settle or close the connection at once.
    """
    content = bytes(response.body)
    start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    try:
        with anyio.move_on_after(WRITE_TIMEOUT) as scope:
            await send(start)
            await send(_part(content[:-1]))
            await send(_part(b""))  # waits until nearly all of the earlier parts are written
            gone = await _gone(receive)
    except BaseException:
        response.taken.give_back()
        raise
    if scope.cancelled_caught or gone:
        response.taken.give_back()
        raise ClientDisconnect
    response.taken.handed()
    await send({"type": "http.response.body", "body": content[-1:], "more_body": False})


def _part(content: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _gone(receive: Receive) -> bool:
    """Whether the caller is known to have gone."""
    with anyio.move_on_after(0):
        while (await receive())["type"] != GONE:
            pass
        return True
    return False
