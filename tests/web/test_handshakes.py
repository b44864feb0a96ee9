"""Connections of a listener with TLS whose handshakes do not end."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response

from relay.core.endpoints import addresses
from tests.trust.authority import Authority
from tests.web.rig import BOUNDS, serve
from tests.web.test_connection import LITTLE, Caller, dialled
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await Response(b"done")(scope, receive, send)


class Listener:
    """A served listener with TLS, and how many connections it refused by reason."""

    def __init__(self, address: str, trusts: ssl.SSLContext, refused: Counter[str]) -> None:
        self.address, self.trusts, self.refused = address, trusts, refused

    @asynccontextmanager
    async def known(self) -> AsyncIterator[Caller]:
        """A connection whose handshake has ended."""
        host, port = addresses.split(self.address)
        async with await anyio.connect_tcp(host, port, ssl_context=self.trusts) as stream:
            yield Caller(stream)  # type: ignore[arg-type]


@asynccontextmanager
async def listening(tmp_path: Path, **bounds: Any) -> AsyncIterator[Listener]:
    authority = Authority(tmp_path)
    pair = authority.issue("relay")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    trusts = ssl.create_default_context(cafile=authority.certificate)
    refused: Counter[str] = Counter()
    start = partial(
        serve, bounds=replace(BOUNDS, **bounds), count=lambda why: refused.update((why,)), tls=tls
    )
    async with anyio.create_task_group() as tasks:
        yield Listener(await tasks.start(start, app, "127.0.0.1:0"), trusts, refused)
        tasks.cancel_scope.cancel()


async def test_silent_handshakes_count_and_keep_nobody_out(tmp_path: Path) -> None:
    """The oldest of them goes, and not the connection that has proved something; that one is answered."""
    async with listening(tmp_path, connections=3) as listener, AsyncExitStack() as stack:
        known = await stack.enter_async_context(listener.known())
        silent = [await stack.enter_async_context(dialled(listener.address)) for _ in range(4)]
        for each in silent[:2]:
            assert await each.to_the_end() == b""
        async with listener.known() as another:
            assert await silent[2].to_the_end() == b""
            for each in (known, another):
                await each.send(GET)
                assert await each.status() == 200
        assert listener.refused == {"full": 3}


async def test_a_handshake_has_little_time(tmp_path: Path) -> None:
    """Whether nothing came, or half a hello. One that ends in time goes on after it."""
    async with listening(tmp_path, idle_timeout=LITTLE) as listener:
        async with dialled(listener.address) as silent, dialled(listener.address) as half:
            await half.send(b"\x16\x03\x01\x02\x00\x01")
            with anyio.fail_after(PATIENCE / 4):  # asyncio's own time is a minute
                assert await silent.to_the_end() == await half.to_the_end() == b""
        async with listener.known() as known:
            await known.send(GET)
            assert await known.status() == 200
        assert listener.refused == {"slow": 2}


async def test_handshakes_that_fail_leave_their_places(tmp_path: Path) -> None:
    """Those that break off, and those that send no TLS."""
    async with listening(tmp_path, connections=2) as listener:
        for _ in range(5):
            async with dialled(listener.address):
                pass
            async with dialled(listener.address) as caller:
                await caller.send(GET)
                await caller.to_the_end()
        async with listener.known() as first, listener.known() as second:
            for each in (first, second):
                await each.send(GET)
                assert await each.status() == 200
