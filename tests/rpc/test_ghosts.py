"""A call that was given up never acts, also where it shares its way to Redis with others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import grpc
import pytest

from relay.core.errors import OutOfTime
from relay.core.timers import NewTimer
from relay.engine.engine import Engine
from relay.store.keys import KeyNames
from relay.store.server.scripts import Scripts
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.v1.timer_service_pb2 import CancelRequest, ScheduleRequest
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.store.fake import Line
from tests.worlds.engine.served import LONG, Served, served
from tests.worlds.engine.stubs import at, spec
from tests.worlds.waiting import PATIENCE

FIRST, SECOND = 4_000_000_000, 4_100_000_000
"""Due times in a hundred years or so, in seconds."""

WAITS = 2.0
"""Seconds for which an impatient caller waits."""


@dataclass
class HeldUp:
    """A relay whose calls to Redis are held up, and the same Redis by another way."""

    relay: Served
    line: Line
    other: RedisStore
    topic: str

    @property
    def engine(self) -> Engine:
        return self.relay.engine

    def timer(self, timer_id: str) -> NewTimer:
        return NewTimer(timer_id, b"", FIRST * 1_000_000)

    async def move(self, timer_id: str) -> None:
        """Through another relay."""
        await self.other.schedule(self.topic, [NewTimer(timer_id, b"", SECOND * 1_000_000)])

    async def due(self, timer_id: str) -> int | None:
        timer = await self.other.get(self.topic, timer_id)
        return None if timer is None else timer.due // 1_000_000

    def calls(self, verb: str) -> int:
        """How many calls of a script have left the relay."""
        return self.line.sent.count(Scripts(KeyNames()).named(verb).sha.encode())


@asynccontextmanager
async def held_up(server: RunningServer, topic: str) -> AsyncIterator[HeldUp]:
    line = Line(server.port)
    async with (
        line.open() as url,
        Server(url, timeout=PATIENCE, write_ttl=PATIENCE) as slow,
        Server(server.url, timeout=PATIENCE) as other,
        served(RedisStore(slow), topics=RedisTopics(slow)) as relay,
    ):
        held = HeldUp(relay, line, RedisStore(other), topic)
        await held.engine.cancel(topic, "a")  # there is a connection, and the server's time is known
        await held.engine.schedule(topic, held.timer("a"))
        await held.engine.schedule(topic, held.timer("patient"))
        yield held


async def impatient(call: Awaitable[object]) -> None:
    """Call for a caller that waits for a moment only."""
    with pytest.raises(OutOfTime), LONG.bound(WAITS):
        await call


async def test_a_schedule_that_shares_a_call_undoes_nothing_once_it_was_given_up(
    valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Race: it shares a call with one whose caller has patience, and the call is held up. Its caller gives it
    up and moves the timer through another relay. Then the call comes: the patient caller's timer is stored,
    and the impatient one's stays where it is."""
    async with held_up(valkey, keyspace.topic()) as held:
        await held.other.cancel(held.topic, ["patient"])
        before = held.calls("timeline/schedule")
        held.line.holding = True
        async with anyio.create_task_group() as callers:
            callers.start_soon(held.engine.schedule, held.topic, held.timer("patient"))
            await impatient(held.engine.schedule(held.topic, held.timer("a")))
            assert held.calls("timeline/schedule") == before + 1, "they share one"
            await held.move("a")
            assert b"GIVENUP" in await held.line.deliver()
            callers.cancel_scope.cancel()
        assert (await held.due("a"), await held.due("patient")) == (SECOND, FIRST)


async def test_a_cancel_that_shares_a_call_removes_nothing_once_it_was_given_up(
    valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Race: as above, and the impatient caller's id is scheduled anew."""
    async with held_up(valkey, keyspace.topic()) as held:
        before = held.calls("timeline/cancel")
        held.line.holding = True
        async with anyio.create_task_group() as callers:
            callers.start_soon(held.engine.cancel, held.topic, "patient")
            await impatient(held.engine.cancel(held.topic, "a"))
            assert held.calls("timeline/cancel") == before + 1, "they share one"
            await held.move("a")
            assert b"GIVENUP" in await held.line.deliver()
            callers.cancel_scope.cancel()
        assert (await held.due("a"), await held.due("patient")) == (SECOND, None)


@pytest.mark.parametrize("method", ["Schedule", "Cancel"])
async def test_a_callers_deadline_reaches_redis(
    valkey: RunningServer, keyspace: Keyspace, method: str
) -> None:
    """Over gRPC. Whichever comes first tells the caller: the relay or its own deadline."""
    async with held_up(valkey, keyspace.topic()) as held:
        timer = spec("a", topic=held.topic, due_time=at(FIRST))
        requests = {
            "Schedule": ScheduleRequest(timer=timer),
            "Cancel": CancelRequest(topic=held.topic, timer_id="a"),
        }
        held.line.holding = True
        before = held.calls(f"timeline/{method.lower()}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(held.relay.timers, method)(requests[method], timeout=WAITS)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        await held.move("a")
        replies = await held.line.deliver()
        assert await held.due("a") == SECOND
        if held.calls(f"timeline/{method.lower()}") > before:  # on a busy machine its time may be over before
            assert b"GIVENUP" in replies
