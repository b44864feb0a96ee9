"""What an OK means, through the API: what is asked, what the topic has, what was reached, and what is told if
not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2

from relay.api.call_time import CallTime
from relay.client import DeadlineExceeded, NewTimer, NotDurable, RelayClient, Unavailable
from relay.core.durability import STORED, Durability
from relay.core.errors import DurabilityMissed
from relay.core.loop.call_ends import CallEnds
from relay.core.timers import NewTimer as Timer
from relay.engine import engine
from relay.store.server import group_commit
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.v1.timer_service_pb2 import (
    CancelRequest,
    ScheduleBatchRequest,
    ScheduleColumnsRequest,
    ScheduleRequest,
)
from tests.servers import RunningServer, start_server
from tests.worlds.engine.served import LONG, Served, served
from tests.worlds.engine.stubs import invalid_field, refused, spec
from tests.worlds.replicated import replicated
from tests.worlds.waiting import PATIENCE, until

FSYNC, REPLICA = Durability(fsync=True), Durability(replicas=1)
AN_HOUR = Duration(seconds=3600)


@pytest.fixture(autouse=True)
def at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests hold the server back; whether its word can be trusted is looked at elsewhere."""
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.0)


@pytest.fixture
def disk() -> Iterator[RunningServer]:
    with start_server("valkey", config={"appendonly": "yes", "appendfsync": "everysec"}) as server:
        yield server


@asynccontextmanager
async def relay_at(server: RunningServer, call_time: CallTime = LONG) -> AsyncIterator[Served]:
    async with Server(server.url, timeout=PATIENCE, write_ttl=PATIENCE) as redis:
        stores = RedisStore(redis), RedisHints(redis), RedisTopics(redis)
        async with served(*stores, call_time=call_time) as relay:
            await relay.timers.Schedule(
                request("warm", "fsync")
            )  # by a connection that found the disk in order
            await relay.timers.Cancel(CancelRequest(topic="t", timer_id="warm", durability="fsync"))
            await until(lambda: not redis._client.durable[FSYNC]._groups)
            yield relay


def waits_briefly(patch: pytest.MonkeyPatch) -> None:
    """Let waits for durability end after 2 s, and calls have minutes left for saying so. Both ends lie 0.05 s
    apart, and on a busy machine a call may end before it has read that its wait is over."""
    patch.setattr("relay.store.server.server.MARGIN", PATIENCE - 4.0)


def request(name: str, durability: str = "", **more: Any) -> ScheduleRequest:
    return ScheduleRequest(timer=spec(name, delay=AN_HOUR), durability=durability, **more)


def columns(*names: str, durability: str) -> ScheduleColumnsRequest:
    count = len(names)
    return ScheduleColumnsRequest(
        topic="t",
        timer_ids=names,
        payloads=[b""] * count,
        delays_us=[3_600_000_000] * count,
        durability=durability,
    )


@pytest.mark.parametrize(
    ("own", "asked", "reached"),
    [
        (STORED, "", ""),
        (STORED, "stored", ""),
        (STORED, "fsync", "fsync"),
        (STORED, "fsync+replicas:2", "fsync+replicas:2"),
        (FSYNC, "", "fsync"),
        (FSYNC, "stored", "fsync"),
        (FSYNC, "replicas:1", "fsync+replicas:1"),
        (Durability(replicas=3), "replicas:2", "replicas:3"),
    ],
)
async def test_the_stronger_of_the_topic_and_the_call(
    relay: Served, own: Durability, asked: str, reached: str
) -> None:
    """Every call answers what it stands for; an empty answer is `stored`."""
    relay.tune("t", durability=own)
    assert (await relay.timers.Schedule(request("a", asked))).reached == reached
    batch = ScheduleBatchRequest(timers=[spec("b"), spec("c")], durability=asked)
    for result in (await relay.timers.ScheduleBatch(batch)).results:
        assert result.scheduled.reached == reached
    assert (await relay.timers.ScheduleColumns(columns("d", durability=asked))).reached == reached
    for _ in range(2):
        answer = await relay.timers.Cancel(CancelRequest(topic="t", timer_id="a", durability=asked))
        assert answer.reached == reached


