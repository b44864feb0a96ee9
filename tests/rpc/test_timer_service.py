"""TimerService: what it answers, and what it refuses, naming the field."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2

from relay.api.timers import STRETCH, TimerCalls
from relay.core.durability import STORED
from relay.core.errors import OtherLayout, StoreFull, StoreRefused, StoreUnavailable, WrongKeyType
from relay.v1 import timer_pb2
from relay.v1.timer_service_pb2 import (
    CancelRequest,
    GetTimerRequest,
    ListTimersRequest,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import MAX_PAYLOAD, at, invalid_field, refused, spec
from tests.worlds.waiting import until

LONG = "x" * 257
LONG_IN_BYTES = "é" * 129
AFTER_9999 = 253_402_300_800

BAD_NAMES = {
    "empty": "",
    "over-long": LONG,
    "over-long-in-bytes": LONG_IN_BYTES,
    "open-brace": "a{b",
    "close-brace": "a}b",
    "newline": "a\nb",
    "nul": "a\0b",
    "delete": "a\x7fb",
    "c1-control": "a\x85b",
}

BAD_TIMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "payload-too-large": ("payload", {"payload": bytes(MAX_PAYLOAD + 1)}),
    "headers-too-large": ("headers", {"headers": {f"h{n}": "x" * 1_000 for n in range(66)}}),
    "header-without-name": ("headers", {"headers": {"": "x"}}),
    "both-times": ("due_time", {"due_time": at(1), "delay": Duration(seconds=1)}),
    "negative-delay": ("delay", {"delay": Duration(seconds=-1)}),
    "negative-nanos-of-delay": ("delay", {"delay": Duration(nanos=-1)}),
    "bad-nanos-of-delay": ("delay", {"delay": Duration(nanos=1_000_000_000)}),
    "delay-beyond-9999": ("delay", {"delay": Duration(seconds=AFTER_9999)}),
    "delay-that-ends-after-9999": ("delay", {"delay": Duration(seconds=AFTER_9999 - 1_000)}),
    "before-1970": ("due_time", {"due_time": at(-1)}),
    "after-9999": ("due_time", {"due_time": at(AFTER_9999)}),
    "negative-nanos": ("due_time", {"due_time": at(1, -1)}),
    "bad-nanos": ("due_time", {"due_time": at(1, 1_000_000_000)}),
    "content-type-with-control": ("content_type", {"content_type": "text/\nplain"}),
    "content-type-over-long": ("content_type", {"content_type": LONG}),
}


# ------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
async def test_refuses_a_bad_topic_everywhere(relay: Served, name: str) -> None:
    """Each call names the field."""
    timers = relay.timers
    assert await invalid_field(timers.Schedule(ScheduleRequest(timer=spec(topic=name)))) == "topic"
    assert await invalid_field(timers.Cancel(CancelRequest(topic=name, timer_id="a"))) == "topic"
    assert await invalid_field(timers.GetTimer(GetTimerRequest(topic=name, timer_id="a"))) == "topic"
    assert await invalid_field(timers.ListTimers(ListTimersRequest(topic=name))) == "topic"


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
async def test_refuses_a_bad_timer_id_everywhere(relay: Served, name: str) -> None:
    """Only Schedule takes an empty one: it makes one then."""
    timers = relay.timers
    if name:
        assert await invalid_field(timers.Schedule(ScheduleRequest(timer=spec(name)))) == "timer_id"
    assert await invalid_field(timers.Cancel(CancelRequest(topic="t", timer_id=name))) == "timer_id"
    assert await invalid_field(timers.GetTimer(GetTimerRequest(topic="t", timer_id=name))) == "timer_id"


@pytest.mark.parametrize(("field", "fields"), BAD_TIMERS.values(), ids=BAD_TIMERS.keys())
async def test_refuses_a_bad_timer(relay: Served, field: str, fields: dict[str, Any]) -> None:
    """By the field that is wrong; nothing is stored."""
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=spec(**fields)))) == field
    assert await relay.store.inner.get("t", "a") is None


async def test_refuses_a_timer_without_any_time(relay: Served) -> None:
    """And one that is not there at all."""
    timer = timer_pb2.TimerSpec(topic="t", timer_id="a")
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest(timer=timer))) == "due_time"
    assert await invalid_field(relay.timers.Schedule(ScheduleRequest())) == "topic"


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("page_size", {"page_size": -1}),
        ("page_size", {"page_size": 501}),
        ("page_token", {"page_token": "no token"}),
        ("page_token", {"page_token": "é"}),
        ("state", {"state": 99}),
    ],
)
async def test_refuses_a_bad_listing(relay: Served, field: str, fields: dict[str, Any]) -> None:
    """By the field that is wrong."""
    assert await invalid_field(relay.timers.ListTimers(ListTimersRequest(topic="t", **fields))) == field


async def test_refuses_a_page_token_that_no_page_gave(relay_on_valkey: Served) -> None:
    """Neither does the real store guess what it may mean."""
    for token in ("no token", "é", "AAAA", "bmFuIGE=", "=" * 1000):
        request = ListTimersRequest(topic="t", page_token=token)
        assert await invalid_field(relay_on_valkey.timers.ListTimers(request)) == "page_token"


async def test_refuses_a_batch_that_is_too_long(relay: Served) -> None:
    """As a whole, for it is the call that is wrong."""
    request = ScheduleBatchRequest(timers=[spec()] * 10_001)
    assert await invalid_field(relay.timers.ScheduleBatch(request)) == "timers"


async def test_a_message_beyond_the_limit_is_refused_and_harms_nothing(relay: Served) -> None:
    """By gRPC itself, before it is taken in."""
    code, _, _ = await refused(relay.timers.Schedule(ScheduleRequest(timer=spec(payload=bytes(17 << 20)))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await relay.timers.Schedule(ScheduleRequest(timer=spec()))


# ------------------------------------------------------------------------------- the store's errors


async def test_redis_away_is_unavailable_with_a_time_to_retry(relay: Served) -> None:
    """For every call."""
    for verb in ("schedule", "cancel", "get"):
        relay.store.fail(verb, StoreUnavailable("connection refused"))
    timers = relay.timers
    calls: tuple[Any, ...] = (
        timers.Schedule(ScheduleRequest(timer=spec())),
        timers.Cancel(CancelRequest(topic="t", timer_id="a")),
        timers.GetTimer(GetTimerRequest(topic="t", timer_id="a")),
    )
    for call in calls:
        code, message, details = await refused(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert message == "connection refused"
        (retry,) = details
        assert isinstance(retry, error_details_pb2.RetryInfo)
        assert retry.retry_delay.seconds > 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreFull(), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (WrongKeyType(), grpc.StatusCode.FAILED_PRECONDITION),
        (OtherLayout("2 8"), grpc.StatusCode.UNAVAILABLE),
        (StoreRefused("what"), grpc.StatusCode.INTERNAL),
        (RuntimeError("what is this"), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
async def test_other_errors_of_the_store(relay: Served, error: Exception, code: grpc.StatusCode) -> None:
    """Each has its status; the next call works again."""
    door = relay.store.fail("schedule", error)
    assert (await refused(relay.timers.Schedule(ScheduleRequest(timer=spec()))))[0] is code
    door.open()
    await relay.timers.Schedule(ScheduleRequest(timer=spec()))


async def test_a_wrong_type_under_a_key_is_told(
    relay_on_valkey: Served, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Nothing is overwritten."""
    topic = keyspace.topic()
    with valkey.client() as redis:
        redis.set(f"timers_timeline:{topic}", "mine")
        code, message, _ = await refused(
            relay_on_valkey.timers.Schedule(ScheduleRequest(timer=spec(topic=topic)))
        )
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert f"timers_timeline:{topic}" in message
        assert redis.get(f"timers_timeline:{topic}") == b"mine"


