"""Either side as a publisher and as a worker, so that one test can be told of both.

The relay's worker is a whole one: its engine, its gRPC server and the Python client's handler. The
peer's is a broker with a subscriber.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast, get_args

from faststream import Context
from faststream.exceptions import RejectMessage
from faststream_redis_timers import TimersBroker
from faststream_redis_timers.message import TimerStreamMessage
from redis.asyncio import Redis

from relay.client import Delivery, Reject, RelayClient
from relay.core.instants import SECOND
from relay.store.keys import KeyNames
from tests.interop.neighbours import Neighbours, moment, now
from tests.worlds.engine.served import on_server
from tests.worlds.waiting import until

Side = Literal["relay", "peer"]
SIDES: tuple[Side, ...] = get_args(Side)


class Failed(Exception):
    """Raised by a handler: the timer is to come again."""


class Refused(Exception):
    """Raised by a handler: the timer is never to come again."""


@dataclass(frozen=True)
class Call:
    """One call of a handler. `at`: microseconds; `attempt`: 0 where the side counts none."""

    side: Side
    timer_id: str
    body: bytes
    headers: dict[str, str]
    at: int
    attempt: int


Handler = Callable[[Call], Awaitable[None]]


@dataclass
class Worker:
    """One side's worker; `handle` is called within each call, which `calls` has from its start on."""

    side: Side
    handle: Handler
    calls: list[Call] = field(default_factory=list)
    ended: int = 0

    async def __call__(self, call: Call) -> None:
        self.calls.append(call)
        await self.handle(call)
        self.ended += 1

    async def called(self, times: int = 1) -> Call:
        """Wait for so many calls; answers the last one."""
        await until(lambda: len(self.calls) >= times)
        return self.calls[times - 1]


async def returns(_: Call) -> None:
    """A handler that has nothing to do."""


async def publish(
    both: Neighbours,
    side: Side,
    timer_id: str = "a",
    body: bytes = b"\x00body",
    due: int = SECOND,
    headers: dict[str, str] | None = None,
) -> None:
    """Give a timer by way of a side; `due`: microseconds since 1970."""
    if side == "relay":
        await both.schedule(timer_id, due, body, headers=headers or {})
    else:
        await both.broker.publish(
            body, both.topic, timer_id=timer_id, activate_at=moment(due), headers=dict(headers or {})
        )


async def cancel(both: Neighbours, side: Side, timer_id: str = "a") -> None:
    """Cancel a timer by way of a side."""
    if side == "relay":
        await both.store.cancel(both.topic, [timer_id])
    else:
        await both.broker.cancel_timer(both.topic, timer_id)


async def score(both: Neighbours, timer_id: str = "a") -> int | None:
    """When the timer can be claimed next: microseconds; None if there is no such timer."""
    found = await both.redis.zscore(KeyNames().of(both.topic)[0], timer_id)
    return None if found is None else int(found * SECOND)


async def empty(both: Neighbours) -> bool:
    """Nothing is left of the topic, no lease record either."""
    return await both.sizes() == (0, 0, 0)


async def no_timers(both: Neighbours) -> bool:
    """No timer is left, and no payload."""
    return (await both.sizes())[:2] == (0, 0)


@asynccontextmanager
async def working(
    both: Neighbours,
    side: Side,
    handle: Handler = returns,
    *,
    lease: float = 30.0,
    concurrency: int = 5,
    topic: str = "",
) -> AsyncIterator[Worker]:
    """A worker of a side runs within; `lease`: seconds."""
    worker = Worker(side, handle)
    start = _relay if side == "relay" else _peer
    async with start(both.url, topic or both.topic, worker, lease, concurrency):
        yield worker


@asynccontextmanager
async def _relay(url: str, topic: str, worker: Worker, lease: float, concurrency: int) -> AsyncIterator[None]:
    async with on_server(url) as relay:
        relay.tune(topic, lease_ttl=lease, polling_interval=0.01, max_polling_interval=0.02)
        client = RelayClient(relay.server.address)

        @client.on(topic, concurrency=concurrency, prefetch=0)
        async def handle(delivery: Delivery) -> None:
            headers = dict(delivery.headers)
            if delivery.content_type:
                headers["content-type"] = delivery.content_type
            call = Call("relay", delivery.timer_id, delivery.payload, headers, now(), delivery.attempt)
            try:
                await worker(call)
            except Refused as refused:
                raise Reject from refused

        async with client:
            await client.wait_ready(60.0)
            yield


@asynccontextmanager
async def _peer(url: str, topic: str, worker: Worker, lease: float, concurrency: int) -> AsyncIterator[None]:
    redis = Redis.from_url(url)
    broker = TimersBroker(redis, logger=None)

    @broker.subscriber(
        topic,
        polling_interval=0.01,
        max_polling_interval=0.02,
        max_concurrent=concurrency,
        lease_ttl=cast("int", lease),  # it adds it to its clock, whatever it is
    )
    async def handle(_: Any, message: Annotated[TimerStreamMessage, Context("message")]) -> None:
        headers = {str(name): str(value) for name, value in message.headers.items()}
        timer_id = message.raw_message["timer_id"]
        try:
            await worker(Call("peer", timer_id, bytes(message.body), headers, now(), 0))
        except Refused as refused:
            raise RejectMessage from refused

    await broker.start()
    try:
        yield
    finally:
        await broker.stop()
        await redis.aclose()