async def test_topics_of_a_batch_have_their_own(relay: Served) -> None:
    relay.tune("t", durability=FSYNC)
    timers = [spec("a", topic=topic) for topic in ("t", "u", "t", "v")]
    results = (await relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=timers))).results
    assert [result.scheduled.reached for result in results] == ["fsync", "", "fsync", ""]


@pytest.mark.parametrize("asked", ["Fsync", "replicas:0", "replicas:6", "fsync, replicas:1"])
async def test_what_is_no_level(relay: Served, asked: str) -> None:
    """It is refused by the field's name, with what to write, and nothing is stored."""
    calls = [
        relay.timers.Schedule(request("a", asked)),
        relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=[spec("a")], durability=asked)),
        relay.timers.ScheduleColumns(columns("a", durability=asked)),
        relay.timers.Cancel(CancelRequest(topic="t", timer_id="a", durability=asked)),
    ]
    for call in calls:
        assert await invalid_field(call) == "durability"
    assert await relay.engine.get("t", "a") is None


async def test_calls_that_wait_do_not_wait_for_each_other(
    relay: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Store calls of a level that takes a second are not held up by those before them; and what no store call
    takes any more is bounded."""
    monkeypatch.setattr(engine, "DURABLE_AT_ONCE", 5)
    monkeypatch.setattr(engine, "MOST_DURABLE", 2)
    slow = relay.store.hold("schedule", times=5)
    calls = []
    for number in range(5):
        calls.append(asyncio.ensure_future(relay.timers.Schedule(request(f"{number}", "fsync"))))
        await until(lambda: relay.store.count("schedule") == len(calls))
    assert (await relay.timers.Schedule(request("stored"))).reached == ""
    queued = relay.engine._schedules[FSYNC]
    calls.append(asyncio.ensure_future(relay.timers.Schedule(request("in hand", "fsync"))))
    await until(lambda: any(lane._in_hand for lane in queued._lanes.all))
    for number in range(2):
        calls.append(asyncio.ensure_future(relay.timers.Schedule(request(f"waits{number}", "fsync"))))
        await until(lambda: queued.waiting == number + 1)  # noqa: B023
    code, message, _ = await refused(relay.timers.Schedule(request("more", "fsync")))
    assert (code, message) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "2 timers wait already until Redis takes them; try again later",
    )
    slow.open()
    for answer in await asyncio.gather(*calls):
        assert answer.reached == "fsync"


async def test_the_ok_waits_and_others_do_not(disk: RunningServer) -> None:
    """Calls at `fsync` are answered once the server's disk has them, those at `stored` meanwhile."""
    async with relay_at(disk) as relay:
        disk.control.config_set("appendfsync", "no")
        slow = asyncio.ensure_future(relay.timers.Schedule(request("a", "fsync")))
        await until(lambda: disk.control.info("clients")["blocked_clients"])
        for name in ("b", "c"):
            assert (await relay.timers.Schedule(request(name))).reached == ""
        await relay.timers.Cancel(CancelRequest(topic="t", timer_id="b"))
        assert not slow.done()
        disk.control.config_set("appendfsync", "everysec")
        assert (await slow).reached == "fsync"


async def test_not_durable_in_time(disk: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """UNAVAILABLE with the reason, a pause, and what stands; a repeat is OK."""
    async with relay_at(disk) as relay:
        disk.control.config_set("appendfsync", "no")
        with monkeypatch.context() as during:
            waits_briefly(during)
            code, message, (retry, info) = await refused(relay.timers.Schedule(request("a", "fsync")))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert isinstance(retry, error_details_pb2.RetryInfo)
        assert isinstance(info, error_details_pb2.ErrorInfo)
        assert (info.reason, info.domain) == ("NOT_DURABLE", "relay")
        assert "repeat" in message
        assert await relay.engine.get("t", "a") is not None
        assert relay.engine.ready() == []  # Redis has answered, and is not away
        disk.control.config_set("appendfsync", "everysec")
        assert (await relay.timers.Schedule(request("a", "fsync"))).reached == "fsync"


@pytest.mark.slow
async def test_a_caller_whose_time_is_shorter_than_that_of_others() -> None:
    """Two callers share a script call, which waits for as long as the last of them. The one whose time ends
    first is told that it is not durable, and not that nothing is known of its call."""
    ends = CallEnds()

    async def ask(relay: Served, name: str, seconds: float) -> None:
        with ends.bound(monotonic() + seconds):
            await relay.engine.schedule("t", Timer(name, b"", delay=3_600_000_000), REPLICA)

    with replicated() as (master, replica):
        async with relay_at(master) as relay:
            await ask(relay, "warm", PATIENCE)
            replica.freeze()
            patient = asyncio.ensure_future(ask(relay, "patient", PATIENCE))
            # Half of what a durable call may take, and enough to be on its way.
            with pytest.raises(DurabilityMissed):
                await ask(relay, "hasty", 5.0)
            assert await relay.engine.get("t", "hasty") is not None
            assert not patient.done()
            replica.thaw()
            await patient


async def test_a_batch_tells_it_of_each_timer(disk: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay_at(disk) as relay:
        disk.control.config_set("appendfsync", "no")
        waits_briefly(monkeypatch)
        timers = [spec(f"{n}", delay=AN_HOUR) for n in range(3)]
        batch, by_columns = await asyncio.gather(
            relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=timers, durability="fsync")),
            relay.timers.ScheduleColumns(columns("x", durability="fsync")),
        )
        errors = [*(result.error for result in batch.results), by_columns.errors[0]]
        assert {(error.code, error.reason) for error in errors} == {(14, "NOT_DURABLE")}
        assert len(errors) == 4


async def test_what_the_server_can_t_give(disk: RunningServer) -> None:
    """FAILED_PRECONDITION with what to do, and nothing is stored."""
    async with relay_at(disk) as relay:
        code, message, _ = await refused(relay.timers.Schedule(request("a", "fsync+replicas:1")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "durability: fsync+replicas:1 needs 1 replica" in message
        assert await relay.engine.get("t", "a") is None


async def test_the_python_client(disk: RunningServer) -> None:
    """It asks by the same words, and reads what was reached."""
    async with relay_at(disk) as relay, RelayClient(relay.server.address, timeout=PATIENCE) as client:
        timer = await client.schedule("t", b"", delay=3600, timer_id="a", durability="fsync")
        assert timer.durability == "fsync"
        assert (await client.schedule("t", b"", delay=3600)).durability == "stored"
        new = [NewTimer(topic="t", payload=b"", delay=3600, headers=each) for each in ({}, {"a": "b"})]
        for some in ([new[0]] * 2, new):  # by columns, and one by one
            for result in await client.schedule_batch(some, durability="fsync"):
                assert result.timer is not None
                assert result.timer.durability == "fsync"
        assert (await client.cancel("t", "a", durability="fsync")).durability == "fsync"


@pytest.mark.slow
async def test_the_python_client_repeats_what_is_not_durable() -> None:
    """Until its time is over, and then it says so."""
    early = CallTime(PATIENCE, lambda: 0.7)  # for a busy machine: gRPC would end the call before the relay
    with replicated() as (master, replica):
        async with (
            relay_at(master, early) as relay,
            RelayClient(relay.server.address, timeout=PATIENCE) as client,
        ):
            replica.freeze()
            said: set[type] = set()
            for _ in range(10):  # on a busy machine its own deadline, or the relay's, may come first
                with pytest.raises((Unavailable, DeadlineExceeded)) as caught:
                    await client.schedule(
                        "t", b"", delay=9, timer_id="a", durability="replicas:1", timeout=4.0
                    )
                said.add(caught.type)
                if NotDurable in said:
                    break
            assert NotDurable in said
            repeated = asyncio.create_task(
                client.schedule("t", b"", delay=3600, timer_id="a", durability="replicas:1")
            )
            await until(lambda: calls_of(master, "wait") > 2)
            replica.thaw()
            assert (await repeated).durability == "replicas:1"


def calls_of(server: RunningServer, command: str) -> int:
    return int(server.control.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])
