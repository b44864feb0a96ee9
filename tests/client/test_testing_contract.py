"""`relay.client.testing` keeps its word: each case passes in memory and with a real relay on Valkey."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, cycle
from typing import Any, Protocol

import pytest

from relay.client import (
    AckPolicy,
    ChangeResult,
    Delivery,
    DeliveryLost,
    FailedPrecondition,
    InvalidArgument,
    Nack,
    NewTimer,
    NotFound,
    OnConflict,
    PutResult,
    Recurrence,
    Reject,
    RelayClient,
    Reschedule,
    ResourceExhausted,
    ScheduledTimer,
    TimerChange,
    TimerState,
)
from relay.client.calls.batches import MAX_TIMERS
from relay.client.testing import InMemoryRelay, RetryPolicy
from tests.client.scripted_relay import Watched
from tests.client.test_trace_context import within
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import until

LEASE = 1.0
"""Of the topics in `HASTY` alone: a busy machine may let it run out, and then timers come again."""
TIMEOUT = 1.5  # their delivery_timeout
HASTY = [f"hasty{n}" for n in range(3)]
ATTEMPTS = 4
BACKOFF = 0.4  # the longest wait after the first attempt; twice that after the second
MAX_WAITING = 5
PATIENCE = 120.0
NAMES, HASTY_NAMES = count(), cycle(HASTY)


class Subject(Protocol):
    """A relay under test, and the application's client."""

    client: RelayClient
    slack: float
    """Seconds by which things may be late."""

    def now(self) -> datetime:
        """What the relay's clock says."""
        ...

    def serving(self) -> Any:
        """The client is open, and its handlers get deliveries."""
        ...

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass until the condition holds."""
        ...


class Memory:
    slack = 2.0

    def __init__(self, delivery_timeout: float) -> None:
        self.client = RelayClient()
        self.relay = InMemoryRelay(
            self.client,
            lease_ttl=LEASE,
            delivery_timeout=delivery_timeout,
            max_waiting=MAX_WAITING,
            retry=RetryPolicy(max_attempts=ATTEMPTS, initial=BACKOFF),
        )

    def now(self) -> datetime:
        return self.relay.now

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self.relay, self.client:
            yield

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(int(PATIENCE / 0.01)):
            if await condition():
                return
            await self.relay.advance(seconds=0.01)
        raise AssertionError(f"not within {PATIENCE:g} s")


class Real:
    slack = 30.0  # the machine may be busy

    def __init__(self, relay: Relay) -> None:
        self.client = RelayClient(relay.target)

    def now(self) -> datetime:
        return datetime.now(UTC)  # the same machine's

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self.client:
            await self.client.wait_ready(PATIENCE)
            yield

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        await until(condition)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    settings = {
        **{f"RELAY_TOPICS__{name}__LEASE_TTL": f"{LEASE}" for name in HASTY},
        **{f"RELAY_TOPICS__{name}__DELIVERY_TIMEOUT": f"{TIMEOUT}" for name in HASTY},
        "RELAY_DEFAULTS__MAX_WAITING": f"{MAX_WAITING}",
        "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": f"{ATTEMPTS}",
        "RELAY_DEFAULTS__RETRY__INITIAL": f"{BACKOFF}",
    }
    with one_relay(settings) as relay:
        yield relay


@pytest.fixture(params=["memory", "relay"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "memory":
        return Memory(TIMEOUT if "hasty" in request.fixturenames else 600.0)
    return Real(request.getfixturevalue("daemon"))


@pytest.fixture
def topic() -> str:
    return f"topic-{next(NAMES)}"


@pytest.fixture
def hasty() -> str:
    """A topic with short leases; each is used by one test of a subject."""
    return next(HASTY_NAMES)


class Seen(Watched):
    """What a handler got, with the relay's time at its start; then it does as it is told."""

    def __init__(self, subject: Subject, topic: str, **options: Any) -> None:
        super().__init__()
        self.subject = subject
        self.deliveries: list[Delivery] = []
        self.at: list[datetime] = []
        self.then: Callable[[Delivery], Awaitable[Any]] | None = None
        subject.client.on(topic, **options)(self.handle)

    async def handle(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.at.append(self.subject.now())
        if self.then is not None:
            await self.then(delivery)

    @property
    def ids(self) -> list[str]:
        return [delivery.timer_id for delivery in self.deliveries]

    async def times(self, number: int) -> None:
        """Until the handler was called so often."""

        async def enough() -> bool:
            return len(self.deliveries) >= number

        await self.subject.until(enough)

    async def empty(self) -> None:
        """Until nothing of the topic is left."""
        topic = self.deliveries[0].topic

        async def gone() -> bool:
            return [each async for each in self.subject.client.list(topic)] == []

        await self.subject.until(gone)


async def test_a_timer_comes_with_all_it_has_and_never_early(subject: Subject, topic: str) -> None:
    seen = Seen(subject, topic)
    async with subject.serving():
        stored = await subject.client.schedule(
            topic, b"\x00\xff", delay=0.3, timer_id="ü", headers={"k": "ö"}, content_type="a/b"
        )
        await seen.times(1)
        await seen.empty()
    (got,) = seen.deliveries
    assert (got.topic, got.timer_id, got.payload) == (topic, "ü", b"\x00\xff")
    assert (got.headers, got.content_type) == ({"k": "ö"}, "a/b")
    assert (got.due_time, got.due_time_approximate, got.attempt) == (stored.due_time, False, 1)
    assert got.occurrence_id.startswith("ü/")
    assert got.lease_deadline > seen.at[0]
    assert seen.at[0] >= got.due_time


async def test_timers_come_in_the_order_of_their_due_times(subject: Subject, topic: str) -> None:
    """Whatever the order in which they were scheduled; a time that has passed means now."""
    seen = Seen(subject, topic, concurrency=1)
    async with subject.serving():
        now = subject.now()
        asked = {"c": 0.5, "a": -3600.0, "d": 0.7, "b": 0.3}
        await subject.client.schedule_batch(
            [
                NewTimer(topic=topic, payload=b"", timer_id=name, due_time=now + timedelta(seconds=after))
                for name, after in asked.items()
            ]
        )
        await seen.times(4)
        await seen.empty()
    assert seen.ids == ["a", "b", "c", "d"]
    assert all(at >= got.due_time for at, got in zip(seen.at, seen.deliveries, strict=True))


async def test_a_timer_of_the_same_id_replaces(subject: Subject, topic: str) -> None:
    seen = Seen(subject, topic)
    async with subject.serving():
        first = await subject.client.schedule(topic, b"old", delay=3600, timer_id="a")
        second = await subject.client.schedule(topic, b"new", delay=0.4, timer_id="a")
        await seen.times(1)
        await seen.empty()
    assert (first.replaced, second.replaced) == (False, True)
    assert [got.payload for got in seen.deliveries] == [b"new"]
    assert seen.at[0] >= second.due_time


async def test_a_cancelled_timer_never_comes(subject: Subject, topic: str) -> None:
    seen = Seen(subject, topic)
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=2.0, timer_id="a")
        await subject.client.schedule(topic, b"", delay=2.2, timer_id="b")
        assert (await subject.client.cancel(topic, "a")).result is ChangeResult.CANCELLED
        assert (await subject.client.cancel(topic, "a")).result is ChangeResult.NOT_FOUND
        assert await subject.client.get(topic, "a") is None
        await seen.times(1)
        await seen.empty()
    assert seen.ids == ["b"]


