"""What stands in for a relay answers as a relay does: the commands' double, and the client's scripted relay.

Each case runs on a served relay on Valkey and on the doubles, for what a double says by itself. What a test
tells it to say, a refusal for instance, is that test's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as pb
from relay.v1 import topic_service_pb2 as topic_pb
from relay.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.cli.double import running_double
from tests.client.scripted_relay import ScriptedRelay, serve, socket_target
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.doubled import without_content
from tests.worlds.engine.served import Served, on_server, put
from tests.worlds.engine.stubs import REJECT, Stream, at, refused, settlement, spec
from tests.worlds.waiting import PATIENCE

HOUR = Duration(seconds=3600)
LATER = at(4_000_000_000)
CREATED, REPLACED = timer_pb2.CHANGE_RESULT_CREATED, timer_pb2.CHANGE_RESULT_REPLACED


@asynccontextmanager
async def commands_double() -> AsyncIterator[grpc.aio.Channel]:
    with running_double() as double:
        async with grpc.aio.insecure_channel(double.target) as channel:
            yield channel


@pytest.fixture(params=["relay", "double", "scripted"])
async def timers(
    request: pytest.FixtureRequest, valkey: RunningServer, tmp_path: Path
) -> AsyncIterator[TimerServiceStub]:
    """The service of a relay, of the double that commands meet, and of the one that the client meets."""
    if request.param == "relay":
        async with on_server(valkey.url) as relay:
            yield relay.timers
    elif request.param == "double":
        async with commands_double() as channel:
            yield TimerServiceStub(channel)
    else:
        target = socket_target(tmp_path)
        async with serve(target), grpc.aio.insecure_channel(target) as channel:
            yield TimerServiceStub(channel)


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


async def test_schedule_and_get(timers: Any, topic: str) -> None:
    """A timer is created, then replaced; its answer has no content, and `GetTimer` has all of it."""
    told = {"payload": b"hello", "headers": {"k": "v"}, "content_type": "text/plain", "due_time": LATER}
    for result in (CREATED, REPLACED):
        answer = await timers.Schedule(pb.ScheduleRequest(timer=spec("a", topic=topic, **told)))
        assert (answer.result, answer.replaced) == (result, result == REPLACED)
        assert (answer.timer.topic, answer.timer.timer_id, answer.timer.due_time) == (topic, "a", LATER)
        assert without_content(answer.timer) == answer.timer
    found = (await timers.GetTimer(pb.GetTimerRequest(topic=topic, timer_id="a"))).timer
    assert (found.payload, dict(found.headers), found.content_type) == (b"hello", {"k": "v"}, "text/plain")
    assert (found.due_time, found.next_claim_time) == (LATER, LATER)
    assert (found.state, found.attempts) == (timer_pb2.TIMER_STATE_PENDING, 0)


async def test_cancel(timers: Any, topic: str) -> None:
    """It says whether there was one."""
    await timers.Schedule(pb.ScheduleRequest(timer=spec("a", topic=topic, delay=HOUR)))
    for result in (timer_pb2.CHANGE_RESULT_CANCELLED, timer_pb2.CHANGE_RESULT_NOT_FOUND):
        answer = await timers.Cancel(pb.CancelRequest(topic=topic, timer_id="a"))
        cancelled = result == timer_pb2.CHANGE_RESULT_CANCELLED
        assert (answer.cancelled, answer.result) == (cancelled, result)


async def test_a_timer_that_is_not_there(timers: Any, topic: str) -> None:
    code, message, _ = await refused(timers.GetTimer(pb.GetTimerRequest(topic=topic, timer_id="none")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert message


async def test_pages(timers: Any, topic: str) -> None:
    """Each timer once, without content, whatever the pages are."""
    for name in "abc":
        new = spec(name, topic=topic, delay=HOUR, payload=b"x")
        await timers.Schedule(pb.ScheduleRequest(timer=new))
    found: list[timer_pb2.Timer] = []
    token = ""
    while True:
        page = await timers.ListTimers(pb.ListTimersRequest(topic=topic, page_size=2, page_token=token))
        assert len(page.timers) <= 2
        found += page.timers
        if not (token := page.next_page_token):
            break
    assert sorted(timer.timer_id for timer in found) == ["a", "b", "c"]
    assert [without_content(timer) for timer in found] == found
    assert all(timer.state == timer_pb2.TIMER_STATE_PENDING for timer in found)


# ------------------------------------------------------------------ what only the client asks


class Talk(NamedTuple):
    """A way to a relay's streams, and what it is made to say on one."""

    channel: grpc.aio.Channel
    deliver: Callable[..., Awaitable[None]]
    drain: Callable[[], Awaitable[None]]


