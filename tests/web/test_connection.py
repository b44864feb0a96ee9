"""What one connection may cost, and what a caller hears whose bytes are no HTTP."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.responses import Response

from relay.core.endpoints import addresses
from tests.web.rig import BOUNDS, Api, serve, with_api
from tests.worlds.engine.served import Served, served
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.anyio

LITTLE = 4.0
"""Seconds of `idle_timeout`. Those who are in order have to keep to it as well, on a busy machine too."""

HOST = b"host: localhost\r\n"
POST = b"POST /v1/topics/t/timers HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
LIST = b"GET /v1/topics HTTP/1.1\r\n" + HOST + b"\r\n"
NOT_HTTP = {
    "noise": (b"\xff\x00\x13\x37 hello\r\n\r\n", 400),
    "the hello of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /v1/topics\r\n\r\n", 400),
    "a header without a colon": (b"GET / HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a length that is no number": (POST + b"content-length: many\r\n\r\n", 400),
    "a negative length": (POST + b"content-length: -1\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
    "an encoding that nobody knows": (POST + b"transfer-encoding: rot13\r\n\r\n", 501),
    "chunks that are none": (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400),
    "chunks that are none, for HEAD": (
        b"HEAD /v1/topics HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        400,
    ),
}


@dataclass(eq=False)
class Caller:
    """A raw connection."""

    stream: SocketStream
    heard: bytes = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def to_the_end(self) -> bytes:
        """All that comes until the other side closes."""
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    self.heard += await self.stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return self.heard

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of the one answer that comes before the end."""
        head, _, content = (await self.to_the_end()).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        return int(first.split()[1]), headers, json.loads(content) if content else None

    async def status(self) -> int:
        """Of the next answer, which is small."""
        with anyio.fail_after(PATIENCE):
            while b"\r\n\r\n" not in self.heard:
                self.heard += await self.stream.receive()
        head, _, self.heard = self.heard.partition(b"\r\n\r\n")
        length = next(
            int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")
        )
        with anyio.fail_after(PATIENCE):
            while len(self.heard) < length:
                self.heard += await self.stream.receive()
        self.heard = self.heard[length:]
        return int(head.split()[1])


@asynccontextmanager
async def dialled(address: str) -> AsyncIterator[Caller]:
    async with await anyio.connect_tcp(*addresses.split(address)) as stream:
        yield Caller(stream)


@asynccontextmanager
async def serving(app: Any, **bounds: Any) -> AsyncIterator[tuple[str, Counter[str]]]:
    """Serve any application; its address, and how many connections were refused by reason."""
    refused: Counter[str] = Counter()
    start = partial(serve, bounds=replace(BOUNDS, **bounds), count=lambda reason: refused.update((reason,)))
    async with anyio.create_task_group() as tasks:
        yield await tasks.start(start, app, "127.0.0.1:0"), refused
        tasks.cancel_scope.cancel()


@pytest.fixture
async def relay() -> AsyncIterator[Served]:
    async with served() as relay:
        yield relay


@asynccontextmanager
async def bounded(relay: Served, **bounds: Any) -> AsyncIterator[Api]:
    async with with_api(relay, bounds=replace(BOUNDS, **bounds)) as api:
        yield api


def problem_of(answer: tuple[int, dict[str, str], Any]) -> dict[str, Any]:
    """The problem's details; the connection is not to be used again."""
    status, headers, problem = answer
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert problem["status"] == status
    assert problem["detail"]
    found: dict[str, Any] = problem
    return found


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Nothing that a caller sends is an error of the relay's, with a stack trace."""
    yield
    found = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not found, [record.getMessage() for record in found]


@pytest.mark.parametrize("case", NOT_HTTP)
async def test_what_is_no_http(api: Api, case: str) -> None:
    """Problem details, as everywhere; counted. The next caller is served."""
    sent, status = NOT_HTTP[case]
    async with dialled(api.server.address) as caller:
        await caller.send(sent)
        answer = await caller.answer()
    assert answer[0] == status or (case.endswith("HEAD") and answer[0] == 200), answer
    if "HEAD" not in case:
        assert problem_of(answer)["type"] == "urn:relay:problem:not-http"
        assert api.refused == {"unreadable": 1}
    assert (await api.call("GET", "/v1/topics")).status == 200


