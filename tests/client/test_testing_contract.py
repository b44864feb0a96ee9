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
    InvalidArgument,
    Nack,
    NewTimer,
    NotFound,
    OnConflict,
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

    def __init__(self) -> None:
        self.client = RelayClient()
        self.relay = InMemoryRelay(
            self.client,
            lease_ttl=LEASE,
            delivery_timeout=TIMEOUT,
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
    return Memory() if request.param == "memory" else Real(request.getfixturevalue("daemon"))


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