@pytest.fixture(params=["relay", "scripted"])
async def talk(request: pytest.FixtureRequest, valkey: RunningServer, tmp_path: Path) -> AsyncIterator[Talk]:
    if request.param == "relay":
        async with on_server(valkey.url) as relay, anyio.create_task_group() as tasks:

            async def due(*names: str, topic: str) -> None:
                await put(relay, *names, topic=topic, payload=b"x", headers={"k": "v"}, content_type="y/z")

            async def stop() -> None:
                tasks.start_soon(relay.engine.drain, PATIENCE)

            yield Talk(relay.channel, due, stop)
        return
    target = socket_target(tmp_path)
    async with (
        serve(target, ScriptedRelay(columns=True)) as script,
        grpc.aio.insecure_channel(target) as channel,
    ):

        async def deliver(*names: str, topic: str) -> None:
            link = await script.link()
            await link.deliver(*names, topic=topic, payload=b"x", headers={"k": "v"}, content_type="y/z")

        async def drain() -> None:
            await (await script.link()).drain()

        yield Talk(channel, deliver, drain)


@pytest.mark.parametrize("columns", [False, True])
async def test_a_stream(talk: Talk, topic: str, columns: bool) -> None:
    """It opens, delivers in the shape that was asked for, hears an outcome, drains, and ends in order."""
    stream = Stream(DeliveryServiceStub(talk.channel).Deliver())
    await stream.open(topic, columns=columns)
    assert stream.frames[0].opened.acknowledged
    await talk.deliver("a", topic=topic)
    told = await stream.next()
    assert told.WhichOneof("message") == ("columns" if columns else "deliveries")
    if columns:
        batch = told.columns
        assert (batch.topic, batch.content_type, dict(batch.headers)) == (topic, "y/z", {"k": "v"})
        assert [*zip(batch.timer_ids, batch.payloads, batch.attempts, strict=True)] == [("a", b"x", 1)]
        assert len(batch.due_times_us) == len(batch.lease_deadlines_us) == len(batch.occurrence_ids) == 1
        (token,) = batch.tokens
    else:
        (one,) = told.deliveries.deliveries
        assert (one.topic, one.content_type, dict(one.headers)) == (topic, "y/z", {"k": "v"})
        assert (one.timer_id, one.payload, one.attempt) == ("a", b"x", 1)
        assert one.HasField("due_time")
        token = one.token
    await stream.settle(settlement(token), received=[token])
    await talk.drain()
    assert (await stream.next()).WhichOneof("message") == "drain"
    assert await stream.finish() == []


# --------------------------------------------------------------------- what only commands ask


Kill = Callable[[str, str], Awaitable[str]]
"""Lets a timer of a topic die; answers the letter's `dead_id`."""


async def killed(relay: Served, topic: str, timer_id: str) -> str:
    await relay.timers.Schedule(pb.ScheduleRequest(timer=spec(timer_id, topic=topic, payload=b"x")))
    stream = await relay.stream().open(topic)
    await stream.settle(settlement((await stream.delivery()).token, REJECT, reason="boom"))
    await stream.finish()
    listed = topic_pb.ListDeadLettersRequest(topic=topic)
    letters = (await TopicServiceStub(relay.channel).ListDeadLetters(listed)).dead_letters
    return str(next(letter.dead_id for letter in letters if letter.timer_id == timer_id))