@pytest.mark.parametrize("pieces", [1, 50])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_header_that_is_too_large(api: Api, pieces: int, method: bytes) -> None:
    """431, whether it comes at once or in pieces; one byte less than the bound is a header."""
    bomb = method + b" /v1/topics HTTP/1.1\r\n" + HOST + b"x: " + b"x" * 40_000 + b"\r\n\r\n"
    size = -(-len(bomb) // pieces)
    async with dialled(api.server.address) as caller:
        for start in range(0, len(bomb), size):
            await caller.send(bomb[start : start + size])
        answer = await caller.answer()
    assert answer[0] == 431
    if answer[2] is not None:
        assert problem_of(answer)["type"] == "urn:relay:problem:header-too-large"
    assert api.refused == {"header": 1}
    fits = {"x": "x" * (BOUNDS.header_bytes - 1_000)}
    assert (await api.call("GET", "/v1/topics", headers=fits)).status == 200


@pytest.mark.parametrize(
    "sent", [NOT_HTTP["noise"][0], b"HEAD / HTTP/1.1\r\n" + HOST + b"x: " + b"x" * 40_000 + b"\r\n\r\n"]
)
async def test_a_server_stops_beside_callers_that_it_has_just_refused(relay: Served, sent: bytes) -> None:
    """In order, for the others as well."""
    async with (
        bounded(relay) as api,
        dialled(api.server.address) as refused,
        dialled(api.server.address) as idle,
    ):
        await refused.send(sent)
        with anyio.fail_after(PATIENCE):
            assert await refused.stream.receive()
        await api.server.stop()
        assert await idle.to_the_end() == b""


async def test_a_header_that_does_not_end(relay: Served) -> None:
    """However many bytes still come: 408, and the connection is free."""
    async with bounded(relay, idle_timeout=LITTLE) as api, dialled(api.server.address) as caller:
        await caller.send(LIST[:-2])
        async with anyio.create_task_group() as tasks:

            async def trickle() -> None:
                with anyio.fail_after(PATIENCE), suppress(anyio.BrokenResourceError):
                    while True:
                        await caller.send(b"x: y\r\n")
                        await anyio.sleep(0.02)

            tasks.start_soon(trickle)
            answer = await caller.answer()
            tasks.cancel_scope.cancel()
        assert problem_of(answer)["type"] == "urn:relay:problem:too-slow"
        assert answer[0] == 408
        assert api.refused == {"slow": 1}


async def test_a_connection_on_which_nothing_comes(relay: Served) -> None:
    """Closed without a word, before the first request and after an answer; nobody counts it."""
    async with bounded(relay, idle_timeout=LITTLE) as api:
        async with dialled(api.server.address) as caller:
            assert await caller.to_the_end() == b""
        async with dialled(api.server.address) as caller:
            await caller.send(LIST)
            assert await caller.status() == 200
            assert await caller.to_the_end() == b""
        assert not api.refused


async def test_a_body_that_nobody_waits_for(relay: Served) -> None:
    """The answer went out long ago: bytes that trickle behind it hold no connection."""
    async with bounded(relay, idle_timeout=LITTLE) as api, dialled(api.server.address) as caller:
        await caller.send(LIST[:-2] + b"content-length: 1000000\r\n\r\n")
        assert await caller.status() == 200
        with anyio.fail_after(PATIENCE), suppress(anyio.BrokenResourceError):
            while True:
                await caller.send(b"x")
                await anyio.sleep(0.02)


async def test_an_answer_that_nobody_takes() -> None:
    """As long as its caller reads nothing, it costs memory: not for ever."""
    ended = anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(b"x" * 50_000_000)(scope, receive, send)
        ended.set()

    async with serving(app, idle_timeout=LITTLE) as (address, _), dialled(address) as caller:
        await caller.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        with anyio.fail_after(PATIENCE):
            await ended.wait()
        assert len(await caller.to_the_end()) < 50_000_000


async def test_a_full_listener_makes_room(relay: Served) -> None:
    """The connection that has waited longest goes: who dials and says nothing keeps nobody out."""
    async with bounded(relay, connections=3) as api:
        async with (
            dialled(api.server.address) as first,
            dialled(api.server.address) as second,
            dialled(api.server.address) as third,
        ):
            await first.send(LIST)
            assert await first.status() == 200  # it waits since just now
            await third.send(LIST)
            assert await third.status() == 200
            assert (await api.call("GET", "/v1/topics")).status == 200
            assert await second.to_the_end() == b""
            await first.send(LIST)
            assert await first.status() == 200
        assert api.refused == {"full": 1}


async def test_a_listener_full_of_requests() -> None:
    """Nobody is thrown out of a request for another's: the newcomer hears 503 and when to come again."""
    begun, gate = anyio.Semaphore(0), anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.release()
        await gate.wait()
        await Response(b"done")(scope, receive, send)

    async with (
        serving(app, connections=2) as (address, refused),
        dialled(address) as first,
        dialled(address) as second,
    ):
        for caller in (first, second):
            await caller.send(LIST)
            await begun.acquire()
        async with dialled(address) as third:
            answer = await third.answer()
        assert answer[0] == 503
        assert answer[1]["retry-after"] == "1"
        assert problem_of(answer)["type"] == "urn:relay:problem:too-many-connections"
        assert refused == {"full": 1}
        gate.set()
        assert [await first.status(), await second.status()] == [200, 200]


async def test_noise_behind_a_request_that_is_answered() -> None:
    """Its caller hears 400, once; the handler learns that nobody waits, and its answer goes nowhere."""
    started, ended = anyio.Event(), anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await Response(b"nobody hears this")(scope, receive, send)
        ended.set()

    async with serving(app) as (address, _), dialled(address) as caller:
        await caller.send(POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await started.wait()
        await caller.send(b"zz\r\n")
        assert (await caller.answer())[0] == 400
        with anyio.fail_after(PATIENCE):
            await ended.wait()


async def test_noise_in_the_midst_of_an_answer() -> None:
    """It is too late for a status: the connection is closed."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serving(app) as (address, refused), dialled(address) as caller:
        await caller.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            while b"half" not in caller.heard:
                caller.heard += await caller.stream.receive()
        await caller.send(b"zz\r\n")
        assert b"400" not in await caller.to_the_end()
        assert refused == {"unreadable": 1}
