"""Content and headers, all the way: from the peer's publisher to an application, over a stream and pushed;
and from the relay's API to the peer's handler."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, cast

import anyio
import pytest
from faststream import Context
from faststream_redis_timers import TimersBroker, TimersRouter
from faststream_redis_timers.message import TimerStreamMessage
from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel
from redis.asyncio import Redis

from relay.v1 import delivery_service_pb2 as pb
from relay.v1.timer_pb2 import TimerSpec
from relay.v1.timer_service_pb2 import ScheduleRequest
from tests.interop.neighbours import Neighbours, fresh
from tests.interop.sides import empty
from tests.rpc.handler import Handler, pushing, serve
from tests.worlds.engine.served import Served, on_server
from tests.worlds.waiting import until

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
HEADERS = {**TRACE, "reply_to": "answers", "correlation_id": "c-1", "naïve": "日本語 🔑", "empty": ""}


class Order(BaseModel):
    number: int
    text: str = "größe"


@dataclass
class Reminder:
    to: str


# ---------------------------------------------------------- their publisher, our application


@asynccontextmanager
async def delivered_by(way: str, relay: Served, topic: str) -> AsyncIterator[list[pb.Delivery]]:
    """The deliveries of a topic, acknowledged as they come."""
    relay.tune(topic, max_polling_interval=0.02)
    if way == "push":
        handler = Handler()
        application = await serve(handler, healthy=True)
        async with pushing(relay, application.address, topic, max_polling_interval=0.02):
            yield handler.seen
        await application.stop()
        return
    seen: list[pb.Delivery] = []

    async def take() -> None:
        while True:
            delivery = await stream.delivery()
            seen.append(delivery)
            await stream.ack([delivery])

    stream = await relay.stream().open(topic)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        yield seen
        tasks.cancel_scope.cancel()
    stream.call.cancel()


@pytest.fixture(params=["stream", "push"])
def way(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.mark.parametrize(
    ("body", "payload", "content_type"),
    [
        (b"\x00\xff{", b"\x00\xff{", ""),
        (b"", b"", ""),
        (None, b"", ""),
        ("größe", "größe".encode(), "text/plain"),
        ({"a": [1, None]}, {"a": [1, None]}, "application/json"),
        ([1, 2], [1, 2], "application/json"),
        (42, 42, "application/json"),
        (Order(number=1), {"number": 1, "text": "größe"}, "application/json"),
        (Reminder("a@example.org"), {"to": "a@example.org"}, "application/json"),
    ],
    ids=["bytes", "no bytes", "None", "str", "dict", "list", "int", "pydantic", "dataclass"],
)
async def test_what_they_publish_we_deliver(
    pair: Neighbours, way: str, body: Any, payload: Any, content_type: str
) -> None:
    """Each type of body that FastStream takes, with every header, whichever way the application has it."""
    await pair.publish("счёт-1", body, headers=HEADERS)
    async with on_server(pair.url) as relay, delivered_by(way, relay, pair.topic) as seen:
        await until(lambda: len(seen) == 1)
        await until(lambda: empty(pair))
    (delivery,) = seen
    found = json.loads(delivery.payload) if isinstance(payload, dict | list | int) else delivery.payload
    assert (delivery.timer_id, found, delivery.content_type) == ("счёт-1", payload, content_type)
    assert dict(delivery.headers) == HEADERS
    assert (delivery.topic, delivery.attempt, delivery.due_time_approximate) == (pair.topic, 1, False)


async def test_their_correlation_id_by_default(pair: Neighbours, way: str) -> None:
    """It is the timer's id; and a content type of the publisher's own goes before FastStream's."""
    await pair.publish("a", "<a/>", headers={"content-type": "text/xml"})
    async with on_server(pair.url) as relay, delivered_by(way, relay, pair.topic) as seen:
        await until(lambda: len(seen) == 1)
        await until(lambda: empty(pair))
    assert dict(seen[0].headers) == {"correlation_id": "a"}
    assert seen[0].content_type == "text/xml"


