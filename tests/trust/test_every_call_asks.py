"""Each method of each service, and each operation over HTTP, asks the policy for its verb.

All verbs but that one deny it, and that one alone allows it.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

import relay.v1
from relay.client import CallError, InvalidArgument, NewTimer, RelayClient
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.verbs import AccessVerb
from relay.v1.timer_service_pb2 import ScheduleRequest
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from relay.web.routes import OPERATIONS
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.trust.required import BODIES, METHODS, OF_APPLICATIONS, READ, WEB
from tests.trust.whole import Whole, whole
from tests.worlds.waiting import PATIENCE


def methods() -> Iterator[MethodDescriptor]:
    """All that the protos say."""
    for module in pkgutil.iter_modules(relay.v1.__path__):
        if module.name.endswith("_pb2"):
            described = importlib.import_module(f"relay.v1.{module.name}").DESCRIPTOR
            for service in described.services_by_name.values():
                yield from service.methods


def named(message: Message, topic: str) -> Message:
    """Name the topic wherever the message can; each list of messages has one."""
    for field in message.DESCRIPTOR.fields:
        if field.name in ("topic", "topics") and field.type == FieldDescriptor.TYPE_STRING:
            if field.name == "topic":
                setattr(message, field.name, topic)
            else:
                getattr(message, field.name).append(topic)
        elif field.name in ("timer", "recurrence", "open"):
            named(getattr(message, field.name), topic)
        elif field.name == "timers":
            named(getattr(message, field.name).add(), topic)
    return message


def test_each_method_has_its_verb() -> None:
    """A new method without one fails here: say in METHODS which it needs, and ask for it in relay/api."""
    found: dict[str, set[str]] = {}
    for method in methods():
        if method.containing_service.name not in OF_APPLICATIONS:
            found.setdefault(method.containing_service.name, set()).add(method.name)
    assert found == {service: set(verbs) for service, verbs in METHODS.items()}
    assert {operation.name for operation in OPERATIONS} == WEB.keys()


async def called(
    channel: grpc.aio.Channel, method: MethodDescriptor, topic: str
) -> tuple[grpc.StatusCode, str, Any]:
    """Call a method; the status, what it says, and the answer."""
    request: Any = named(message_factory.GetMessageClass(method.input_type)(), topic)
    answers = message_factory.GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    how: Callable[..., Any] = channel.stream_stream if method.client_streaming else channel.unary_unary
    call = how(path, type(request).SerializeToString, answers.FromString)
    try:
        if not method.client_streaming:
            return grpc.StatusCode.OK, "", await call(request, timeout=PATIENCE)
        request.open.max_outstanding = 1
        stream = call(timeout=PATIENCE)
        await stream.write(request)
        answer = await stream.read()
        if answer is grpc.aio.EOF:
            return await stream.code(), await stream.details(), None
        stream.cancel()
        return grpc.StatusCode.OK, "", answer
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or "", None


async def test_each_method_needs_its_verb(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyspace.allow("timers_*")
    async with (
        whole(valkey, keyspace(), monkeypatch) as daemon,
        grpc.aio.insecure_channel(daemon.listening.grpc) as channel,
    ):
        for method in methods():
            if method.containing_service.name in OF_APPLICATIONS:
                continue
            needed = METHODS[method.containing_service.name][method.name]
            for allowed in daemon.allow_each(needed):
                code, said, answer = await called(channel, method, daemon.topic)
                what = f"{method.name} when {needed} is {'allowed' if allowed else 'denied'}"
                if method.name == "ListTopics":  # it leaves out what may not be read
                    assert bool(answer.topics) is allowed, what
                elif method.name == "ScheduleBatch":
                    denied = answer.results[0].error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
                    assert denied is not allowed, what
                else:
                    assert (code is not grpc.StatusCode.PERMISSION_DENIED) is allowed, f"{what}: {said}"
                    if not allowed:
                        asked = EVERY_TOPIC if "Calendar" in method.name else daemon.topic
                        assert (
                            said == f"the policy does not give anonymous the verb {needed} on topic {asked!r}"
                        )
                if method.name == "ScheduleBatch":  # its timers had no time, so none was stored
                    await seed(channel, daemon)


async def seed(channel: grpc.aio.Channel, daemon: Whole) -> None:
    """Let there be the topic."""
    daemon.allow(*AccessVerb)
    request = ScheduleRequest()
    request.timer.topic, request.timer.timer_id, request.timer.payload = daemon.topic, "seed", b"secret"
    request.timer.delay.seconds = 3600
    await TimerServiceStub(channel).Schedule(request)


async def test_each_operation_over_http_needs_its_verb(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyspace.allow("timers_*")
    async with whole(valkey, keyspace(), monkeypatch) as daemon:
        for operation in sorted(OPERATIONS, key=lambda each: each.name != "timers_put"):
            needed = WEB[operation.name]
            if needed is None:
                continue
            path = operation.path.replace("{topic}", daemon.topic)
            for place in operation.places:
                path = path.replace(f"{{{place}}}", "x")
            for allowed in daemon.allow_each(needed):
                status, answer = await daemon.web(operation.method, path, BODIES.get(operation.name, {}))
                what = f"{operation.name} when {needed} is {'allowed' if allowed else 'denied'}: {answer}"
                if operation.name == "topics_page":
                    assert [each["topic"] for each in answer["topics"]] == [daemon.topic] * allowed, what
                elif operation.name == "timers_batch":
                    assert ("error" in answer["results"][0]) is not allowed, what
                else:
                    assert (status != 403) is allowed, what
                    assert status < 500, what


async def test_a_denied_call_does_not_tell_whether_there_is_such_a_topic(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is listed, what is said and what is answered is as for one who may see nothing else."""
    keyspace.allow("timers_*")
    async with (
        whole(valkey, keyspace(), monkeypatch) as daemon,
        grpc.aio.insecure_channel(daemon.listening.grpc) as channel,
    ):
        await seed(channel, daemon)
        daemon.allow(*AccessVerb, topic="other")
        for method in methods():
            if method.containing_service.name in OF_APPLICATIONS or method.name == "ScheduleBatch":
                continue
            there = await called(channel, method, daemon.topic)
            not_there = await called(channel, method, "nobody-s")
            assert there[0] is not_there[0]
            assert there[1].replace(daemon.topic, "nobody-s") == not_there[1]
        daemon.allow(READ)
        path = f"/v1/topics/{daemon.topic}/timers/seed"
        _, answer = await daemon.web("GET", path, None)
        assert (answer["timer"]["payload"], answer["timer"]["content_withheld"]) == ("", True)
        async with RelayClient(daemon.listening.grpc) as client:
            found = await client.get(daemon.topic, "seed")
            assert found is not None
            assert (found.payload, found.content_withheld) == (b"", True)
        daemon.allow(READ, AccessVerb.PAYLOAD)
        _, answer = await daemon.web("GET", path, None)
        assert answer["timer"]["payload"] == "c2VjcmV0"
        assert "content_withheld" not in answer["timer"]


