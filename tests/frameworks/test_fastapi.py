"""FastAPI and Starlette: the client is open while the application is served, and not longer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.websockets import WebSocket

from relay.client import Delivery, RelayClient, UsageError
from relay.client.testing import InMemoryRelay
from relay.frameworks.fastapi import ClientDep, lifespan
from tests.servers import free_port
from tests.worlds.relay.processes import Relay
from tests.worlds.waiting import eventually


def application(client: RelayClient, **options: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan(client, **options))

    @app.post("/remind/{number}")
    async def remind(number: int, timers: ClientDep) -> dict[str, str]:
        timer = await timers.schedule("fastapi", b"%d" % number, delay=0, timer_id=f"order-{number}")
        return {"timer_id": timer.timer_id}

    @app.websocket("/ws")
    async def talk(socket: WebSocket, timers: ClientDep) -> None:
        await socket.accept()
        await socket.send_text(type(timers).__name__)
        await socket.close()

    return app


def test_a_route_schedules_and_the_handler_runs_in_the_same_process(daemon: Relay) -> None:
    client, seen = RelayClient(daemon.target), list[bytes]()

    @client.on("fastapi")
    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.payload)

    with TestClient(application(client)) as http:
        assert client.begun
        assert http.post("/remind/7").json() == {"timer_id": "order-7"}
        eventually(lambda: seen == [b"7"], "the handler has run")
        with http.websocket_connect("/ws") as socket:
            assert socket.receive_text() == "RelayClient"
    assert not client.begun
    with TestClient(application(client)):  # as a server that is started again
        assert client.begun


def test_what_handlers_need_outlives_them() -> None:
    """The application's own lifespan ends once the client is closed, and its state reaches requests."""
    client, order = RelayClient(f"127.0.0.1:{free_port()}"), list[tuple[str, bool]]()

    @asynccontextmanager
    async def pool(_: FastAPI) -> AsyncIterator[dict[str, str]]:
        order.append(("opened", client.begun))
        yield {"pool": "open"}
        order.append(("closed", client.begun))

    with TestClient(application(client, around=pool)) as http:
        assert http.app_state == {"relay_client": client, "pool": "open"}
    assert order == [("opened", False), ("closed", False)]


def test_a_server_starts_while_the_relay_is_away() -> None:
    client = RelayClient(f"127.0.0.1:{free_port()}")
    client.on("fastapi")(lambda _: None)
    with TestClient(application(client)):
        assert client.begun
        assert not client.ready()


def test_a_refused_stream_leaves_the_server_and_is_no_longer_ready(daemon: Relay) -> None:
    """`async with client` would cancel the server's task of the lifespan."""
    client = RelayClient(daemon.target)
    client.on("refused#1")(lambda _: None)
    with TestClient(application(client)) as http:
        eventually(lambda: client._runtime and client._runtime.refusal, "the relay has refused it")
        assert http.post("/remind/8").status_code == 200
        assert not client.ready()


def test_nor_is_a_server_whose_recurrence_is_refused(daemon: Relay) -> None:
    client = RelayClient(daemon.target)

    @client.every(0.01, topic="fastapi-too-often")
    async def handle(_: Delivery) -> None: ...

    with TestClient(application(client)):
        runtime = client._runtime
        assert runtime is not None
        eventually(lambda: runtime.refusal, "the relay has refused it")
        eventually(
            lambda: all(each.opened.is_set() for each in runtime._streams.values()), "its stream is open"
        )
        assert not client.ready()


def test_without_its_lifespan_the_error_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="with TestClient"):
        TestClient(application(RelayClient())).post("/remind/1")


async def test_it_joins_a_relay_in_memory() -> None:
    client = RelayClient()
    client.on("fastapi")(lambda _: None)
    async with InMemoryRelay(client) as relay:
        with TestClient(application(client)) as http:
            http.post("/remind/9")
        assert [each.timer_id for each in await relay.run_due()] == ["order-9"]