async def test_nack_comes_again_after_retry_after(subject: Subject, hasty: str) -> None:
    """Also where that is after the lease's end. The same occurrence and due time, one attempt more."""
    seen = Seen(subject, hasty)

    async def nack(delivery: Delivery) -> None:
        if delivery.attempt < 3:
            raise Nack(retry_after=0.3 if delivery.attempt == 1 else LEASE + 0.3, reason="busy")

    seen.then = nack
    async with subject.serving():
        await subject.client.schedule(hasty, b"", delay=0)
        await seen.times(3)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2, 3]
    assert len({(got.occurrence_id, got.due_time) for got in seen.deliveries}) == 1
    assert seen.at[1] - seen.at[0] >= timedelta(seconds=0.3)
    assert seen.at[2] - seen.at[1] >= timedelta(seconds=LEASE + 0.3)


async def test_an_exception_comes_again_as_the_retry_policy_says(subject: Subject, topic: str) -> None:
    """As a NACK without `retry_after`: after at most `initial`, then at most twice that."""
    seen = Seen(subject, topic)

    async def fail(delivery: Delivery) -> None:
        if delivery.attempt < 3:
            raise ValueError

    seen.then = fail
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0, timer_id="a")
        await seen.times(3)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2, 3]
    assert seen.at[1] - seen.at[0] < timedelta(seconds=BACKOFF + subject.slack)
    assert seen.at[2] - seen.at[1] < timedelta(seconds=2 * BACKOFF + subject.slack)


async def test_a_failed_timer_can_be_read_while_it_waits(subject: Subject, topic: str) -> None:
    """It is pending, with its attempt, and keeps its due time; it says when it can be claimed."""
    seen = Seen(subject, topic)

    async def fail(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise Nack(retry_after=3600)

    seen.then = fail
    async with subject.serving():
        stored = await subject.client.schedule(topic, b"", delay=0, timer_id="a")

        async def nacked() -> bool:
            timer = await subject.client.get(topic, "a")
            return timer is not None and (timer.state, timer.attempts) == (TimerState.PENDING, 1)

        await subject.until(nacked)
        timer = await subject.client.get(topic, "a")
        assert timer is not None
        assert (await subject.client.run_timer(topic, "a")).result is ChangeResult.RUN
        await seen.times(2)
        await seen.empty()
    assert timer.due_time == stored.due_time
    assert (
        timedelta(hours=1) <= timer.next_claim_time - seen.at[0] < timedelta(hours=1, seconds=subject.slack)
    )


async def test_a_poison_timer_comes_max_attempts_times(subject: Subject, topic: str) -> None:
    """And never again."""
    seen = Seen(subject, topic)
    seen.then = fail_always
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(ATTEMPTS)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2, 3, 4]


async def test_no_attempt_follows_one_that_gives_up(subject: Subject, topic: str) -> None:
    seen = Seen(subject, topic)

    async def give_up(_: Delivery) -> None:
        raise Nack(reason="of no use", retryable=False)

    seen.then = give_up
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(1)
        await seen.empty()
    assert len(seen.deliveries) == 1


async def test_a_timer_that_reschedules_itself_goes_round(subject: Subject, topic: str) -> None:
    """By delay, by instant; raised, said. A new occurrence each, with attempt 1 and what it had."""
    seen = Seen(subject, topic)

    async def go_round(delivery: Delivery) -> None:
        if delivery.payload == b"0":
            raise Reschedule(delay=0.3, payload=b"1")
        if len(seen.deliveries) == 2:
            await delivery.reschedule(due_time=delivery.due_time + timedelta(seconds=0.4))
        elif len(seen.deliveries) == 3:
            raise Reschedule(due_time=delivery.due_time - timedelta(hours=1), payload=b"")

    seen.then = go_round
    async with subject.serving():
        await subject.client.schedule(
            topic, b"0", delay=0, timer_id="a", headers={"k": "v"}, content_type="a/b"
        )
        await seen.times(4)
        await seen.empty()
    assert [got.payload for got in seen.deliveries] == [b"0", b"1", b"1", b""]
    assert [got.attempt for got in seen.deliveries] == [1] * 4
    assert len({got.occurrence_id for got in seen.deliveries}) == 4
    assert {got.content_type for got in seen.deliveries} == {"a/b"}
    assert all(got.headers == {"k": "v"} for got in seen.deliveries)
    dues = [got.due_time for got in seen.deliveries]
    assert dues[1] - seen.at[0] >= timedelta(seconds=0.3)
    assert dues[2] - dues[1] == timedelta(seconds=0.4)
    assert dues[3] - dues[2] == timedelta(hours=-1)
    assert all(at >= due for at, due in zip(seen.at, dues, strict=True))


async def test_what_was_failing_begins_anew_when_it_is_rescheduled(subject: Subject, topic: str) -> None:
    """Its attempts are counted from 1 again."""
    seen = Seen(subject, topic)

    async def fail_then_snooze(delivery: Delivery) -> None:
        if len(seen.deliveries) in (1, 2, 4):
            raise Nack(retry_after=0)
        if len(seen.deliveries) == 3:
            raise Reschedule(delay=0)

    seen.then = fail_then_snooze
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(5)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2, 3, 1, 2]


