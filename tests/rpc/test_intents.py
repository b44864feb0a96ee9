"""Timers of one id that meet, debounced and spread ones: what the three calls take, answer and refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from relay.core.instants import LATEST, SECOND, spread_of
from relay.v1 import timer_pb2
from relay.v1.timer_service_pb2 import (
    ON_CONFLICT_KEEP_EARLIEST,
    ON_CONFLICT_KEEP_EXISTING,
    ON_CONFLICT_KEEP_LATEST,
    ON_CONFLICT_REPLACE,
    SCHEDULE_MODE_CREATE,
    SCHEDULE_MODE_REPLACE,
    GetTimerRequest,
    OnConflict,
    ScheduleBatchRequest,
    ScheduleColumnsRequest,
    ScheduleRequest,
)
from tests.keyspace import Keyspace
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import at, invalid_field

CREATED, REPLACED = timer_pb2.CHANGE_RESULT_CREATED, timer_pb2.CHANGE_RESULT_REPLACED
UNCHANGED = timer_pb2.CHANGE_RESULT_UNCHANGED
YEAR_2096 = 4_000_000_000 * SECOND
HOUR = 3600
Told = tuple[int, int]
"""Result and due time in microseconds."""


def seconds(number: float) -> Duration:
    return Duration(seconds=int(number), nanos=round(number % 1 * 10**9))


def when(due_us: int) -> dict[str, Any]:
    return {"due_time": at(*divmod(due_us * 1000, 10**9))}


async def alone(served: Served, topic: str, said: dict[str, Any], **spec: Any) -> Told:
    timer = timer_pb2.TimerSpec(topic=topic, timer_id="a", **spec)
    told = await served.timers.Schedule(ScheduleRequest(timer=timer, **said))
    return told.result, due_of(told.timer)


async def in_a_batch(served: Served, topic: str, said: dict[str, Any], **spec: Any) -> Told:
    timer = timer_pb2.TimerSpec(topic=topic, timer_id="a", **spec)
    (told,) = (await served.timers.ScheduleBatch(ScheduleBatchRequest(timers=[timer], **said))).results
    return told.scheduled.result, due_of(told.scheduled.timer)


async def by_columns(served: Served, topic: str, said: dict[str, Any], **spec: Any) -> Told:
    request = ScheduleColumnsRequest(topic=topic, timer_ids=["a"], payloads=[b""], **said)
    if "due_time" in spec:
        due = spec.pop("due_time")
        request.due_times_us.append(due.seconds * SECOND + due.nanos // 1000)
    if "delay" in spec:
        request.delays_us.append(spec.pop("delay").seconds * SECOND)
    for name, length in spec.items():
        getattr(request, name).CopyFrom(length)
    told = await served.timers.ScheduleColumns(request)
    return told.results[0], told.due_times_us[0]


def due_of(timer: timer_pb2.Timer) -> int:
    return timer.due_time.seconds * SECOND + timer.due_time.nanos // 1000


Ask = Callable[..., Awaitable[Told]]
each_way = pytest.mark.parametrize("ask", [alone, in_a_batch, by_columns])


@each_way
@pytest.mark.parametrize(
    ("word", "later", "earlier"),
    [
        (ON_CONFLICT_REPLACE, REPLACED, REPLACED),
        (ON_CONFLICT_KEEP_EARLIEST, UNCHANGED, REPLACED),
        (ON_CONFLICT_KEEP_LATEST, REPLACED, UNCHANGED),
        (ON_CONFLICT_KEEP_EXISTING, UNCHANGED, UNCHANGED),
    ],
)
async def test_which_timer_stands(
    any_relay: Served, keyspace: Keyspace, ask: Ask, word: OnConflict, later: int, earlier: int
) -> None:
    """The answer tells whether this call's was stored, and when the timer that stands is due."""
    topic, said = keyspace.topic(), {"on_conflict": word}
    assert await ask(any_relay, topic, said, **when(YEAR_2096)) == (CREATED, YEAR_2096)
    stands = YEAR_2096 + (later == REPLACED)
    assert await ask(any_relay, topic, said, **when(YEAR_2096 + 1)) == (later, stands)
    stands = stands - 2 if earlier == REPLACED else stands
    assert await ask(any_relay, topic, said, **when(stands if earlier == REPLACED else 7)) == (
        earlier,
        stands,
    )


