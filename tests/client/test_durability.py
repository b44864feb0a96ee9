"""Every call of the clients that changes something asks for a durability, and reads what was reached."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message

from relay.client import FailedPrecondition, RelayClient, SyncRelayClient
from relay.client.calls import channel
from relay.client.calls.channel import Method

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NAMED = ("t", "r")

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "Schedule": lambda client, level: client.schedule("t", b"", delay=9, durability=level),
    "Cancel": lambda client, level: client.cancel("t", "a", durability=level),
    "RunTimer": lambda client, level: client.run_timer("t", "a", durability=level),
    "PauseTopic": lambda client, level: client.topics.pause("t", durability=level),
    "ResumeTopic": lambda client, level: client.topics.resume("t", durability=level),
    "RedriveDeadLetters": lambda client, level: client.topics.redrive("t", ["1-0"], durability=level),
    "PurgeDeadLetters": lambda client, level: client.topics.purge("t", ["1-0"], durability=level),
    "ForgetSubject": lambda client, level: client.topics.forget_subject("t", "s", durability=level),
    "PutRecurrence": lambda client, level: client.recur("r", topic="t", every=60, durability=level),
    "PauseRecurrence": lambda client, level: client.recurrences.pause(*NAMED, durability=level),
    "ResumeRecurrence": lambda client, level: client.recurrences.resume(*NAMED, durability=level),
    "TriggerRecurrence": lambda client, level: client.recurrences.trigger(*NAMED, durability=level),
    "BackfillRecurrence": lambda client, level: client.recurrences.backfill(
        *NAMED, LONG_AGO, datetime.now(UTC), durability=level
    ),
    "DeleteRecurrence": lambda client, level: client.recurrences.delete(*NAMED, durability=level),
    "PutCalendar": lambda client, level: client.calendars.put("c", [], durability=level),
    "DeleteCalendar": lambda client, level: client.calendars.delete("c", durability=level),
}
ELSEWHERE = {"ScheduleBatch", "ScheduleColumns", "ReshardTopic"}
"""Batches are tested with a relay, and a reshard has none."""


class Recorded:
    """A relay that says yes; an old one does not know what a durability is."""

    def __init__(self, *, old: bool) -> None:
        self._old = old
        self.asked: list[tuple[str, str]] = []

    def answer(self, method: Method[Any, Any], request: Any) -> Message:
        self.asked.append((method.name, request.durability))
        answer = method.response()
        if not self._old:
            answer.reached = request.durability
        return answer  # type: ignore[no-any-return]


class Wire(Recorded):
    async def call(self, method: Method[Any, Any], request: Any, timeout: float) -> Message:
        return self.answer(method, request)

    async def close(self) -> None:
        pass


class SyncWire(Recorded):
    def call(self, method: Method[Any, Any], request: Any, timeout: float) -> Message:
        return self.answer(method, request)

    def close(self) -> None:
        pass


def test_all_of_them() -> None:
    """A call that comes later is not left out."""
    methods = [each for each in vars(channel).values() if isinstance(each, Method)]
    assert {each.name for each in methods if each.changes} == set(CALLS) | ELSEWHERE


@pytest.mark.parametrize("name", CALLS)
async def test_it_asks(name: str) -> None:
    for level in ("fsync", ""):
        client = RelayClient("127.0.0.1:1")
        wire = client.double = Wire(old=False)
        async with client:
            await CALLS[name](client, level)
        assert wire.asked == [(name, level)]
        blocking = SyncRelayClient("127.0.0.1:1")
        sync_wire = blocking.double = SyncWire(old=False)
        with blocking:
            CALLS[name](blocking, level)
        assert sync_wire.asked == [(name, level)]


@pytest.mark.parametrize("name", CALLS)
async def test_a_relay_of_before(name: str) -> None:
    """It has done it, and does not know that more was asked for: that is an error."""
    client = RelayClient("127.0.0.1:1")
    client.double = Wire(old=True)
    async with client:
        with pytest.raises(FailedPrecondition, match="the relay does not know it, and the change is stored"):
            await CALLS[name](client, "replicas:1")
        await CALLS[name](client, "")