async def test_a_payload_too_big_to_go_on_with_is_refused(
    subject: Subject, hasty: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Said to be; the timer comes again as after a silent delivery."""
    caplog.set_level(logging.WARNING, "relay.client")
    seen = Seen(subject, hasty)

    async def grow(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise Reschedule(delay=0, payload=b"x" * ((1 << 20) + 1))

    seen.then = grow
    async with subject.serving():
        await subject.client.schedule(hasty, b"", delay=0, timer_id="a")
        await seen.times(2)
        await seen.empty()
    assert "timer_id=a reason=INVALID" in caplog.text
    assert [got.attempt for got in seen.deliveries] == [1, 2]
    assert seen.at[1] - seen.at[0] >= timedelta(seconds=TIMEOUT)


async def test_an_expired_timer_does_not_come(subject: Subject, topic: str) -> None:
    """Its back-off lasted longer than it is of use; one that is in time does come."""
    seen = Seen(subject, topic)
    of_use = 0.5

    async def nack(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise Nack(retry_after=of_use + 0.1)

    seen.then = nack
    async with subject.serving():
        while "a" not in seen.ids:  # until it is of use for longer than its first delivery takes to come
            seen.deliveries.clear()
            due = subject.now()
            await subject.client.schedule(topic, b"", delay=0, timer_id="a", expire_after=of_use)
            await subject.client.schedule(
                topic, b"", due_time=due, timer_id="b", expire_time=due + timedelta(seconds=PATIENCE)
            )
            await seen.times(2)
            await seen.empty()
            of_use *= 4
    assert sorted((got.timer_id, got.attempt) for got in seen.deliveries) == [("a", 1), ("b", 1), ("b", 2)]


async def test_the_earliest_and_the_latest_stand(subject: Subject, topic: str) -> None:
    """By call and by batch; the answer has the due time of the timer that stands."""
    async with subject.serving():
        client = subject.client
        first = await client.schedule(topic, b"1", delay=3600, timer_id="a")
        later = await client.schedule(
            topic, b"2", delay=7200, timer_id="a", on_conflict=OnConflict.KEEP_EARLIEST
        )
        new = [NewTimer(topic=topic, payload=b"3", delay=7200, timer_id=name, spread=60) for name in "ab"]
        results = await client.schedule_batch(new, on_conflict=OnConflict.KEEP_LATEST)
        timer = await client.get(topic, "a")
    assert (later.result, later.due_time) == (ChangeResult.UNCHANGED, first.due_time)
    assert [result.timer and result.timer.result for result in results] == [
        ChangeResult.REPLACED,
        ChangeResult.CREATED,
    ]
    assert timer is not None
    assert timer.payload == b"3"


async def test_a_debounced_timer_is_delivered_once(subject: Subject, topic: str) -> None:
    """With the content of the last call, and not after the limit of the first one."""
    seen = Seen(subject, topic)
    async with subject.serving():
        client = subject.client
        first = await client.schedule(topic, b"1", timer_id="a", debounce=2, at_most=3)
        limit = first.due_time + timedelta(seconds=1)
        calls = [
            NewTimer(topic=topic, payload=b"%d" % n, timer_id="a", debounce=60, at_most=90) for n in (2, 3)
        ]
        results = await client.schedule_batch(calls)
        assert [result.timer and result.timer.due_time for result in results] == [limit, limit]
        await seen.times(1)
    assert [each.payload for each in seen.deliveries] == [b"3"]
    assert limit <= seen.at[0] < limit + timedelta(seconds=subject.slack)


async def test_create_only_leaves_what_lives(subject: Subject, topic: str) -> None:
    """By call and by batch; the answer has the due time of the timer that is there."""
    async with subject.serving():
        client = subject.client
        first = await client.schedule(topic, b"1", delay=3600, timer_id="a", create_only=True)
        second = await client.schedule(topic, b"2", delay=60, timer_id="a", create_only=True)
        new = [NewTimer(topic=topic, payload=b"3", delay=60, timer_id=name) for name in ("a", "b")]
        results = await client.schedule_batch(new, create_only=True)
        timer = await client.get(topic, "a")
    assert (first.result, second.result) == (ChangeResult.CREATED, ChangeResult.UNCHANGED)
    assert second.due_time == first.due_time
    assert [result.timer and result.timer.result for result in results] == [
        ChangeResult.UNCHANGED,
        ChangeResult.CREATED,
    ]
    assert timer is not None
    assert (timer.payload, timer.due_time) == (b"1", first.due_time)


async def test_an_occurrence_that_is_named_once_more(subject: Subject, topic: str) -> None:
    """By one call, by columns and one by one: it stays as it is while it lives, its delivery has the name,
    and a name that is none is refused for its timer alone."""
    seen = Seen(subject, topic)
    name = f"a/{0xAB:032x}"
    named = NewTimer(topic=topic, payload=b"x", delay=60, timer_id="a", occurrence_id=name)
    with_headers = NewTimer(
        topic=topic, payload=b"y", delay=60, timer_id="a", occurrence_id=name, expire_after=60
    )
    async with subject.serving():
        client = subject.client
        first = await client.schedule(topic, b"x", delay=60, timer_id="a", occurrence_id=name)
        assert first.result is ChangeResult.CREATED
        again = await client.schedule(topic, b"y", delay=90, timer_id="a", occurrence_id=name)
        assert (again.result, again.due_time) == (ChangeResult.UNCHANGED, first.due_time)
        beside = NewTimer(topic=topic, payload=b"", delay=60, timer_id="b", occurrence_id=f"b/{1:032x}")
        for repeat in (named, with_headers):
            results = await client.schedule_batch([repeat, beside])
            assert [each.error for each in results] == [None, None]
            stands = results[0].timer
            assert stands is not None
            assert (stands.result, stands.due_time) == (ChangeResult.UNCHANGED, first.due_time)
        await client.cancel(topic, "b")
        object.__setattr__(named, "occurrence_id", "b/0")
        wrong, right = await client.schedule_batch([named, beside])
        assert isinstance(wrong.error, InvalidArgument)
        assert (wrong.error.field, right.error) == ("occurrence_id", None)
        await client.cancel(topic, "b")
        await client.run_timer(topic, "a")
        await seen.times(1)
        await seen.empty()
        with pytest.raises(InvalidArgument, match="occurrence_id"):
            await client.schedule(topic, b"", timer_id="a", debounce=1, occurrence_id=name)
    assert [(got.occurrence_id, got.payload) for got in seen.deliveries] == [(name, b"x")]


async def test_changes_on_condition_of_the_due_time(subject: Subject, topic: str) -> None:
    """Who knows an older one changes nothing; where there is no timer, there is nothing to change."""
    async with subject.serving():
        client = subject.client
        first = await client.schedule(topic, b"1", delay=3600, timer_id="a")
        moved = await client.schedule(topic, b"2", delay=7200, timer_id="a", only_if_due_at=first.due_time)
        late = await client.schedule(topic, b"3", delay=60, timer_id="a", only_if_due_at=first.due_time)
        assert (moved.result, late.result) == (ChangeResult.REPLACED, ChangeResult.UNCHANGED)
        assert late.due_time == moved.due_time
        assert (moved.replaced, late.replaced) == (True, False)
        kept = await client.cancel(topic, "a", only_if_due_at=first.due_time)
        gone = await client.cancel(topic, "a", only_if_due_at=moved.due_time)
        missing = await client.cancel(topic, "a", only_if_pending=True)
        assert [each.result for each in (kept, gone, missing)] == [
            ChangeResult.UNCHANGED,
            ChangeResult.CANCELLED,
            ChangeResult.NOT_FOUND,
        ]
        with pytest.raises(NotFound, match="has no timer 'a'"):
            await client.schedule(topic, b"4", delay=60, timer_id="a", only_if_pending=True)
        assert await client.get(topic, "a") is None


async def test_what_is_in_flight_can_be_spared(subject: Subject, topic: str) -> None:
    """By schedule, cancel and run; the delivery ends as if nobody had asked."""
    seen = Seen(subject, topic)
    changes: list[ScheduledTimer | TimerChange] = []

    async def ask(_: Delivery) -> None:
        client = subject.client
        changes.extend(
            [
                await client.schedule(topic, b"new", delay=0, timer_id="a", only_if_pending=True),
                await client.cancel(topic, "a", only_if_pending=True),
                await client.run_timer(topic, "a"),
            ]
        )

    seen.then = ask
    async with subject.serving():
        await subject.client.schedule(topic, b"old", delay=0, timer_id="a")
        await seen.times(1)
        await seen.empty()
    assert [(change.result, change.delivery_under_way) for change in changes] == [
        (ChangeResult.IN_FLIGHT, True)
    ] * 3
    assert [got.payload for got in seen.deliveries] == [b"old"]


async def test_a_change_tells_that_the_handler_is_at_work(subject: Subject, topic: str) -> None:
    """Replaced, or cancelled, while it runs; once more, and nothing is under way that is known of."""
    seen = Seen(subject, topic)
    told: list[bool] = []

    async def change(_: Delivery) -> None:
        new = [NewTimer(topic=topic, payload=b"", delay=3600, timer_id=each) for each in ("a", "b")]
        for result in [*await subject.client.schedule_batch(new), *await subject.client.schedule_batch(new)]:
            assert result.timer is not None
            told.append(result.timer.delivery_under_way)

    async def is_told(count: int) -> bool:
        return len(told) == count

    async def cancel(_: Delivery) -> None:
        told.extend([(await subject.client.cancel(topic, "a")).delivery_under_way for _again in range(2)])

    seen.then = change
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0, timer_id="a")
        await subject.until(lambda: is_told(4))
        seen.then = cancel
        await subject.client.cancel(topic, "b")
        waiting = await subject.client.schedule(topic, b"", delay=0, timer_id="a")
        await subject.until(lambda: is_told(6))
        await seen.empty()
    assert not waiting.delivery_under_way
    assert told == [True, False, False, False, True, False]


async def test_a_timer_that_is_run_comes_at_once(subject: Subject, topic: str) -> None:
    """From its waiting, and from its back-off, with the attempts that it had."""
    seen = Seen(subject, topic)

    async def nack(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise Nack(retry_after=3600)

    seen.then = nack
    async with subject.serving():
        client = subject.client
        assert (await client.run_timer(topic, "a")).result is ChangeResult.NOT_FOUND
        await client.schedule(topic, b"", delay=3600, timer_id="a")
        assert (await client.run_timer(topic, "a")).result is ChangeResult.RUN
        await seen.times(1)

        async def waits() -> bool:
            return (await client.run_timer(topic, "a")).result is ChangeResult.RUN

        await subject.until(waits)
        await seen.times(2)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2]
    assert seen.deliveries[0].occurrence_id == seen.deliveries[1].occurrence_id


async def test_a_full_topic_takes_no_more(subject: Subject, topic: str) -> None:
    """What lives may be replaced; in a batch the others are stored."""
    async with subject.serving():
        client = subject.client
        new = [NewTimer(topic=topic, payload=b"", delay=60, timer_id=f"{n}") for n in range(MAX_WAITING + 1)]
        results = await client.schedule_batch(new)
        with pytest.raises(ResourceExhausted, match="which is its max_waiting") as caught:
            await client.schedule(topic, b"", delay=60)
        assert (await client.schedule(topic, b"", delay=60, timer_id="0")).replaced
    assert [result.ok for result in results] == [True] * MAX_WAITING + [False]
    assert isinstance(results[-1].error, ResourceExhausted)
    assert results[-1].error.message == caught.value.message


async def reject(_: Delivery) -> None:
    raise Reject("no such customer")


async def fail_always(_: Delivery) -> None:
    raise ValueError


@pytest.mark.parametrize(
    ("then", "policy"),
    [(reject, AckPolicy.NACK_ON_ERROR), (fail_always, AckPolicy.REJECT_ON_ERROR)],
    ids=["raised", "by policy"],
)
async def test_a_rejected_timer_never_comes_again(
    subject: Subject, topic: str, then: Callable[[Delivery], Awaitable[None]], policy: AckPolicy
) -> None:
    seen = Seen(subject, topic, ack_policy=policy)
    seen.then = then
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(1)
        await seen.empty()
    assert len(seen.deliveries) == 1


async def test_a_handler_that_schedules_its_own_id_goes_on(
    subject: Subject, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ACK is void, and said to be; the new intent is a new occurrence with attempt 1."""
    caplog.set_level(logging.WARNING, "relay.client")
    seen = Seen(subject, topic)

    async def again(delivery: Delivery) -> None:
        if delivery.payload == b"1":
            await subject.client.schedule(topic, b"2", delay=0.3, timer_id="a")

    seen.then = again
    async with subject.serving():
        await subject.client.schedule(topic, b"1", delay=0, timer_id="a")
        await seen.times(2)
        await seen.empty()
    assert [(got.payload, got.attempt) for got in seen.deliveries] == [(b"1", 1), (b"2", 1)]
    assert seen.deliveries[0].occurrence_id != seen.deliveries[1].occurrence_id
    assert "timer_id=a reason=STALE" in caplog.text


@pytest.mark.parametrize("then", [Nack(retry_after=0), Reschedule(delay=0)], ids=["nack", "reschedule"])
async def test_a_timer_that_is_cancelled_in_flight_is_gone(
    subject: Subject, topic: str, caplog: pytest.LogCaptureFixture, then: Exception
) -> None:
    """The newest intent wins: what the handler says then is void, and brings nothing back to life."""
    caplog.set_level(logging.WARNING, "relay.client")
    seen = Seen(subject, topic)

    async def cancel(_: Delivery) -> None:
        assert await subject.client.cancel(topic, "a")
        raise then

    seen.then = cancel
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0, timer_id="a")
        await seen.times(1)

        async def told() -> bool:
            return "timer_id=a reason=GONE" in caplog.text

        await subject.until(told)
        assert await subject.client.get(topic, "a") is None
    assert len(seen.deliveries) == 1