async def test_a_timer_that_their_worker_dropped(pair: Neighbours, way: str) -> None:
    """A worker of theirs had it and died: the application has it from us, once, with all its headers."""
    await pair.publish("a", {"n": 1}, headers=HEADERS)
    theirs = pair.broker.config.broker_config.store
    assert await theirs.claim(pair.topic, "a", 2.0, 0) is not None, "a lease that is over already"
    async with on_server(pair.url) as relay, delivered_by(way, relay, pair.topic) as seen:
        await until(lambda: len(seen) >= 1)
        await until(lambda: empty(pair))
    (delivery,) = seen
    assert (json.loads(delivery.payload), dict(delivery.headers)) == ({"n": 1}, HEADERS)


async def test_a_router_of_theirs(pair: Neighbours) -> None:
    """The prefix of a router is a part of the topic's name, for us as for their keys."""
    prefix = pair.topic[:6]
    router = TimersRouter(prefix=prefix)
    publisher = router.publisher(pair.topic[6:])
    pair.broker.include_router(router)
    await pair.broker.start()
    await publisher.publish("body", timer_id="a")
    assert (await pair.one(fresh())).payload == b"body"
    await pair.store.cancel(pair.topic, ["a"])


# ---------------------------------------------------------------- our API, their application


@asynccontextmanager
async def their_handler(
    pair: Neighbours, expected: Any
) -> AsyncIterator[list[tuple[Any, TimerStreamMessage]]]:
    """Their subscriber with a handler whose body is annotated."""
    seen: list[tuple[Any, TimerStreamMessage]] = []
    redis = Redis.from_url(pair.url)
    broker = TimersBroker(redis, logger=None)

    async def handle(body: Any, message: Annotated[TimerStreamMessage, Context("message")]) -> None:
        seen.append((body, message))

    handle.__annotations__["body"] = expected
    broker.subscriber(pair.topic, polling_interval=0.01, max_polling_interval=0.02)(handle)
    await broker.start()
    try:
        yield seen
    finally:
        await broker.stop()
        await redis.aclose()


@pytest.mark.parametrize(
    ("payload", "content_type", "expected", "body"),
    [
        ("größe".encode(), "text/plain", str, "größe"),
        (b'{"number": 1}', "application/json", Order, Order(number=1)),
        (b'{"to": "a"}', "application/json; charset=utf-8", Reminder, Reminder("a")),
        (b"[1, 2]", "", list[int], [1, 2]),
        (b"\x00\xff", "", bytes, b"\x00\xff"),
        (b'{"a": 1}', "application/protobuf", bytes, b'{"a": 1}'),
    ],
    ids=["str", "pydantic", "charset", "json unsaid", "bytes", "another type"],
)
async def test_what_we_schedule_they_handle(
    pair: Neighbours, payload: bytes, content_type: str, expected: Any, body: Any
) -> None:
    """Over gRPC, with content type, headers beyond ASCII and trace context; it is given its type."""
    spec = TimerSpec(
        topic=pair.topic,
        timer_id="счёт-1",
        payload=payload,
        headers={name: HEADERS[name] for name in HEADERS if name not in TRACE},
        content_type=content_type,
        delay=Duration(),
    )
    async with on_server(pair.url) as relay, their_handler(pair, expected) as seen:
        await relay.timers.Schedule(ScheduleRequest(timer=spec), metadata=tuple(TRACE.items()))
        await until(lambda: len(seen) == 1)
        await until(lambda: empty(pair))
    ((found, message),) = seen
    assert found == body
    assert (message.message_id, message.correlation_id, message.reply_to) == ("счёт-1", "c-1", "answers")
    named = {"content-type": content_type} if content_type else {}
    assert message.headers == {**HEADERS, **named}


async def test_our_timers_have_no_correlation_id_of_their_own(pair: Neighbours) -> None:
    """Then theirs is the timer's id, as with their own publisher."""
    async with their_handler(pair, bytes) as seen:
        await pair.schedule("a", 1, b"\x00")
        await until(lambda: len(seen) == 1)
        await until(lambda: empty(pair))
    assert (seen[0][1].correlation_id, seen[0][1].headers) == ("a", {})
