"""Each call of the API that changes something waits for the durability that is needed. The calls are taken
from the protos, so that one that comes later can't be left out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from relay.app import put_together
from relay.core.durability import Durability
from relay.core.outcomes import ClaimRequest, Ending, Settlement, Verb
from relay.core.policy import TopicPolicy
from relay.core.timers import NewTimer
from relay.core.trust.sealing import subject_id
from relay.engine.engine import Engine
from relay.rpc import server as rpc
from relay.rpc.binding import Binding
from relay.settings import Settings
from relay.store.partitions.layouts import RedisLayouts
from relay.store.server import server as server_module
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.telemetry.metrics.catalogue import UNREADABLE
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from relay.v1 import recurrence_service_pb2 as recurring
from relay.v1 import timer_service_pb2 as timers
from relay.v1 import topic_service_pb2 as topics
from relay.v1.timer_pb2 import TimerSpec
from tests.servers import RunningServer
from tests.worlds.engine.served import LONG
from tests.worlds.engine.stubs import invalid_field
from tests.worlds.replicated import replicated
from tests.worlds.waiting import PATIENCE, until

REPLICA = Durability(replicas=1)
AN_HOUR, A_YEAR = Duration(seconds=3_600), Duration(seconds=365 * 86_400)

ONLY_READ = {
    *("GetTimer", "ListTimers", "ListTopics", "GetTopic", "ListDeadLetters", "GetDeadLetter"),
    *("Forecast", "GetTimerHistory"),
    *("GetRecurrence", "ListRecurrences", "PreviewRecurrence", "GetRecurrenceHistory"),
    *("GetCalendar", "ListCalendars"),
}
NEVER_WAIT = {"ReshardTopic"}
"""See docs/how-to/durability.md for why."""


@dataclass(frozen=True)
class Named:
    """What the calls are about: a topic, and what was made in it by `prepare`."""

    topic: str
    dead: tuple[str, str]
    """The dead letter to redrive, and that to purge."""


def changes(about: Named) -> dict[str, Any]:
    """A request for each call that changes something, each about something of its own: no two share a script
    call."""
    topic, now = about.topic, int(time.time())
    past: Any = {"start_time": Timestamp(seconds=now - 7_200), "end_time": Timestamp(seconds=now - 3_600)}
    columns: Any = {"timer_ids": ["columns"], "payloads": [b""], "delays_us": [3_600_000_000]}
    requests = [
        timers.ScheduleRequest(timer=spec(topic, "one")),
        timers.ScheduleBatchRequest(timers=[spec(f"{topic}.batch", "x")]),
        timers.ScheduleColumnsRequest(topic=f"{topic}.columns", **columns),
        timers.RunTimerRequest(topic=topic, timer_id="to run"),
        timers.CancelRequest(topic=topic, timer_id="to cancel"),
        topics.PauseTopicRequest(topic=topic, duration=AN_HOUR),
        topics.ResumeTopicRequest(topic=topic),
        topics.RedriveDeadLettersRequest(topic=topic, dead_ids=about.dead[:1]),
        topics.PurgeDeadLettersRequest(topic=topic, dead_ids=about.dead[1:]),
        topics.ForgetSubjectRequest(topic=topic, subject="ann"),
        recurring.PutRecurrenceRequest(recurrence=recurrence(topic, "new")),
        recurring.PauseRecurrenceRequest(topic=topic, recurrence_id="to pause"),
        recurring.ResumeRecurrenceRequest(topic=topic, recurrence_id="to resume"),
        recurring.TriggerRecurrenceRequest(topic=topic, recurrence_id="to trigger"),
        recurring.BackfillRecurrenceRequest(topic=topic, recurrence_id="to fill", **past),
        recurring.DeleteRecurrenceRequest(topic=topic, recurrence_id="to delete", cancel_waiting=True),
        recurring.PutCalendarRequest(calendar=recurring.Calendar(name="new", dates=["2026-12-24"])),
        recurring.DeleteCalendarRequest(name="to-delete"),
    ]
    return {type(each).__name__.removesuffix("Request"): each for each in requests}


def spec(topic: str, timer_id: str) -> TimerSpec:
    return TimerSpec(topic=topic, timer_id=timer_id, delay=AN_HOUR)


def recurrence(topic: str, name: str) -> recurring.RecurrenceSpec:
    """One that fires a year from now at the earliest, whenever the test runs: nothing ticks."""
    start = Timestamp(seconds=int(time.time()) // 86_400 * 86_400 + A_YEAR.seconds)
    rule = recurring.RecurrenceRule(every=Duration(seconds=60), start_time=start)
    return recurring.RecurrenceSpec(topic=topic, recurrence_id=name, rule=rule)


class Relay:
    """A relay on a real server, and all of its unary calls by their names."""

    def __init__(self, engine: Engine, redis: Server, address: str, channel: grpc.aio.Channel) -> None:
        self.engine, self.redis, self.address, self._channel = engine, redis, address, channel

    def call(self, name: str, request: Any) -> Any:
        method = METHODS[name]
        return self._channel.unary_unary(
            f"/{method.containing_service.full_name}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )(request, timeout=PATIENCE)

    @property
    def waiting(self) -> int:
        """How many script calls wait for the replica."""
        return self.redis._client.durable[REPLICA]._waiting

    async def prepare(self, topic: str) -> Named:
        """Make what the calls are about."""
        store, nonce, names = RedisStore(self.redis), b"n" * 16, ["dead", "deader"]
        await store.schedule(topic, [NewTimer(name, b"", delay=0) for name in names])
        await store.claim(topic, ClaimRequest(limit=2, nonce=nonce, lease=60_000_000, max_bytes=1_000))
        rejected = Settlement(nonce, Ending(Verb.REJECT), names)
        await store.settle(topic, [rejected], limits=TopicPolicy().limits)
        letters = (await self.engine.topics.dead_page(topic, limit=2, cursor="")).letters
        await self.redis.ask(
            "HSET", self.redis.keys.key("subjects", topic), subject_id(topic, "ann"), "its key"
        )
        for name in ("to run", "to cancel"):
            await self.call("Schedule", timers.ScheduleRequest(timer=spec(topic, name), durability="stored"))
        for name in ("to pause", "to resume", "to trigger", "to fill", "to delete"):
            await self.call(
                "PutRecurrence", recurring.PutRecurrenceRequest(recurrence=recurrence(topic, name))
            )
        named = {"topic": topic, "recurrence_id": "to resume"}
        await self.call("PauseRecurrence", recurring.PauseRecurrenceRequest(**named))
        calendar = recurring.Calendar(name="to-delete", dates=["2026-12-24"])
        await self.call("PutCalendar", recurring.PutCalendarRequest(calendar=calendar))
        first, second = (letter.dead_id for letter in letters)
        return Named(topic, (first, second))


METHODS = {
    method.name: method
    for file, service in (
        (timers, "TimerService"),
        (topics, "TopicService"),
        (recurring, "RecurrenceService"),
    )
    for method in file.DESCRIPTOR.services_by_name[service].methods
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than callers wait."""
    monkeypatch.setattr(server_module, "DURABLE_TTL", PATIENCE)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    """A master and its replica."""
    with replicated() as both:
        yield both