async def test_an_extension_and_an_outcome_of_its_own(subject: Subject, topic: str) -> None:
    """EXTEND is no end; what the handler says stands against what it raises."""
    seen = Seen(subject, topic)

    async def work(delivery: Delivery) -> None:
        await delivery.extend()
        assert not delivery.settled
        await delivery.extend()
        await delivery.ack()
        assert delivery.settled
        raise ValueError

    seen.then = work
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(1)
        await seen.empty()
    assert len(seen.deliveries) == 1
    assert not seen.deliveries[0].lost


async def test_what_is_never_settled_comes_again_after_delivery_timeout(subject: Subject, hasty: str) -> None:
    """Until then it is leased. The attempt counts, since its handler had started."""
    seen = Seen(subject, hasty, ack_policy=AckPolicy.MANUAL)

    async def settle_the_second(delivery: Delivery) -> None:
        if delivery.attempt == 2:
            await delivery.ack()

    seen.then = settle_the_second
    async with subject.serving():
        await subject.client.schedule(hasty, b"", delay=0, timer_id="a")
        await seen.times(1)
        timer = await subject.client.get(hasty, "a")
        assert timer is not None
        assert timer.state is TimerState.LEASED
        await seen.times(2)
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2]
    assert seen.deliveries[0].occurrence_id == seen.deliveries[1].occurrence_id
    # The last renewal may have come just before the timeout, or a lease before it.
    assert (
        timedelta(seconds=TIMEOUT)
        <= seen.at[1] - seen.at[0]
        < timedelta(seconds=TIMEOUT + LEASE + subject.slack)
    )