@pytest.fixture(params=["relay", "double"])
async def asked(
    request: pytest.FixtureRequest, valkey: RunningServer
) -> AsyncIterator[tuple[Any, Any, Kill]]:
    """Both services, and how timers die there."""
    if request.param == "relay":
        async with on_server(valkey.url) as relay:

            async def kill(topic: str, timer_id: str) -> str:
                return await killed(relay, topic, timer_id)

            yield relay.timers, TopicServiceStub(relay.channel), kill
        return
    with running_double() as double:

        async def die(topic: str, timer_id: str) -> str:
            return double.topics.die(topic, timer_id, payload=b"x")

        async with grpc.aio.insecure_channel(double.target) as channel:
            yield TimerServiceStub(channel), TopicServiceStub(channel), die


async def test_create_only_and_run(asked: tuple[Any, Any, Kill], topic: str) -> None:
    timers, _, _ = asked
    await timers.Schedule(pb.ScheduleRequest(timer=spec("a", topic=topic, due_time=LATER)))
    again = pb.ScheduleRequest(timer=spec("a", topic=topic, delay=HOUR), mode=pb.SCHEDULE_MODE_CREATE)
    answer = await timers.Schedule(again)
    assert (answer.result, answer.replaced) == (timer_pb2.CHANGE_RESULT_UNCHANGED, False)
    assert answer.timer.due_time == LATER
    ran = await timers.RunTimer(pb.RunTimerRequest(topic=topic, timer_id="a"))
    assert ran.result == timer_pb2.CHANGE_RESULT_RUN
    code, _, _ = await refused(timers.RunTimer(pb.RunTimerRequest(topic=topic, timer_id="none")))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_pause_and_resume(asked: tuple[Any, Any, Kill], topic: str) -> None:
    _, topics, _ = asked
    for more in ({}, {"duration": HOUR}, {"until": LATER}):
        paused = (await topics.PauseTopic(topic_pb.PauseTopicRequest(topic=topic, **more))).topic
        assert (paused.topic, paused.paused, paused.HasField("paused_until")) == (topic, True, bool(more))
        assert "until" not in more or paused.paused_until == LATER
    assert (await topics.GetTopic(topic_pb.GetTopicRequest(topic=topic))).topic.paused
    resumed = (await topics.ResumeTopic(topic_pb.ResumeTopicRequest(topic=topic))).topic
    assert (resumed.paused, resumed.HasField("paused_until")) == (False, False)


async def test_dead_letters(asked: tuple[Any, Any, Kill], topic: str) -> None:
    """Listed without content and read with it; brought back once, and purged once."""
    _, topics, kill = asked
    dead = {name: await kill(topic, name) for name in "abc"}
    listed = (
        await topics.ListDeadLetters(topic_pb.ListDeadLettersRequest(topic=topic, page_size=2))
    ).dead_letters
    assert [(each.timer_id, each.dead_id, each.payload) for each in listed] == [
        (name, dead[name], b"") for name in "ab"
    ]
    whole = topic_pb.GetDeadLetterRequest(topic=topic, dead_id=dead["a"])
    assert (await topics.GetDeadLetter(whole)).dead_letter.payload == b"x"
    ids = [dead["a"], "1-1"]
    redrive = topic_pb.RedriveDeadLettersRequest(topic=topic, dead_ids=ids)
    assert list((await topics.RedriveDeadLetters(redrive)).results) == [
        topic_pb.REDRIVE_RESULT_REDRIVEN,
        topic_pb.REDRIVE_RESULT_NOT_FOUND,
    ]
    code, _, _ = await refused(topics.GetDeadLetter(whole))
    assert code is grpc.StatusCode.NOT_FOUND
    for purged in (2, 0):
        request = topic_pb.PurgeDeadLettersRequest(topic=topic, dead_ids=[dead["b"], dead["c"]])
        assert (await topics.PurgeDeadLetters(request)).purged == purged
    assert (await topics.GetTopic(topic_pb.GetTopicRequest(topic=topic))).topic.dead == 0