@asynccontextmanager
async def relay_at(url: str, **settings: Any) -> AsyncIterator[Relay]:
    read = Settings.model_validate(settings)
    metrics = Metrics()
    async with Server(url, timeout=PATIENCE, write_ttl=PATIENCE) as redis, anyio.create_task_group() as tasks:
        layouts = RedisLayouts(redis, lambda _: 1)
        engine = put_together(read, redis, RedisHints(redis), layouts, metrics.instruments, Tracing())
        await tasks.start(engine.run)
        served = await rpc.start(
            engine,
            binding=Binding("127.0.0.1:0", 0o600),
            bounds=read.grpc.bounds,
            call_time=LONG,
            unreadable=partial(metrics.instruments.count, UNREADABLE),
        )
        try:
            async with grpc.aio.insecure_channel(served.address) as channel:
                yield Relay(engine, redis, served.address, channel)
        finally:
            await served.stop(0)
            tasks.cancel_scope.cancel()
    metrics.close()


def test_all_of_them() -> None:
    """Each call of the protos reads, or stands in `changes`, or says why it never waits."""
    assert set(METHODS) == ONLY_READ | NEVER_WAIT | set(changes(Named("t", ("", ""))))
    for name in set(METHODS) - ONLY_READ - NEVER_WAIT - {"ScheduleBatch"}:
        assert "durability" in METHODS[name].input_type.fields_by_name
        assert "reached" in METHODS[name].output_type.fields_by_name