async def test_manual_is_settled_from_outside(subject: Subject, topic: str) -> None:
    seen = Seen(subject, topic, ack_policy=AckPolicy.MANUAL)
    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0)
        await seen.times(1)
        await seen.deliveries[0].nack(retry_after=0.1)
        await seen.times(2)
        await seen.deliveries[1].ack()
        await seen.empty()
    assert [got.attempt for got in seen.deliveries] == [1, 2]


async def test_a_plain_handler_is_called_too(subject: Subject, topic: str) -> None:
    got: list[str] = []

    @subject.client.on(topic)
    def handle(delivery: Delivery) -> None:
        got.append(delivery.timer_id)

    async with subject.serving():
        await subject.client.schedule(topic, b"", delay=0, timer_id="a")

        async def called() -> bool:
            return got == ["a"]

        await subject.until(called)


async def test_timers_without_a_handler_wait(subject: Subject, topic: str) -> None:
    """They are due, and pending; no attempt counts."""
    seen = Seen(subject, topic)
    async with subject.serving():
        await subject.client.schedule(f"{topic}-none", b"", delay=0, timer_id="a")
        await subject.client.schedule(topic, b"", delay=0.2)
        await seen.times(1)
        timer = await subject.client.get(f"{topic}-none", "a")
        assert timer is not None
        assert (timer.state, timer.attempts) == (TimerState.PENDING, 0)
        assert timer.next_claim_time == timer.due_time <= subject.now()


async def test_a_listing_is_paged_in_the_order_of_claims(subject: Subject, topic: str) -> None:
    async with subject.serving():
        await subject.client.schedule_batch(
            NewTimer(topic=topic, payload=b"x", delay=3600 - n, timer_id=f"{n}") for n in range(5)
        )
        found = [each async for each in subject.client.list(topic, page_size=2)]
        leased = [each async for each in subject.client.list(topic, state=TimerState.LEASED)]
    assert [each.timer_id for each in found] == ["4", "3", "2", "1", "0"]
    assert {each.state for each in found} == {TimerState.PENDING}
    assert leased == []


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"payload": b"x" * ((1 << 20) + 1)}, "payload", "max_payload_bytes of this topic is 1048576"),
    ({"headers": {"": "x"}}, "headers", "has an empty name"),
    ({"content_type": "a\nb"}, "content_type", "control character U+000A"),
    ({"delay": 300_000_000_000}, "delay", "after the year 9999"),
    ({"expire_after": 300_000_000_000}, "expire_after", "after the year 9999"),
]


@pytest.mark.parametrize(("wrong", "field", "words"), REFUSED, ids=[field for _, field, _ in REFUSED])
async def test_what_the_relay_refuses(
    subject: Subject, topic: str, wrong: dict[str, Any], field: str, words: str
) -> None:
    """With the same field and words; in a batch, for that timer alone."""
    good = {"payload": b"", "delay": 3600, "timer_id": "a"}
    async with subject.serving():
        with pytest.raises(InvalidArgument, match=re.escape(words)) as caught:
            await subject.client.schedule(topic, **{**good, **wrong})
        timers: list[dict[str, Any]] = [{**good, **wrong}, {**good, "timer_id": "b"}]
        results = await subject.client.schedule_batch([NewTimer(topic=topic, **each) for each in timers])
    assert caught.value.field == field
    assert [result.ok for result in results] == [False, True]
    assert isinstance(results[0].error, InvalidArgument)
    assert results[0].error.field == field
    assert words in results[0].error.message


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"headers": {"": "x"}}, "headers"), ({"content_type": "a\nb"}, "content_type")],
    ids=["headers", "content_type"],
)
async def test_what_is_wrong_of_all_is_told_of_each(
    subject: Subject, topic: str, wrong: dict[str, Any], field: str
) -> None:
    """A call's worth of such timers hinders no other call of the batch."""
    bad = [NewTimer(topic=topic, payload=b"", delay=3600, **wrong) for _ in range(MAX_TIMERS)]
    good = [NewTimer(topic=topic, payload=b"", delay=3600, timer_id=f"{n}") for n in range(2)]
    async with subject.serving():
        results = await subject.client.schedule_batch([*bad, *good])
        assert await subject.client.get(topic, "1") is not None
    assert [result.ok for result in results] == [False] * MAX_TIMERS + [True] * 2
    errors = [result.error for result in results[:MAX_TIMERS]]
    assert {error.field for error in errors if isinstance(error, InvalidArgument)} == {field}


@pytest.mark.parametrize("alike", [True, False], ids=["by columns", "one by one"])
async def test_a_batch_carries_the_trace(subject: Subject, topic: str, alike: bool) -> None:
    """Of who schedules it, however it goes."""
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    other: dict[str, Any] = {} if alike else {"content_type": "text/plain"}
    new = [
        NewTimer(topic=topic, payload=b"", delay=3600, timer_id="a"),
        NewTimer(topic=topic, payload=b"", delay=3600, timer_id="b", **other),
    ]
    async with subject.serving():
        with within({"traceparent": traceparent}):
            await subject.client.schedule_batch(new)
        found = [await subject.client.get(topic, name) for name in ("a", "b")]
    assert [timer.headers["traceparent"] for timer in found if timer is not None] == [traceparent] * 2


# ------------------------------------------------------------------------------ recurrences

EVERY_SECOND: dict[str, Any] = {"every": 1, "overlap": "allow", "catch_up": "all"}
"""A busy machine may tick late, and hand out late: then none is left out for that."""
BERLIN: dict[str, Any] = {"cron": "30 2 * * *", "zone": "Europe/Berlin"}


