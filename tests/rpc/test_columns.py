"""ScheduleColumns: what ScheduleBatch does, for timers that are alike."""

from __future__ import annotations

from typing import Any

import pytest

from relay.api.timers import MAX_BATCH, STRETCH, TimerCalls
from relay.core.errors import StoreUnavailable
from relay.core.instants import LATEST
from relay.v1 import timer_pb2
from relay.v1.timer_service_pb2 import (
    SCHEDULE_MODE_CREATE,
    GetTimerRequest,
    ListTimersRequest,
    ScheduleBatchRequest,
    ScheduleColumnsRequest,
    ScheduleRequest,
)
from tests.keyspace import Keyspace
from tests.rpc.test_timer_service import Turns
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import MAX_PAYLOAD, at, invalid_field, spec

SECOND = 1_000_000
CREATED, REPLACED = timer_pb2.CHANGE_RESULT_CREATED, timer_pb2.CHANGE_RESULT_REPLACED


def columns(*timer_ids: str, **fields: Any) -> ScheduleColumnsRequest:
    """Timers without payload that are due in 2096, unless a column says otherwise."""
    count = len(timer_ids)
    if not {"due_times_us", "delays_us"} & fields.keys():
        fields["due_times_us"] = [4_000_000_000 * SECOND] * count
    return ScheduleColumnsRequest(
        **{"topic": "t", "timer_ids": timer_ids, "payloads": [b""] * count, **fields}
    )


def long(count: int) -> dict[str, Any]:
    """The columns of so many timers."""
    return {"timer_ids": ["x"] * count, "payloads": [b""] * count, "due_times_us": [1] * count}


async def test_stores_what_a_batch_would(any_relay: Served, keyspace: Keyspace) -> None:
    """Field by field, whether by due time or by delay; to the last microsecond of 9999."""
    timers, topic = any_relay.timers, keyspace.topic()
    shared: dict[str, Any] = {"headers": {"k": "ö", "l": ""}, "content_type": "text/plain"}
    due = {"ä": 0, "b": 4_000_000_000 * SECOND + 1, "c": LATEST}
    request = columns(
        *due, payloads=[b"1", b"\0" * 300, b""], due_times_us=due.values(), topic=topic, **shared
    )
    told = await timers.ScheduleColumns(request)
    assert list(told.due_times_us) == list(due.values())
    assert list(told.results) == [CREATED] * 3
    found = [(await timers.GetTimer(GetTimerRequest(topic=topic, timer_id=name))).timer for name in due]
    specs = [
        spec(name, topic=topic, payload=payload, due_time=at(*divmod(time * 1_000, 10**9)), **shared)
        for (name, time), payload in zip(due.items(), request.payloads, strict=True)
    ]
    batch = (await timers.ScheduleBatch(ScheduleBatchRequest(timers=specs))).results
    assert [result.scheduled.replaced for result in batch] == [True] * 3
    assert found == [
        (await timers.GetTimer(GetTimerRequest(topic=topic, timer_id=name))).timer for name in due
    ]


async def test_a_delay_is_counted_by_the_clock_of_redis(relay: Served) -> None:
    """And the answer has the due time."""
    told = await relay.timers.ScheduleColumns(
        columns("a", "b", delays_us=[3_600 * SECOND, 3_600 * SECOND + 7])
    )
    assert told.due_times_us[1] == told.due_times_us[0] + 7
    stored = await relay.store.inner.get("t", "b")
    assert stored is not None
    assert stored.due == told.due_times_us[1]


async def test_each_bad_one_fails_by_itself(any_relay: Served, keyspace: Keyspace) -> None:
    """With the code and the field that a call of its own would have; the others are stored, and of two of one
    name the later one stands."""
    names = ["a", "", "x{", "big", "early", "late", "a"]
    dues = [1, 1, 1, 1, -1, LATEST + 1, 2]
    payloads = [b"1", b"", b"", bytes(MAX_PAYLOAD + 1), b"", b"", b"2"]
    topic = keyspace.topic()
    told = await any_relay.timers.ScheduleColumns(
        columns(*names, topic=topic, due_times_us=dues, payloads=payloads)
    )
    assert {place: (error.code, error.field) for place, error in told.errors.items()} == {
        1: (3, "timer_id"),
        2: (3, "timer_id"),
        3: (3, "payload"),
        4: (3, "due_time"),
        5: (3, "due_time"),
    }
    assert told.errors[2].message == "timer_id: contains a brace; leave out { and }"
    assert list(told.results) == [CREATED, 0, 0, 0, 0, 0, REPLACED]
    assert list(told.due_times_us) == [1, 0, 0, 0, 0, 0, 2]
    listed = (await any_relay.timers.ListTimers(ListTimersRequest(topic=topic))).timers
    assert [(timer.timer_id, timer.due_time) for timer in listed] == [("a", at(0, 2_000))]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("timer_id", {"timer_ids": ["a", ""]}),
        ("timer_id", {"timer_ids": ["a", "n" * 257]}),
        ("timer_id", {"timer_ids": ["a", "é" * 129]}),
        ("timer_id", {"timer_ids": ["a", "b}"]}),
        ("timer_id", {"timer_ids": ["a", "b\n"]}),
        ("payload", {"payloads": [b"x" * MAX_PAYLOAD, b"x" * (MAX_PAYLOAD + 1)]}),
        ("due_time", {"due_times_us": [LATEST, LATEST + 1]}),
        ("due_time", {"due_times_us": [0, -1]}),
        ("delay", {"delays_us": [0, LATEST + 1]}),
        ("delay", {"delays_us": [0, -1]}),
    ],
)
async def test_one_mistake_among_what_is_right(relay: Served, field: str, fields: dict[str, Any]) -> None:
    """However alone, it is found; what is just within the limits is none."""
    told = await relay.timers.ScheduleColumns(columns(*fields.get("timer_ids", ("a", "b")), **fields))
    assert {place: error.field for place, error in told.errors.items()} == {1: field}
    assert list(told.results) == [CREATED, 0]