async def test_each_waits(pair: tuple[RunningServer, RunningServer]) -> None:
    """While the replica stands still no call is answered: not the first one, not one that finds everything
    done, whether the call has asked for it or its topic has."""
    master, replica = pair
    by_default = {"defaults": {"durability": "replicas:1"}}
    async with relay_at(master.url) as plain, relay_at(master.url, **by_default) as levelled:
        asked = changes(await plain.prepare("asked"))
        for request in asked.values():
            request.durability = "replicas:1"
        for relay, requests in (
            (plain, asked),
            (plain, asked),
            (levelled, changes(await plain.prepare("levelled"))),
        ):
            replica.freeze()
            calls = {name: asyncio.ensure_future(_told(relay, name, each)) for name, each in requests.items()}
            await until(lambda: relay.waiting == len(calls) or any(call.done() for call in calls.values()))  # noqa: B023
            early = {name: call.result() for name, call in calls.items() if call.done()}
            assert early == {}
            replica.thaw()
            assert {name: await call for name, call in calls.items()} == dict.fromkeys(calls, "replicas:1")


async def _told(relay: Relay, name: str, request: Any) -> str:
    """What the answer stands for, or why there is none."""
    try:
        answer = await relay.call(name, request)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    failures = list(answer.errors.values()) if name == "ScheduleColumns" else []
    if name == "ScheduleBatch":
        failures = [each.error for each in answer.results if each.HasField("error")]
        answer = answer.results[0].scheduled
    if failures:
        return f"{CODES[failures[0].code]}: {failures[0].message}"
    return str(answer.reached)


CODES = {code.value[0]: code.name for code in grpc.StatusCode}


async def test_what_the_server_cannot_give(pair: tuple[RunningServer, RunningServer]) -> None:
    """Each is refused by name, and nothing is changed."""
    async with relay_at(pair[0].url) as relay:
        requests = changes(await relay.prepare("kept"))
        before = content(pair[0])
        told = {}
        for name, request in requests.items():
            request.durability = "replicas:2"
            told[name] = await _told(relay, name, request)
        problem = "durability: replicas:2 needs 2 replicas, and the server has 1 that are online"
        advice = "start replicas, or ask for less"
        assert told == dict.fromkeys(requests, f"FAILED_PRECONDITION: {problem}: {advice}")
        assert content(pair[0]) == before


async def test_what_is_no_level(pair: tuple[RunningServer, RunningServer]) -> None:
    async with relay_at(pair[0].url) as relay:
        requests = changes(await relay.prepare("kept"))
        before = content(pair[0])
        for name, request in requests.items():
            request.durability = "sync"
            assert await invalid_field(relay.call(name, request)) == "durability", name
        assert content(pair[0]) == before


def content(server: RunningServer) -> dict[bytes, bytes | None]:
    """All that there is of the topic, and the calendars."""
    keys = sorted(key for key in server.control.scan_iter() if b"kept" in key or b"calendar" in key)
    assert len(keys) > 5
    return {key: server.control.dump(key) for key in keys}