class Kept:
    """A recurrence `r` of a topic, and what a test asks of it."""

    def __init__(self, subject: Subject, topic: str) -> None:
        self.subject, self.topic = subject, topic
        self.calls = subject.client.recurrences

    async def read(self) -> Recurrence:
        found = await self.calls.get(self.topic, "r")
        assert found is not None
        return found

    async def until(self, condition: Callable[[Recurrence], bool]) -> Recurrence:
        """Until the recurrence is so; return it as it was then."""
        found: list[Recurrence] = []

        async def is_so() -> bool:
            found[:] = [await self.read()]
            return condition(found[0])

        await self.subject.until(is_so)
        return found[0]

    async def delete(self) -> None:
        """So that the relay has nothing to do with it while other tests run."""
        await self.calls.delete(self.topic, "r", cancel_waiting=True)


@pytest.fixture
def kept(subject: Subject, topic: str) -> Kept:
    return Kept(subject, topic)


def nominal(delivery: Delivery) -> datetime:
    return datetime.fromisoformat(delivery.headers["relay-nominal-time"])


async def test_a_recurrence_is_created_replaced_or_left(kept: Kept) -> None:
    """Each change is a new version, and a version that somebody else has changed is refused."""
    client, topic = kept.subject.client, kept.topic
    async with kept.subject.serving():
        assert await client.recurrences.get(topic, "r") is None
        options: dict[str, Any] = {**BERLIN, "payload": b"\x00", "headers": {"k": "ö"}, "jitter": 5}
        made = await client.recur("r", topic=topic, if_version=0, **options)
        same = await client.recur("r", topic=topic, **options)
        with pytest.raises(FailedPrecondition) as caught:
            await client.recur("r", topic=topic, if_version=0, **options)
        changed = await client.recur("r", topic=topic, **{**options, "payload": b"1"})
        other = await client.recur("r", topic=topic, if_version=2, every=3600)
        found = await kept.read()
    assert [each.result for each in (made, same, changed, other)] == [
        PutResult.CREATED,
        PutResult.UNCHANGED,
        PutResult.REPLACED,
        PutResult.REPLACED,
    ]
    assert [each.version for each in (made, same, changed, other, found)] == [1, 1, 2, 3, 3]
    assert caught.value.message == "if_version: recurrence 'r' has version 1, not 0; read it again"
    assert (made.payload, made.headers, made.jitter) == (b"\x00", {"k": "ö"}, timedelta(seconds=5))
    assert (made.next_time, made.runs, made.last_timer_id) == (changed.next_time, 0, "")
    assert (found.cron, found.every, found.payload) == ("", timedelta(hours=1), b"")
    assert found.next_time is not None
    assert found.next_time.minute == 0


REFUSED_RULES: list[tuple[dict[str, Any], str, str]] = [
    ({"cron": "61 * * * *"}, "cron", 'minute 61 in "61 * * * *": 0 to 59'),
    ({"cron": "0 0 30 2 *"}, "cron", "never fires: no month that it names has such a day"),
    ({"cron": "0 3 * * *", "zone": "Europe/Berlni"}, "zone", "'Europe/Berlni' is not a time zone"),
    ({"every": 0.5}, "every", "0.5 s apart; the topic allows 1 s and more"),
    ({"every": 60, "leave_out": ["2026-02-30"]}, "leave_out[0]", "is not a date such as"),
    ({"every": 60, "catch_up_window": 5}, "catch_up_window", "is set with LATEST"),
    ({"every": 60, "jitter": 90_000}, "jitter", "is longer than a day"),
    ({"every": 60, "headers": {"Relay-Run": "1"}}, "headers", "are the relay's own"),
    ({"every": 60, "payload": b"x" * ((1 << 20) + 1)}, "payload", "max_payload_bytes of this topic is"),
]


@pytest.mark.parametrize(
    ("wrong", "field", "words"), REFUSED_RULES, ids=[words for *_, words in REFUSED_RULES]
)
async def test_recurrences_that_the_relay_refuses(
    kept: Kept, wrong: dict[str, Any], field: str, words: str
) -> None:
    """With the same argument and words; nothing is kept."""
    async with kept.subject.serving():
        with pytest.raises(InvalidArgument, match=re.escape(words)) as caught:
            await kept.subject.client.recur("r", topic=kept.topic, **wrong)
        assert await kept.calls.get(kept.topic, "r") is None
    assert caught.value.field == field


async def test_calls_about_a_recurrence_that_is_not_there(kept: Kept) -> None:
    calls, topic = kept.calls, kept.topic
    now = datetime(2026, 1, 1, tzinfo=UTC)
    async with kept.subject.serving():
        for call in (calls.pause, calls.resume, calls.trigger, calls.history):
            with pytest.raises(NotFound, match="has no recurrence 'r'"):
                await call(topic, "r")
        with pytest.raises(NotFound):
            await calls.backfill(topic, "r", now, now + timedelta(days=1))
        assert await calls.delete(topic, "r", cancel_waiting=True) == (False, 0)


async def test_recurrences_are_listed_by_page_prefix_and_pause(kept: Kept) -> None:
    """In the order of their ids' bytes, without payloads."""
    client, topic = kept.subject.client, kept.topic
    async with kept.subject.serving():
        for name in ("b-ü", "a-2", "b-z", "a-10"):
            await client.recur(name, topic=topic, every=86_400, payload=b"x")
        await client.recurrences.pause(topic, "a-10", "why")
        found = [each.recurrence_id async for each in client.recurrences.list(topic, page_size=1)]
        some = [each.recurrence_id async for each in client.recurrences.list(topic, prefix="b-", page_size=3)]
        paused = [each async for each in client.recurrences.list(topic, paused=True)]
        others = [each.recurrence_id async for each in client.recurrences.list(topic, paused=False)]
    assert found == ["a-10", "a-2", "b-z", "b-ü"]
    assert some == ["b-z", "b-ü"]
    assert [(each.recurrence_id, each.pause_note) for each in paused] == [("a-10", "why")]
    assert others == ["a-2", "b-z", "b-ü"]


async def test_a_preview_goes_by_the_zone_and_by_the_relay_s_clock(subject: Subject) -> None:
    client = subject.client
    async with subject.serving():
        around = datetime(2026, 3, 28, tzinfo=UTC)
        shown = await client.recurrences.preview(
            **BERLIN, leave_out=["2026-03-30"], after_time=around, count=3
        )
        before = subject.now()
        (first,) = await client.recurrences.preview(every=1, count=1)
        after = subject.now()
        with pytest.raises(InvalidArgument, match="minute 61"):
            await client.recurrences.preview(cron="61 * * * *")
    assert [(each.time.isoformat(), each.left_out, each.shifted) for each in shown] == [
        ("2026-03-28T01:30:00+00:00", "", timedelta(0)),
        ("2026-03-29T01:30:00+00:00", "", timedelta(hours=1)),
        ("2026-03-30T00:30:00+00:00", "calendar", timedelta(0)),
    ]
    assert before < first.time <= after + timedelta(seconds=1)


