"""A stream of events is closed whenever it ends."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import anyio
import pytest
from starlette.types import Message

from relay.console.streaming import EventStream
from relay.core.trust.usage import Bounds
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("after", [0, 1])
async def test_who_goes_leaves_no_open_stream(after: int) -> None:
    """Also before the first event, when what makes the events has not even begun and so can end nothing."""
    usage = Bounds(time.monotonic).open()
    came, ended = anyio.Event(), anyio.Event()

    async def events() -> AsyncGenerator[str, None]:
        try:
            while True:
                yield "data: 1\n\n"
                await anyio.sleep_forever()
        finally:
            ended.set()

    async def receive() -> Message:
        if after:
            await came.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            came.set()
        await anyio.lowlevel.checkpoint()

    assert usage.streams == 1
    stream = EventStream(events(), usage)
    with anyio.fail_after(PATIENCE):
        await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert usage.streams == 0
    assert ended.is_set() == bool(after)