async def test_calendars_are_for_those_who_may_read_them(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview shows a calendar's dates, and a guess its name, to nobody who may not read calendars."""
    keyspace.allow("timers_*")
    async with whole(valkey, keyspace(), monkeypatch) as daemon, RelayClient(daemon.listening.grpc) as client:
        daemon.allow(*AccessVerb)
        await client.calendars.put("holidays", ["2026-12-25"])
        rule: dict[str, Any] = {"cron": "0 0 * * *", "calendars": ["holidays"], "topic": daemon.topic}
        wrong = {**rule, "calendars": ["holiday"]}
        assert await client.recurrences.preview(**rule)
        with pytest.raises(InvalidArgument, match="the nearest name is 'holidays'"):
            await client.recur("r", topic=daemon.topic, cron="0 0 * * *", calendars=["holiday"])
        daemon.allow(*AccessVerb, topic=daemon.topic)
        for named in (rule, wrong):
            with pytest.raises(CallError, match=r"PERMISSION_DENIED: .* the verb read on topic '\*'"):
                await client.recurrences.preview(**named)
        assert await client.recurrences.preview(cron="0 0 * * *", topic=daemon.topic)
        with pytest.raises(InvalidArgument, match="there is no calendar 'holiday'; put it first") as told:
            await client.recur("r", topic=daemon.topic, cron="0 0 * * *", calendars=["holiday"])
        assert told.value.field == "calendars[0]"


@pytest.mark.usefixtures("one_try")
async def test_a_batch_that_is_denied_is_one_line(
    valkey: RunningServer,
    keyspace: Keyspace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many timers and topics it has; each timer counts."""
    keyspace.allow("timers_*")
    denied: list[str] = []
    async with whole(valkey, keyspace(), monkeypatch) as daemon, RelayClient(daemon.listening.grpc) as client:
        daemon.access._denied = denied.append
        daemon.allow(AccessVerb.READ)
        timers = [NewTimer(topic=f"t{number}", payload=b"", delay=1) for number in range(300)]
        with caplog.at_level(logging.INFO):
            results = await client.schedule_batch(timers)
    assert all("PERMISSION_DENIED" in str(result.error) for result in results)
    assert len(denied) == 300
    (line,) = (each for each in caplog.records if "denied" in each.getMessage())
    assert (line.denied, len(line.topics)) == (300, 10)  # type: ignore[attr-defined]