async def test_each_instant_has_its_occurrence_and_never_early(kept: Kept) -> None:
    """An ordinary timer: its name and headers say whose it is, which one, and what came before."""
    seen = Seen(kept.subject, kept.topic)
    async with kept.subject.serving():
        options: dict[str, Any] = {"payload": b"x", "headers": {"k": "v"}, "content_type": "a/b"}
        await kept.subject.client.recur("r", topic=kept.topic, **EVERY_SECOND, **options)
        await seen.times(3)
        found = await kept.read()
        await kept.delete()
    got = seen.deliveries[:3]
    first = nominal(got[0])
    assert [nominal(each) - first for each in got] == [timedelta(seconds=n) for n in range(3)]
    assert [each.timer_id for each in got] == [f"r@{nominal(each):%Y-%m-%dT%H:%M:%SZ}" for each in got]
    assert [each.headers["relay-run"] for each in got] == ["1", "2", "3"]
    assert [each.headers.get("relay-previous") for each in got] == [None, got[0].timer_id, got[1].timer_id]
    assert {(each.headers["relay-recurrence"], each.headers["k"]) for each in got} == {("r", "v")}
    assert {(each.payload, each.content_type, each.attempt) for each in got} == {(b"x", "a/b", 1)}
    assert all(each.due_time == nominal(each) <= at for each, at in zip(got, seen.at, strict=False))
    assert (found.runs >= 3, found.left_out) == (True, {})


async def test_occurrences_are_late_by_the_same_jitter(kept: Kept) -> None:
    seen = Seen(kept.subject, kept.topic)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, jitter=2, **EVERY_SECOND)
        await seen.times(2)
        await kept.delete()
    (late,) = {each.due_time - nominal(each) for each in seen.deliveries}
    assert timedelta(0) < late < timedelta(seconds=2)
    assert all(each.due_time <= at for each, at in zip(seen.deliveries, seen.at, strict=True))


async def test_a_recurrence_ends_after_its_last_run(kept: Kept) -> None:
    seen = Seen(kept.subject, kept.topic)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, max_runs=2, **EVERY_SECOND)
        await seen.times(2)
        await seen.empty()
        found = await kept.read()
    assert (found.runs, found.next_time, len(seen.deliveries)) == (2, None, 2)


async def test_an_occurrence_that_dies_ends_nothing(kept: Kept) -> None:
    """The next one comes all the same; those that fell between are counted."""
    seen = Seen(kept.subject, kept.topic)
    seen.then = fail_always
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, every=1, catch_up="all")
        await seen.times(ATTEMPTS + 1)
        found = await kept.read()
        await kept.delete()
    assert seen.ids[:ATTEMPTS] == [seen.ids[0]] * ATTEMPTS
    assert seen.ids[ATTEMPTS] != seen.ids[0]
    assert set(found.left_out) <= {"overlap"}


async def test_an_occurrence_expires_as_its_recurrence_says(kept: Kept) -> None:
    """It waited for another attempt for longer than it was of use."""
    seen = Seen(kept.subject, kept.topic)

    async def nack(delivery: Delivery) -> None:
        raise Nack(retry_after=1.1)

    seen.then = nack
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, expire_after=1, **BERLIN)
        assert (await kept.calls.trigger(kept.topic, "r")).startswith("r@")
        await kept.until(lambda found: not found.last_waits)
    assert [each.attempt for each in seen.deliveries] in ([], [1])


async def test_while_one_has_not_ended_others_are_skipped(kept: Kept) -> None:
    seen = Seen(kept.subject, kept.topic, ack_policy=AckPolicy.MANUAL)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, every=1, overlap="skip", catch_up="all")
        found = await kept.until(lambda found: found.left_out.get("overlap", 0) >= 2)
        history = await kept.calls.history(kept.topic, "r")
        await seen.times(1)
        await seen.deliveries[0].ack()
        await seen.times(2)
        await kept.delete()
    first = nominal(seen.deliveries[0])
    assert (found.runs, found.last_waits, found.last_timer_id) == (1, True, seen.ids[0])
    assert (found.last_time, set(found.left_out)) == (first, {"overlap"})
    assert [(each.timer_id, each.left_out) for each in history[:3]] == [
        (seen.ids[0], ""),
        ("", "overlap"),
        ("", "overlap"),
    ]
    assert [each.time - first for each in history[:3]] == [timedelta(seconds=n) for n in range(3)]
    assert all(each.lateness >= timedelta(0) for each in history)
    assert nominal(seen.deliveries[1]) - first >= timedelta(seconds=3)


async def test_while_one_has_not_ended_one_is_kept_back(kept: Kept) -> None:
    """It comes when the one before has ended; further ones are counted."""
    seen = Seen(kept.subject, kept.topic, ack_policy=AckPolicy.MANUAL)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, every=1, overlap="buffer", catch_up="all")
        found = await kept.until(lambda found: found.left_out.get("overlap", 0) >= 1)
        await seen.times(1)
        await seen.deliveries[0].ack()
        await seen.times(2)
        await kept.delete()
    first, second = seen.deliveries[:2]
    assert found.buffered_time == nominal(second) == nominal(first) + timedelta(seconds=1)
    assert (found.runs, found.last_timer_id) == (1, first.timer_id)
    assert second.headers["relay-previous"] == first.timer_id


async def test_the_next_one_cancels_the_one_before(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """Whose outcome is void then."""
    caplog.set_level(logging.WARNING, "relay.client")
    seen = Seen(kept.subject, kept.topic, ack_policy=AckPolicy.MANUAL)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, every=1, overlap="cancel", catch_up="all")
        await seen.times(2)
        await kept.until(lambda found: found.last_timer_id > seen.ids[0])
        assert await kept.subject.client.get(kept.topic, seen.ids[0]) is None
        await kept.calls.pause(kept.topic, "r")
        try:
            await seen.deliveries[0].ack()
        except DeliveryLost:  # said already, where a renewal has found out
            pass

        async def told() -> bool:
            return f"timer_id={seen.ids[0]} reason=GONE" in caplog.text

        await kept.subject.until(told)
        await kept.delete()
    assert seen.ids[1] > seen.ids[0]