@each_way
async def test_a_debounced_timer(any_relay: Served, keyspace: Keyspace, ask: Ask) -> None:
    """Each call moves it, the first limit holds, and another call ends the run."""
    topic = keyspace.topic()
    debounce = {"debounce": seconds(2 * HOUR), "at_most": seconds(3 * HOUR)}
    first, due = await ask(any_relay, topic, {}, **debounce)
    limit = due + HOUR * SECOND
    longer = {"debounce": seconds(9 * HOUR), "at_most": seconds(9 * HOUR)}
    assert (first, await ask(any_relay, topic, {}, **longer)) == (CREATED, (REPLACED, limit))
    assert await ask(any_relay, topic, {"mode": SCHEDULE_MODE_REPLACE}, **longer) == (REPLACED, limit)
    again, due = await ask(any_relay, topic, {}, debounce=seconds(HOUR))
    assert (again, due < limit) == (REPLACED, True)
    stored = (await any_relay.timers.GetTimer(GetTimerRequest(topic=topic, timer_id="a"))).timer
    assert due_of(stored) == due
    await ask(any_relay, topic, {}, delay=seconds(1))
    assert (await ask(any_relay, topic, {}, **longer))[1] > limit


@each_way
async def test_a_spread_timer(any_relay: Served, keyspace: Keyspace, ask: Ask) -> None:
    """Always at the same place behind its due time; and the expiry goes with it."""
    topic, place = keyspace.topic(), spread_of("a", 600 * SECOND)
    assert 0 < place < 600 * SECOND
    for result in (CREATED, REPLACED):
        told = await ask(any_relay, topic, {}, **when(YEAR_2096), spread=seconds(600))
        assert told == (result, YEAR_2096 + place)
    said = {"on_conflict": ON_CONFLICT_KEEP_EARLIEST}
    assert (await ask(any_relay, topic, said, **when(YEAR_2096), spread=seconds(600)))[0] == UNCHANGED
    _, plain = await ask(any_relay, topic, {}, delay=seconds(HOUR))
    _, moved = await ask(any_relay, topic, {}, delay=seconds(HOUR), spread=seconds(600))
    assert place <= moved - plain < place + 60 * SECOND


BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "at_most alone": ("at_most", {"at_most": seconds(1), **when(1)}, {}),
    "at_most below debounce": ("at_most", {"at_most": seconds(1), "debounce": seconds(1.000001)}, {}),
    "no debounce": ("debounce", {"debounce": seconds(0)}, {}),
    "a negative debounce": ("debounce", {"debounce": Duration(seconds=-1)}, {}),
    "a negative at_most": ("at_most", {"debounce": seconds(1), "at_most": Duration(nanos=-1)}, {}),
    "an endless debounce": ("debounce", {"debounce": seconds(LATEST // SECOND)}, {}),
    "an endless at_most": ("at_most", {"debounce": seconds(1), "at_most": seconds(LATEST // SECOND)}, {}),
    "a negative spread": ("spread", {"spread": Duration(seconds=-1), **when(1)}, {}),
    "an endless spread": ("spread", {"spread": seconds(LATEST // SECOND + 1), **when(1)}, {}),
    "debounce and due time": ("debounce", {"debounce": seconds(1), **when(1)}, {}),
    "debounce and delay": ("debounce", {"debounce": seconds(1), "delay": seconds(1)}, {}),
    "debounce and spread": ("debounce", {"debounce": seconds(1), "spread": seconds(1)}, {}),
    "debounce and create": ("debounce", {"debounce": seconds(1)}, {"mode": SCHEDULE_MODE_CREATE}),
    "debounce and replace": ("debounce", {"debounce": seconds(1)}, {"on_conflict": ON_CONFLICT_REPLACE}),
    "spread without a time": ("due_time", {"spread": seconds(1)}, {}),
}
BAD_OF_ALL: dict[str, tuple[str, dict[str, Any]]] = {
    "mode and on_conflict": (
        "on_conflict",
        {"mode": SCHEDULE_MODE_REPLACE, "on_conflict": ON_CONFLICT_KEEP_EXISTING},
    ),
    "an unknown on_conflict": ("on_conflict", {"on_conflict": 99}),
    "an unknown mode": ("mode", {"mode": 99}),
}
BAD_EXPIRIES: dict[str, Any] = {"expire_time": at(9), "expire_after": seconds(9)}


@pytest.mark.parametrize(("field", "fields", "said"), BAD.values(), ids=BAD.keys())
async def test_what_does_not_go_together(
    relay: Served, field: str, fields: dict[str, Any], said: dict[str, Any]
) -> None:
    """By the field, with the way out, whichever call it is; and nothing is stored."""
    timer = timer_pb2.TimerSpec(topic="t", timer_id="a", **fields)
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=timer, **said))) == field
    batch = ScheduleBatchRequest(timers=[timer, timer_pb2.TimerSpec(topic="t", timer_id="b", **when(1))])
    if said.get("on_conflict") != ON_CONFLICT_REPLACE:
        batch.mode = said.get("mode", 0)
        results = (await relay.timers.ScheduleBatch(batch)).results
        assert (results[0].error.field, results[1].scheduled.result) == (field, CREATED)
    named = await invalid_field(by_columns(relay, "t", said, **fields))
    assert named == {"due_time": "due_times_us"}.get(field, field)
    assert await relay.store.inner.get("t", "a") is None


@pytest.mark.parametrize("name", BAD_EXPIRIES)
async def test_a_debounced_timer_has_no_expiry(relay: Served, name: str) -> None:
    fields: dict[str, Any] = {"debounce": seconds(1), name: BAD_EXPIRIES[name]}
    timer = timer_pb2.TimerSpec(topic="t", timer_id="a", **fields)
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=timer))) == "debounce"


async def test_a_debounced_timer_has_a_name(relay: Served) -> None:
    """Without one, each call would make another timer."""
    timer = timer_pb2.TimerSpec(topic="t", debounce=seconds(1))
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=timer))) == "timer_id"