@pytest.mark.parametrize("delay", [-1, LATEST], ids=["negative", "ends after 9999"])
async def test_a_bad_delay_fails_by_itself(any_relay: Served, keyspace: Keyspace, delay: int) -> None:
    """The second one, Redis alone can tell."""
    request = columns("a", "b", delays_us=[delay, 60 * SECOND], topic=keyspace.topic())
    told = await any_relay.timers.ScheduleColumns(request)
    assert {place: error.field for place, error in told.errors.items()} == {0: "delay"}
    assert list(told.results) == [0, CREATED]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("topic", {"topic": ""}),
        ("topic", {"topic": "a{"}),
        ("payloads", {"payloads": [b""]}),
        ("payloads", {"payloads": [b""] * 3}),
        ("due_times_us", {"due_times_us": [1]}),
        ("due_times_us", {"due_times_us": []}),
        ("due_times_us", {"due_times_us": [1, 1], "delays_us": [1, 1]}),
        ("delays_us", {"delays_us": [1, 1, 1]}),
        ("headers", {"headers": {"": "x"}}),
        ("headers", {"headers": {"k": "x" * 65_000}, **long(300)}),
        ("headers", {"headers": {"k": "é" * 30_000}, **long(300)}),
        ("content_type", {"content_type": "text/\nplain"}),
        ("mode", {"mode": 99}),
        ("timer_ids", {"timer_ids": ["x"] * (MAX_BATCH + 1)}),
    ],
)
async def test_refuses_what_is_wrong_of_all(relay: Served, field: str, fields: dict[str, Any]) -> None:
    """As a whole, by the field; nothing is stored."""
    assert await invalid_field(relay.timers.ScheduleColumns(columns("a", "b", **fields))) == field
    assert relay.store.count("schedule") == 0


async def test_create_leaves_what_lives(any_relay: Served, keyspace: Keyspace) -> None:
    """The answer has the due time of the timer that is there."""
    topic = keyspace.topic()
    await any_relay.timers.ScheduleColumns(columns("a", topic=topic, due_times_us=[7]))
    told = await any_relay.timers.ScheduleColumns(
        columns("a", "b", topic=topic, due_times_us=[8, 8], mode=SCHEDULE_MODE_CREATE)
    )
    assert list(told.results) == [timer_pb2.CHANGE_RESULT_UNCHANGED, CREATED]
    assert list(told.due_times_us) == [7, 8]
    assert not told.errors


async def test_the_first_mistake_is_told_as_of_a_single_call(relay: Served) -> None:
    """Of a timer with several, in the order of its fields."""
    late, big = LATEST + 1, bytes(MAX_PAYLOAD + 1)
    told = await relay.timers.ScheduleColumns(columns("a", "b{", payloads=[big] * 2, due_times_us=[late] * 2))
    assert [told.errors[place].field for place in (0, 1)] == ["due_time", "timer_id"]
    alone = spec("a", payload=big, due_time=at(LATEST // SECOND + 1))
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=alone))) == "due_time"


async def test_while_redis_is_away_each_timer_has_its_answer(relay: Served) -> None:
    """UNAVAILABLE for those that would have been stored."""
    relay.store.fail("schedule", StoreUnavailable("away"))
    told = await relay.timers.ScheduleColumns(columns("a", "b{"))
    assert [told.errors[place].code for place in (0, 1)] == [14, 3]


async def test_ten_thousand_and_none(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """In one call, in order."""
    dues = [4_000_000_000 * SECOND + n for n in range(MAX_BATCH)]
    topic = keyspace.topic()
    request = columns(*map(str, range(MAX_BATCH)), topic=topic, due_times_us=dues)
    told = await relay_on_valkey.timers.ScheduleColumns(request)
    assert list(told.due_times_us) == dues
    assert list(told.results) == [CREATED] * MAX_BATCH
    assert not (await relay_on_valkey.timers.ScheduleColumns(columns(topic=topic))).results


async def test_a_long_one_leaves_the_loop_to_others(relay: Served) -> None:
    """What falls due while it is read or answered waits for a stretch of it."""
    request = columns(*["b{"] * 10 * STRETCH)
    async with Turns() as others:
        told = await TimerCalls(relay.engine).schedule_columns(request, {})
    assert len(told.errors) == 10 * STRETCH
    assert others.count >= 20


async def test_trace_context_in_the_metadata_is_stored(relay: Served) -> None:
    """Unless the timers have their own."""
    metadata = (("traceparent", "00-1-2-01"), ("tracestate", "a=b"), ("x-other", "no"))
    own = {"traceparent": "mine", "k": "v"}
    await relay.timers.ScheduleColumns(columns("a"), metadata=metadata)
    await relay.timers.ScheduleColumns(columns("b", headers=own), metadata=metadata)
    found = [await relay.store.inner.get("t", name) for name in ("a", "b")]
    assert [dict(timer.headers) for timer in found if timer is not None] == [
        {"traceparent": "00-1-2-01", "tracestate": "a=b"},
        own,
    ]