# ------------------------------------------------------------------------------- answers


async def test_schedule_answers_the_stored_timer(relay: Served) -> None:
    """Finer than a microsecond is rounded up; what lived before was replaced."""
    request = ScheduleRequest(timer=spec(due_time=at(4_000_000_000, 1_001), payload=b"x"))
    answer = await relay.timers.Schedule(request)
    assert answer.timer.due_time == at(4_000_000_000, 2_000)
    assert answer.timer.next_claim_time == answer.timer.due_time
    assert answer.timer.state == timer_pb2.TIMER_STATE_PENDING
    assert (answer.timer.topic, answer.timer.timer_id) == ("t", "a")
    assert not answer.replaced
    assert (await relay.timers.Schedule(request)).replaced


async def test_schedule_makes_a_timer_id_if_none_is_given(relay: Served) -> None:
    """A different one each time."""
    names = {(await relay.timers.Schedule(ScheduleRequest(timer=spec("")))).timer.timer_id for _ in range(9)}
    assert len(names) == 9
    assert all(names)


async def test_the_largest_input_is_taken(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """Names of 256 bytes, a payload at its limit, 64 KiB of headers, the ends of time."""
    topic = keyspace.adopt("é" * 128)
    headers = {"a" * 100: "ü" * 30_000, "b": "x" * (65_536 - 100 - 60_000 - 1)}
    timer = spec(
        "i" * 256,
        topic=topic,
        payload=bytes(MAX_PAYLOAD),
        headers=headers,
        content_type="x" * 256,
        due_time=at(AFTER_9999 - 1),
    )
    timers = relay_on_valkey.timers
    answer = await timers.Schedule(ScheduleRequest(timer=timer))
    assert answer.timer.due_time == at(AFTER_9999 - 1)
    stored = (await timers.GetTimer(GetTimerRequest(topic=topic, timer_id="i" * 256))).timer
    assert stored.payload == timer.payload
    assert stored.headers == headers
    assert stored.content_type == timer.content_type
    await timers.Schedule(ScheduleRequest(timer=spec("epoch", topic=topic, due_time=at(0))))


async def test_a_delay_is_measured_by_the_store_s_clock(relay: Served) -> None:
    """The relay's own clock, and the caller's, decide nothing."""
    relay.store.inner._clock = lambda: 5_000_000_000_000_000
    answer = await relay.timers.Schedule(ScheduleRequest(timer=spec(delay=Duration(seconds=10))))
    assert answer.timer.due_time == at(5_000_000_010)


async def test_a_delay_on_a_real_server(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """By TIME of that server."""
    request = ScheduleRequest(timer=spec(topic=keyspace.topic(), delay=Duration(seconds=10)))
    before = time.time()
    due = (await relay_on_valkey.timers.Schedule(request)).timer.due_time
    assert before + 9.9 <= due.seconds + due.nanos / 1e9 <= time.time() + 10.1


async def test_get_answers_the_whole_timer_or_not_found(relay: Served) -> None:
    """With payload, headers and content type."""
    timer = spec(payload=b"\0\xff", headers={"k": "v"}, content_type="text/plain", due_time=at(4_000_000_000))
    await relay.timers.Schedule(ScheduleRequest(timer=timer))
    got = (await relay.timers.GetTimer(GetTimerRequest(topic="t", timer_id="a"))).timer
    assert (got.payload, dict(got.headers), got.content_type) == (b"\0\xff", {"k": "v"}, "text/plain")
    assert (got.attempts, got.state) == (0, timer_pb2.TIMER_STATE_PENDING)
    code, message, _ = await refused(relay.timers.GetTimer(GetTimerRequest(topic="t", timer_id="b")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "'b'" in message


async def test_cancel_tells_whether_there_was_one(relay: Served) -> None:
    """Cancelling what is not there is no error."""
    await relay.timers.Schedule(ScheduleRequest(timer=spec()))
    request = CancelRequest(topic="t", timer_id="a")
    assert (await relay.timers.Cancel(request)).cancelled
    assert not (await relay.timers.Cancel(request)).cancelled


async def test_lists_page_by_page_without_content(relay: Served) -> None:
    """In the order of the next claim, filtered by state."""
    for n in range(7):
        timer = spec(f"{n}", payload=b"x", headers={"k": "v"}, due_time=at(4_000_000_000 + n))
        await relay.timers.Schedule(ScheduleRequest(timer=timer))
    found, token = [], ""
    for _ in range(9):
        page = await relay.timers.ListTimers(ListTimersRequest(topic="t", page_size=3, page_token=token))
        found += page.timers
        token = page.next_page_token
        if not token:
            break
    assert [timer.timer_id for timer in found] == list("0123456")
    assert all(timer.payload == b"" and not timer.headers for timer in found)
    leased = ListTimersRequest(topic="t", state=timer_pb2.TIMER_STATE_LEASED)
    assert list((await relay.timers.ListTimers(leased)).timers) == []


async def test_a_batch_answers_each_timer_in_its_place(relay: Served) -> None:
    """Bad ones fail with the code and field of a call of their own; the others are stored.

    Of two with one id the later one stands.
    """
    request = ScheduleBatchRequest(
        timers=[
            spec("a", payload=b"1", due_time=at(4_000_000_000)),
            spec("x{", due_time=at(1)),
            spec("b", topic="other", due_time=at(4_000_000_000)),
            spec("c", delay=Duration(seconds=-1)),
            spec("far", delay=Duration(seconds=AFTER_9999 - 1_000)),
            spec("a", payload=b"2", due_time=at(4_000_000_001)),
            spec("", due_time=at(4_000_000_000)),
        ]
    )
    results = list((await relay.timers.ScheduleBatch(request)).results)
    assert [result.WhichOneof("result") for result in results] == [
        "scheduled",
        "error",
        "scheduled",
        "error",
        "error",
        "scheduled",
        "scheduled",
    ]
    assert [(results[n].error.code, results[n].error.field) for n in (1, 3, 4)] == [
        (3, "timer_id"),
        (3, "delay"),
        (3, "delay"),
    ]
    assert [results[n].scheduled.replaced for n in (0, 5)] == [False, True]
    assert results[6].scheduled.timer.timer_id
    stored = (await relay.timers.GetTimer(GetTimerRequest(topic="t", timer_id="a"))).timer
    assert (stored.payload, stored.due_time) == (b"2", at(4_000_000_001))


async def test_a_batch_while_redis_is_away_answers_each_timer_too(relay: Served) -> None:
    """UNAVAILABLE for those that would have been stored."""
    relay.store.fail("schedule", StoreUnavailable("away"))
    request = ScheduleBatchRequest(timers=[spec("a"), spec("b{")])
    results = (await relay.timers.ScheduleBatch(request)).results
    assert [result.error.code for result in results] == [14, 3]


async def test_a_batch_of_ten_thousand(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """In one call, in order; an empty one is fine too."""
    topic = keyspace.topic()
    request = ScheduleBatchRequest(
        timers=[spec(f"{n}", topic=topic, delay=Duration(seconds=1_000)) for n in range(10_000)]
    )
    results = (await relay_on_valkey.timers.ScheduleBatch(request)).results
    assert [result.scheduled.timer.timer_id for result in results] == [f"{n}" for n in range(10_000)]
    assert list((await relay_on_valkey.timers.ScheduleBatch(ScheduleBatchRequest())).results) == []


class Turns:
    """Counts the turns of the loop that others have."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


# Bad timers, since good ones wait for Redis in between.
BIG_BATCH = ScheduleBatchRequest(timers=[spec("b{")] * 10 * STRETCH)


async def test_a_big_batch_leaves_the_loop_to_others(relay: Served) -> None:
    """What falls due while a batch is read or answered waits for a stretch of it."""
    async with Turns() as others:
        response = await TimerCalls(relay.engine).schedule_batch(BIG_BATCH, {})
    assert len(response.results) == 10 * STRETCH
    assert others.count >= 20


async def test_big_batches_take_turns(relay: Served) -> None:
    """Read and answered stretch by stretch among each other, the first would end with the last."""
    timers, ended = TimerCalls(relay.engine), []

    async def batch(number: int) -> None:
        await timers.schedule_batch(BIG_BATCH, {})
        ended.append((number, others.count))

    async with Turns() as others:
        await asyncio.gather(*map(batch, range(8)))
    assert [number for number, _ in ended] == list(range(8))
    assert ended[0][1] < others.count / 2


async def test_trace_context_in_the_metadata_is_stored(relay: Served) -> None:
    """Of Schedule and of each timer of a batch; headers of the timer itself win; other metadata stays out."""
    metadata = (("traceparent", "00-1-2-01"), ("tracestate", "a=b"), ("x-other", "no"))
    due = at(4_000_000_000)
    timers = relay.timers
    await timers.Schedule(ScheduleRequest(timer=spec("a", due_time=due)), metadata=metadata)
    own = spec("b", due_time=due, headers={"traceparent": "mine", "k": "v"})
    await timers.ScheduleBatch(ScheduleBatchRequest(timers=[own]), metadata=metadata)
    headers = [
        dict((await timers.GetTimer(GetTimerRequest(topic="t", timer_id=name))).timer.headers)
        for name in ("a", "b")
    ]
    assert headers[0] == {"traceparent": "00-1-2-01", "tracestate": "a=b"}
    assert headers[1] == {"traceparent": "mine", "k": "v"}


async def test_many_concurrent_calls_share_few_store_calls(relay: Served) -> None:
    """What the store would take 200 round trips for."""
    slow = relay.store.hold("schedule")
    due = at(4_000_000_000)
    requests = [ScheduleRequest(timer=spec(f"{n}", due_time=due)) for n in range(200)]
    calls = [asyncio.ensure_future(relay.timers.Schedule(request)) for request in requests]

    async def all_wait() -> bool:
        return relay.engine._schedules[STORED].waiting + len(relay.store.items("schedule")) == 200

    await until(all_wait, "the calls gather")
    before = relay.store.count("schedule")
    slow.open()
    await asyncio.gather(*calls)
    assert relay.store.count("schedule") == before + 1
    assert len(relay.store.items("schedule")) == 200