@pytest.mark.parametrize(("field", "said"), BAD_OF_ALL.values(), ids=BAD_OF_ALL.keys())
async def test_what_a_request_says_twice(relay: Served, field: str, said: dict[str, Any]) -> None:
    """The whole call is refused, and nothing is stored."""
    timer = timer_pb2.TimerSpec(topic="t", timer_id="a", **when(1))
    columns = ScheduleColumnsRequest(topic="t", timer_ids=["a"], payloads=[b""], due_times_us=[1], **said)
    for call in (
        relay.timers.Schedule(ScheduleRequest(timer=timer, **said)),
        relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=[timer], **said)),
        relay.timers.ScheduleColumns(columns),
    ):
        assert await invalid_field(call) == field
    assert relay.store.count("schedule") == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"debounce": seconds(1)}, {}),
        (when(1), {"mode": SCHEDULE_MODE_CREATE}),
        (when(1), {"on_conflict": ON_CONFLICT_KEEP_EXISTING}),
    ],
)
async def test_what_goes_with_no_condition(
    relay: Served, fields: dict[str, Any], said: dict[str, Any]
) -> None:
    timer = timer_pb2.TimerSpec(topic="t", timer_id="a", **fields)
    request = ScheduleRequest(timer=timer, condition=timer_pb2.Condition(only_if_pending=True), **said)
    assert await invalid_field(relay.timers.Schedule(request)) == "condition"


async def test_an_expiry_before_the_place_in_the_window(relay: Served) -> None:
    """The due time that counts is the one at which the timer is stored."""
    place = spread_of("a", HOUR * SECOND)
    for past, refused in ((0, True), (1, False)):
        expires = at(*divmod((YEAR_2096 + place + past) * 1000, 10**9))
        timer = timer_pb2.TimerSpec(
            topic="t", timer_id="a", **when(YEAR_2096), spread=seconds(HOUR), expire_time=expires
        )
        if refused:
            assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=timer))) == "expire_time"
        else:
            assert (await relay.timers.Schedule(ScheduleRequest(timer=timer))).result == CREATED


async def test_bad_times_stay_bad_when_they_are_spread(relay: Served) -> None:
    """A place behind a time before 1970 is no excuse, and none lies after 9999."""
    request = ScheduleColumnsRequest(topic="t", timer_ids=["a", "b", "c"], payloads=[b""] * 3)
    request.due_times_us.extend([-1, LATEST, YEAR_2096])
    request.spread.CopyFrom(seconds(HOUR))
    told = await relay.timers.ScheduleColumns(request)
    assert {place: error.field for place, error in told.errors.items()} == {0: "due_time", 1: "due_time"}
    assert told.due_times_us[2] == YEAR_2096 + spread_of("c", HOUR * SECOND)
