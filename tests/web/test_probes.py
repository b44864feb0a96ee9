"""The probes answer 200 or 503 with reasons; metrics are text."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from relay.core.endpoints import addresses
from relay.web.probes import probes
from tests.web.rig import serve

OK = {"status": "ok", "reasons": []}


class Health:
    """Says what the test wants."""

    def __init__(self) -> None:
        self.not_live: list[str] = []
        self.not_ready: list[str] = []

    def live(self) -> list[str]:
        return self.not_live

    def ready(self, *, needs_redis: bool) -> list[str]:
        return self.not_ready if needs_redis else []


class Metrics:
    async def scrape(self) -> tuple[bytes, str]:
        return b"relay_up 1\n", "text/plain; version=1.0.0; charset=utf-8"


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def address(health: Health) -> AsyncIterator[str]:
    """Where the probes are served."""
    async with anyio.create_task_group() as tasks:
        yield await tasks.start(serve, probes(health, Metrics()), "127.0.0.1:0")
        tasks.cancel_scope.cancel()


async def fetch(address: str, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, content type, body."""

    def ask() -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(*addresses.split(address), timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("content-type", ""), answer.read()
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(ask)


async def status(address: str, probe: str) -> tuple[int, Any]:
    code, content_type, body = await fetch(address, f"/healthz/{probe}")
    assert content_type == "application/json"
    return code, json.loads(body)


async def test_all_is_well(address: str) -> None:
    for probe in ("live", "ready", "startup"):
        assert await status(address, probe) == (200, OK)


async def test_not_ready_is_not_dead(address: str, health: Health) -> None:
    """Redis being away takes the pod out of service, and must not restart it."""
    health.not_ready = ["Redis is away"]
    assert await status(address, "ready") == (503, {"status": "failing", "reasons": ["Redis is away"]})
    assert await status(address, "live") == (200, OK)


async def test_a_loop_that_stands_is_dead(address: str, health: Health) -> None:
    health.not_live = ["a loop stands still"]
    assert await status(address, "live") == (503, {"status": "failing", "reasons": ["a loop stands still"]})


async def test_startup_stays_fine_once_it_was(address: str, health: Health) -> None:
    health.not_ready = ["starting"]
    assert (await status(address, "startup"))[0] == 503
    health.not_ready = []
    assert (await status(address, "startup"))[0] == 200
    health.not_ready = ["Redis is away"]
    assert (await status(address, "startup"))[0] == 200


async def test_metrics(address: str) -> None:
    assert await fetch(address, "/metrics") == (
        200,
        "text/plain; version=1.0.0; charset=utf-8",
        b"relay_up 1\n",
    )


async def test_nothing_else_is_there_and_nothing_can_be_written(address: str) -> None:
    assert (await fetch(address, "/"))[0] == 404
    assert (await fetch(address, "/metrics", "POST"))[0] == 405
    assert (await fetch(address, "/metrics", "HEAD"))[0] == 200


async def test_readiness_may_ignore_redis(health: Health) -> None:
    """Whoever asks is told whether Redis matters, and the relay's own answer counts."""
    health.not_ready = ["Redis is away: refused"]
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(serve, probes(health, Metrics(), needs_redis=False), "127.0.0.1:0")
        assert await status(address, "ready") == (200, OK)
        assert await status(address, "startup") == (200, OK)
        tasks.cancel_scope.cancel()