async def test_instants_of_a_pause_are_counted(kept: Kept) -> None:
    seen = Seen(kept.subject, kept.topic)
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, every=3_600, catch_up="all")
        before = kept.subject.now()
        paused = await kept.calls.pause(kept.topic, "r", "the warehouse moves")
        await kept.subject.client.recur("r", topic=kept.topic, **EVERY_SECOND)
        counted = await kept.until(lambda found: found.left_out.get("paused", 0) >= 2)
        assert seen.deliveries == []
        resumed = await kept.calls.resume(kept.topic, "r")
        await seen.times(1)
        await kept.delete()
    assert (paused.paused, paused.pause_note, paused.version) == (True, "the warehouse moves", 2)
    assert paused.pause_time is not None
    assert before <= paused.pause_time
    assert (counted.pause_note, counted.pause_time) == ("the warehouse moves", paused.pause_time)
    assert (resumed.paused, resumed.pause_note, set(resumed.left_out)) == (False, "", {"paused"})
    assert seen.deliveries[0].headers["relay-run"] == "1"


async def test_a_trigger_is_a_further_run(kept: Kept) -> None:
    """It comes now, beside the rule, unless the one before is in its way."""
    seen = Seen(kept.subject, kept.topic, ack_policy=AckPolicy.MANUAL)
    async with kept.subject.serving():
        made = await kept.subject.client.recur("r", topic=kept.topic, payload=b"x", **BERLIN)
        first = await kept.calls.trigger(kept.topic, "r")
        assert await kept.calls.trigger(kept.topic, "r") == ""
        await seen.times(1)
        await seen.deliveries[0].ack()
        second = await kept.calls.trigger(kept.topic, "r")
        await seen.times(2)
        await seen.deliveries[1].ack()
        await seen.empty()
        found, history = await kept.read(), await kept.calls.history(kept.topic, "r")
    assert seen.ids == [first, second]
    assert [name.rpartition("~")[2] for name in seen.ids] == ["2", "3"]
    assert [each.headers["relay-run"] for each in seen.deliveries] == ["1", "2"]
    assert seen.deliveries[1].headers["relay-previous"] == first
    assert [each.payload for each in seen.deliveries] == [b"x", b"x"]
    assert (found.runs, found.next_time, found.left_out) == (2, made.next_time, {})
    assert [each.timer_id for each in history] == [first, second]


async def test_a_backfill_makes_what_has_passed(kept: Kept) -> None:
    """In order, one after the other; what is in the future or too much is refused."""
    seen = Seen(kept.subject, kept.topic)
    start = datetime(2020, 3, 28, tzinfo=UTC)
    async with kept.subject.serving():
        calls, topic = kept.calls, kept.topic
        await kept.subject.client.recur("r", topic=topic, overlap="allow", **BERLIN)
        filled = await calls.backfill(topic, "r", start, start + timedelta(days=3), interval=0.2)
        await seen.times(3)
        await seen.empty()
        for days, error, words in (
            (4_000, InvalidArgument, "end_time: is in the future"),
            (501, InvalidArgument, "end_time: has more than 500 instants before it"),
            (MAX_WAITING + 1, ResourceExhausted, "which is its max_waiting"),
            (0, InvalidArgument, "end_time: is not after start_time"),
        ):
            with pytest.raises(error, match=words):
                await calls.backfill(topic, "r", start, start + timedelta(days=days))
        nothing = await calls.backfill(topic, "r", start, start + timedelta(minutes=1))
        history = await calls.history(topic, "r")
    names = ["r@2020-03-28T01:30:00Z~2", "r@2020-03-29T01:30:00Z~2", "r@2020-03-30T00:30:00Z~2"]
    assert seen.ids == names
    assert (filled.occurrences, nothing.occurrences, nothing.first_time) == (3, 0, None)
    assert [filled.first_time, filled.last_time] == [datetime.fromisoformat(names[n][2:22]) for n in (0, 2)]
    dues = [each.due_time for each in seen.deliveries]
    assert [due - dues[0] for due in dues] == [timedelta(seconds=n / 5) for n in range(3)]
    assert [each.timer_id for each in history] == names


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_recurrence_is_deleted_with_what_waits_or_without(kept: Kept, cancels: bool) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    async with kept.subject.serving():
        calls, topic = kept.calls, kept.topic
        await kept.subject.client.recur("r", topic=topic, overlap="allow", **BERLIN)
        await calls.backfill(topic, "r", start, start + timedelta(days=2), interval=3_600)
        gone = await calls.delete(topic, "r", cancel_waiting=cancels)
        assert await calls.get(topic, "r") is None
        left = [each.timer_id async for each in kept.subject.client.list(topic)]
        again = await kept.subject.client.recur("r", topic=topic, **BERLIN)
    names = ["r@2020-01-01T01:30:00Z~2", "r@2020-01-02T01:30:00Z~2"]
    assert (gone.deleted, gone.cancelled, left) == (True, 2 if cancels else 0, [] if cancels else names)
    assert (again.result, again.version, again.runs) == (PutResult.CREATED, 1, 0)


@pytest.mark.slow
async def test_what_finds_no_room_comes_later(kept: Kept) -> None:
    """A full topic loses no instant."""
    async with kept.subject.serving():
        await kept.subject.client.recur("r", topic=kept.topic, **EVERY_SECOND)
        full = await kept.until(lambda found: found.runs == MAX_WAITING)
        assert full.next_time is not None
        late = full.next_time + timedelta(seconds=2)

        async def passed() -> bool:
            return kept.subject.now() > late

        await kept.subject.until(passed)
        waiting = await kept.read()
        waits = [each.timer_id async for each in kept.subject.client.list(kept.topic)]
        assert await kept.subject.client.cancel(kept.topic, waits[0])
        found = await kept.until(lambda found: found.runs == MAX_WAITING + 1)
        await kept.delete()
    assert (waiting.runs, waiting.next_time, len(waits)) == (MAX_WAITING, full.next_time, MAX_WAITING)
    assert (found.last_time, found.left_out) == (full.next_time, {})


async def test_a_recurrence_above_a_handler_is_declared(kept: Kept) -> None:
    """Before the handlers get deliveries."""
    seen = Seen(kept.subject, kept.topic)
    handler = kept.subject.client.registrations[kept.topic].handler
    kept.subject.client.every("1 s", topic=kept.topic, recurrence_id="r", overlap="allow")(handler)
    async with kept.subject.serving():
        found = await kept.read()
        await seen.times(2)
        await kept.delete()
    assert (found.version, found.every, found.overlap) == (1, timedelta(seconds=1), "allow")


async def test_a_declaration_that_is_refused(subject: Subject, topic: str) -> None:
    """It ends what was to serve, and says which one it was."""

    @subject.client.cron("61 * * * *", topic=topic)
    async def wrong(_: Delivery) -> None: ...

    with pytest.raises(InvalidArgument, match="minute 61") as caught:
        async with subject.serving():
            pass
    assert caught.value.field == "cron"
    assert caught.value.__notes__ == [f"(recurrence 'wrong' of topic {topic!r})"]
