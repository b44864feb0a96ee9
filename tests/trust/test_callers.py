"""Services and routes find the caller of each call, and of no other one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.requests import Request

from relay.core.errors import Unauthenticated
from relay.core.trust.principals import ANONYMOUS, caller
from relay.rpc.callers import admission
from relay.rpc.unreadable import Guard
from relay.trust import tokens
from relay.trust.identity import Identity
from relay.trust.tokens import Tokens
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import delivery_service_pb2_grpc as delivery_base
from relay.v1 import topic_service_pb2 as topic_pb
from relay.v1 import topic_service_pb2_grpc as topic_base
from relay.web import guard


class Topics(topic_base.TopicServiceServicer):
    async def PauseTopic(self, request: Any, context: Any) -> topic_pb.PauseTopicResponse:
        await asyncio.sleep(0)
        await context.send_initial_metadata((("caller", str(caller.get())),))
        return topic_pb.PauseTopicResponse()


class Deliveries(delivery_base.DeliveryServiceServicer):
    async def Deliver(self, requests: Any, context: Any) -> AsyncIterator[delivery_pb.DeliverResponse]:
        await context.send_initial_metadata((("caller", str(caller.get())),))
        yield delivery_pb.DeliverResponse()


@pytest.fixture
def known(tmp_path: Path) -> tuple[Tokens, list[str]]:
    made = [tokens.new() for _ in range(3)]
    file = tmp_path / "tokens"
    file.write_text("".join(tokens.line(f"n{number}", token) + "\n" for number, token in enumerate(made)))
    read = Tokens(file)
    read.load()
    return read, made


async def test_each_call_of_grpc_has_its_own(known: tuple[Tokens, list[str]]) -> None:
    refused: list[None] = []
    server = grpc.aio.server()
    identity = Identity(may_be_anonymous=False, tokens=known[0])
    guarded: Any = Guard(server, lambda _: None, admission(identity, lambda: refused.append(None)))
    topic_base.add_TopicServiceServicer_to_server(Topics(), guarded)
    delivery_base.add_DeliveryServiceServicer_to_server(Deliveries(), guarded)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        topics: Any = topic_base.TopicServiceStub(channel)
        deliveries: Any = delivery_base.DeliveryServiceStub(channel)

        def begun(token: str) -> tuple[Any, Any]:
            shown = (("authorization", f"Bearer {token}"),)
            return topics.PauseTopic(topic_pb.PauseTopicRequest(), metadata=shown), deliveries.Deliver(
                metadata=shown
            )

        async def told(call: Any) -> str:
            return str(dict(await call.initial_metadata()).get("caller"))

        calls = [begun(token) for token in known[1]]
        for number, (unary, stream) in enumerate(calls):
            assert await told(unary) == await told(stream) == f"token:n{number}"
            stream.cancel()
        for call in begun("relay_unknown"):
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    await server.stop(0)
    assert len(refused) == 2


async def test_each_request_of_http_has_its_own(known: tuple[Tokens, list[str]]) -> None:
    refused: list[None] = []
    admit = guard.admission(Identity(may_be_anonymous=True, tokens=known[0]), lambda: refused.append(None))

    async def ask(*headers: tuple[bytes, bytes]) -> str:
        await admit(Request({"type": "http", "headers": headers}))
        await asyncio.sleep(0)
        return str(caller.get())

    shown = [((b"authorization", f"Bearer {token}".encode()),) for token in known[1]]
    asked = await asyncio.gather(*(asyncio.create_task(ask(*headers)) for headers in (*shown, ())))
    assert asked == ["token:n0", "token:n1", "token:n2", "anonymous"]
    assert caller.get() == ANONYMOUS
    with pytest.raises(Unauthenticated):
        await admit(Request({"type": "http", "headers": [(b"authorization", b"Bearer relay_x")]}))
    assert len(refused) == 1
