"""Each method that changes something by a person's hand is recorded, and no other one is.

The methods are those of the protos, so that a new one can't be forgotten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from relay.client.calls.channel import METHODS as CLIENT
from relay.core.errors import StoreUnavailable
from relay.core.trust.actions import Action
from relay.core.trust.sealing import subject_id
from relay.core.trust.verbs import AccessVerb
from relay.store.keys import KeyNames
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from relay.v1.topic_service_pb2 import PurgeDeadLettersRequest
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.trust.required import METHODS, OF_APPLICATIONS, OPERATE
from tests.trust.test_every_call_asks import called, methods, seed
from tests.trust.whole import Whole, whole
from tests.worlds.waiting import PATIENCE

RECURRENCE = {"recurrence_id": "r"}
REQUESTS: dict[str, dict[str, Any]] = {
    "RunTimer": {"timer_id": "seed"},
    "PauseTopic": {},
    "ResumeTopic": {},
    "RedriveDeadLetters": {"dead_ids": ["1-0"]},
    "PurgeDeadLetters": {"dead_ids": ["1-0"]},
    "ForgetSubject": {"subject": "ann"},
    "PutCalendar": {"calendar": {"name": "de", "dates": ["2026-12-25"]}},
    "DeleteCalendar": {"name": "de"},
    "PutRecurrence": {"recurrence": {"recurrence_id": "r", "rule": {"every": {"seconds": 3600}}}},
    "PauseRecurrence": RECURRENCE,
    "ResumeRecurrence": RECURRENCE,
    "TriggerRecurrence": RECURRENCE,
    "BackfillRecurrence": {**RECURRENCE, "start_time": {"seconds": 0}, "end_time": {"seconds": 9}},
    "DeleteRecurrence": RECURRENCE,
    "ReshardTopic": {"partitions": 2},
}
"""A request of each method that is recorded, in an order in which they can be called."""

BY_APPLICATIONS = {"PutRecurrence", "DeleteRecurrence"}
"""What is recorded though the verb is `schedule`: they change what comes again and again."""


def by_hand(method: MethodDescriptor) -> bool:
    """Whether a method is to be recorded: it changes something, and people's verbs allow it."""
    service = method.containing_service.name
    if service in OF_APPLICATIONS or service == "DeliveryService":
        return False
    (changes,) = (each.changes for each in CLIENT if each.name == method.name)
    verb = METHODS[service][method.name]
    return changes and (verb in (OPERATE, AccessVerb.ADMIN) or method.name in BY_APPLICATIONS)


def request_of(method: MethodDescriptor, topic: str) -> Any:
    found: Any = message_factory.GetMessageClass(method.input_type)(**REQUESTS[method.name], note="why")
    if method.name == "PutRecurrence":
        found.recurrence.topic = topic
    elif "Calendar" not in method.name:
        found.topic = topic
    return found


@asynccontextmanager
async def daemon(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Whole, grpc.aio.Channel, RedisActions]]:
    """A daemon that allows everything, its topic, and the record."""
    keyspace.allow("timers_*")
    valkey.client().delete(KeyNames().actions)
    async with (
        whole(valkey, keyspace(), monkeypatch) as there,
        grpc.aio.insecure_channel(there.listening.grpc) as channel,
        Server(valkey.url, timeout=PATIENCE, connections=1) as server,
    ):
        await seed(channel, there)
        await server.ask(
            "HSET", server.keys.key("subjects", there.topic), subject_id(there.topic, "ann"), "its key"
        )
        yield there, channel, RedisActions(server)


async def entries(record: RedisActions) -> list[Action]:
    return [each async for each in record.behind("0-0")]


def test_each_method_that_changes_something_has_a_request() -> None:
    """A new method fails here: record it in relay/api, and give it a request above."""
    assert {each.name for each in methods() if by_hand(each)} == REQUESTS.keys()


async def test_each_is_recorded(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an entry before its effect and one behind it."""
    async with daemon(valkey, keyspace, monkeypatch) as (there, channel, record):
        described = {each.name: each for each in methods()}
        for name in REQUESTS:
            before = len(await entries(record))
            method = described[name]
            request = request_of(method, there.topic)
            answers = message_factory.GetMessageClass(method.output_type)
            path = f"/{method.containing_service.full_name}/{name}"
            call: Any = channel.unary_unary(path, type(request).SerializeToString, answers.FromString)
            await call(request, timeout=PATIENCE)
            began, ended = (await entries(record))[before:]
            assert (began.method, began.outcome, ended.outcome) == (name, "", "OK"), name
            assert ended.began == began.entry, name
            assert {began.note, ended.note} == {"why"}, name
            assert began.verb == METHODS[method.containing_service.name][name], name
            assert began.topic == ("*" if "Calendar" in name else there.topic), name
            assert began.before, name
            assert ended.after, name


async def test_no_other_is_recorded(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads and what timers ask for costs nothing more."""
    async with daemon(valkey, keyspace, monkeypatch) as (there, channel, record):
        for method in methods():
            if method.containing_service.name not in OF_APPLICATIONS and not by_hand(method):
                await called(channel, method, there.topic)
        assert await entries(record) == []


async def test_who_can_t_know_how_a_topic_stands_acts_all_the_same(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a node of a Cluster is away that has another part of the topic."""

    async def away(*_: object) -> object:
        raise StoreUnavailable("a node is away")

    async with daemon(valkey, keyspace, monkeypatch) as (there, channel, record):
        monkeypatch.setattr(PartitionedTopics, "stats", away)
        stub = TopicServiceStub(channel)
        request = PurgeDeadLettersRequest(topic=there.topic, dead_ids=["1-0"])
        await stub.PurgeDeadLetters(request, timeout=PATIENCE)
        began, ended = await entries(record)
    assert (began.before, ended.outcome, ended.after) == ("not known", "OK", "0 purged")
