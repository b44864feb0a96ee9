"""`relay.client.testing`: the clock in the test's hand, and how it meets an application."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from relay.client import (
    AckPolicy,
    CallError,
    Delivery,
    InvalidArgument,
    Nack,
    NewTimer,
    PushHandlers,
    Reject,
    RelayClient,
    Reschedule,
    ResourceExhausted,
    SyncRelayClient,
    TimerState,
    UsageError,
)
from relay.client.calls.topics import Topics
from relay.client.testing import Delivered, InMemoryRelay, Outcome, RetryPolicy, SyncInMemoryRelay, timers
from tests.worlds.waiting import PATIENCE

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def brief(delivered: list[Delivered]) -> list[tuple[str, int, Outcome | None]]:
    return [(each.timer_id, each.attempt, each.outcome) for each in delivered]


async def ack(_: Delivery) -> None:
    """Returns."""


# -------------------------------------------------------------------------- the clock


async def test_nothing_comes_before_its_time_to_the_microsecond() -> None:
    """And at its time it does, without any waiting."""
    async with InMemoryRelay(now=NEW_YEAR) as relay:
        relay.client.on("t")(ack)
        await relay.client.schedule("t", b"", delay=timedelta(days=3), timer_id="a")
        assert await relay.run_due() == []
        assert await relay.advance(timedelta(days=3) - timedelta(microseconds=1)) == []
        assert brief(await relay.advance(timedelta(microseconds=1))) == [("a", 1, Outcome.ACK)]
        assert relay.now == NEW_YEAR + timedelta(days=3)
        assert await relay.client.get("t", "a") is None


async def test_handlers_run_at_the_time_of_their_timer() -> None:
    """A long advance stops at each; what a handler schedules on the way comes on the way, too."""
    at: list[tuple[str, datetime]] = []
    async with InMemoryRelay(now=NEW_YEAR) as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            at.append((delivery.timer_id, relay.now))
            if delivery.timer_id == "a":
                await relay.client.schedule("t", b"", delay=60, timer_id="between")

        await relay.client.schedule("t", b"", delay=7200, timer_id="b")
        await relay.client.schedule("t", b"", delay=3600, timer_id="a")
        delivered = await relay.advance(days=1)
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    assert at == [("a", NEW_YEAR + hour), ("between", NEW_YEAR + hour + minute), ("b", NEW_YEAR + 2 * hour)]
    assert [(each.timer_id, each.at) for each in delivered] == at
    assert relay.now == NEW_YEAR + timedelta(days=1)


async def test_what_was_delivered_is_told() -> None:
    """Attempt by attempt, with outcome, pause and reason."""
    async with InMemoryRelay(now=NEW_YEAR) as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            if delivery.attempt == 1:
                raise Nack(retry_after=5, reason="busy")
            if delivery.attempt == 2:
                raise ValueError("its words may quote the payload")

        await relay.client.schedule("t", b"", delay=1, timer_id="a")
        first, second, third = await relay.advance(minutes=1)
    assert (first.outcome, first.retry_after, first.reason) == (Outcome.NACK, timedelta(seconds=5), "busy")
    assert (second.outcome, second.retry_after, second.reason) == (Outcome.NACK, None, "ValueError")
    assert (third.outcome, third.attempt, third.void) == (Outcome.ACK, 3, False)
    assert second.at - first.at == timedelta(seconds=5)
    assert third.at - second.at == timedelta(seconds=2)  # of the retry policy, after two attempts
    assert len({each.occurrence_id for each in (first, second, third)}) == 1


async def test_an_outcome_that_changed_nothing_is_void() -> None:
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            await relay.client.cancel("t", delivery.timer_id)

        await relay.client.schedule("t", b"", delay=0)
        (delivered,) = await relay.run_due()
    assert (delivered.outcome, delivered.void) == (Outcome.ACK, True)


async def test_a_held_delivery_is_leased_until_delivery_timeout() -> None:
    """EXTEND lets it begin anew; then it falls silent and comes again, and its old outcome is void."""
    held: list[Delivery] = []

    async def hold(delivery: Delivery) -> None:
        held.append(delivery)

    async with InMemoryRelay(lease_ttl=30, delivery_timeout=100) as relay:
        relay.client.on("t", ack_policy=AckPolicy.MANUAL)(hold)
        await relay.client.schedule("t", b"", delay=0, timer_id="a")
        assert brief(await relay.advance(seconds=99)) == [("a", 1, None)]
        await held[0].extend()
        assert await relay.advance(seconds=99) == []
        timer = await relay.client.get("t", "a")
        assert timer is not None
        assert timer.state is TimerState.LEASED
        assert brief(await relay.advance(seconds=31)) == [("a", 2, None)]
        await held[0].ack()
        assert await relay.client.get("t", "a") is not None
        await held[1].ack()
        assert await relay.client.get("t", "a") is None


async def test_the_clock_only_goes_forward_and_not_from_within_a_handler() -> None:
    said: list[str] = []
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handle(_: Delivery) -> None:
            try:
                await relay.advance(seconds=1)
            except UsageError as error:
                said.append(str(error))

        await relay.client.schedule("t", b"", delay=0)
        assert len(await relay.run_due()) == 1
        with pytest.raises(UsageError, match="forward"):
            await relay.advance(seconds=-1)
        assert await relay.advance(seconds=1) == []
    assert "a handler can't move the clock" in said[0]


async def test_timers_that_fall_due_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a test that hangs."""
    monkeypatch.setattr(timers, "MAX_DELIVERIES", 20)
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handle(_: Delivery) -> None:
            raise Nack(retry_after=0)

        await relay.client.schedule("t", b"", delay=0)
        with pytest.raises(UsageError, match="without end"):
            await relay.run_due()


async def test_a_failure_of_the_test_inside_a_handler_fails_the_test() -> None:
    """`pytest.fail` is no Exception: it is raised where the clock was moved, which still works after."""
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            if delivery.timer_id == "bad":
                pytest.fail("as asked")

        await relay.client.schedule("t", b"", delay=0, timer_id="bad")
        with pytest.raises(pytest.fail.Exception, match="as asked") as caught:
            await relay.run_due()
        await relay.client.schedule("t", b"", delay=1, timer_id="good")
        assert brief(await relay.advance(seconds=1)) == [("good", 1, Outcome.ACK)]
    assert caught.traceback


# ------------------------------------------------------------------- failure and time


async def test_the_wait_before_another_attempt_is_always_the_longest() -> None:
    """No dice: 1, 2, 4 s as the policy's figures go, and never beyond its `max`."""
    policy = RetryPolicy(max_attempts=6, initial=1, multiplier=2, max=5)
    async with InMemoryRelay(retry=policy) as relay:

        @relay.client.on("t")
        async def handle(_: Delivery) -> None:
            raise ValueError

        await relay.client.schedule("t", b"", delay=0, timer_id="a")
        delivered = await relay.advance(hours=1)
    waits = [(b.at - a.at).total_seconds() for a, b in itertools.pairwise(delivered)]
    assert waits == [1, 2, 4, 5, 5]
    assert [each.attempt for each in delivered] == [1, 2, 3, 4, 5, 6]


async def test_who_died_and_why_is_told() -> None:
    """In the order of the deaths, each with its time and the last words about it."""
    async with InMemoryRelay(now=NEW_YEAR, retry=RetryPolicy(max_attempts=2)) as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            match delivery.timer_id:
                case "rejected":
                    raise Reject("no such customer")
                case "failed":
                    raise Nack(reason="gone", retryable=False)
                case "attempts":
                    raise Nack(reason=f"try {delivery.attempt}")
                case "expired":
                    raise Nack(retry_after=60)

        for second, name in enumerate(("rejected", "failed", "attempts")):
            await relay.client.schedule("t", b"", delay=second, timer_id=name)
        await relay.client.schedule("t", b"", delay=0, expire_after=30, timer_id="expired")
        delivered = await relay.advance(minutes=5)
        assert [each async for each in relay.client.list("t")] == []
        dead = relay.dead
    assert [(each.timer_id, each.reason, each.attempts, each.last_error) for each in dead] == [
        ("rejected", "rejected", 1, "no such customer"),
        ("failed", "failed", 1, "gone"),
        ("attempts", "attempts", 2, "try 2"),
        ("expired", "expired", 1, ""),
    ]
    assert [(each.at - NEW_YEAR).total_seconds() for each in dead] == [0, 1, 3, 60]
    assert dead[2].due_time == NEW_YEAR + timedelta(seconds=2)
    assert len(delivered) == 5
    assert not any(each.void for each in delivered)


async def test_a_delivery_that_is_never_settled_uses_up_its_attempts() -> None:
    """It dies where a relay would find out: as it would be delivered once more."""
    held: list[Delivery] = []

    async def hold(delivery: Delivery) -> None:
        held.append(delivery)

    async with InMemoryRelay(lease_ttl=30, delivery_timeout=30, retry=RetryPolicy(max_attempts=2)) as relay:
        relay.client.on("t", ack_policy=AckPolicy.MANUAL)(hold)
        await relay.client.schedule("t", b"", delay=0, timer_id="a")
        assert [each.attempt for each in await relay.advance(hours=1)] == [1, 2]
        assert [(each.reason, each.attempts) for each in relay.dead] == [("attempts", 2)]
        await held[1].ack()  # too late: it is said, and changes nothing
        assert len(relay.dead) == 1


async def test_a_timer_that_grows_too_old_dies() -> None:
    async with InMemoryRelay(retry=RetryPolicy(max_age=10)) as relay:

        @relay.client.on("t")
        async def handle(_: Delivery) -> None:
            raise Nack(retry_after=6)

        await relay.client.schedule("t", b"", delay=0)
        assert len(await relay.advance(minutes=1)) == 2
        assert [(each.reason, each.attempts) for each in relay.dead] == [("age", 2)]


async def test_a_full_topic_refuses_new_timers() -> None:
    """By call and by batch; what lives may be replaced, and an end makes room."""
    async with InMemoryRelay(max_waiting=2) as relay:
        relay.client.on("t")(ack)
        for name in ("a", "b", "a"):
            await relay.client.schedule("t", b"", delay=1, timer_id=name)
        with pytest.raises(ResourceExhausted, match="holds 2 timers, which is its max_waiting"):
            await relay.client.schedule("t", b"", delay=1, timer_id="c")
        (refused, other) = await relay.client.schedule_batch(
            [NewTimer(topic="t", payload=b"", delay=1), NewTimer(topic="u", payload=b"", delay=1)]
        )
        assert isinstance(refused.error, ResourceExhausted)
        assert other.ok
        await relay.advance(seconds=1)
        assert (await relay.client.schedule("t", b"", delay=1, timer_id="c")).result


async def test_a_periodic_timer_runs_for_as_long_as_the_clock_moves() -> None:
    """Each round a new occurrence with attempt 1; a failure in between is a retry like any other."""
    async with InMemoryRelay(now=NEW_YEAR) as relay:

        @relay.client.on("t")
        async def handle(delivery: Delivery) -> None:
            count = int(delivery.payload)
            if count == 3 and delivery.attempt == 1:
                raise ValueError
            raise Reschedule(due_time=delivery.due_time + timedelta(minutes=1), payload=b"%d" % (count + 1))

        await relay.client.schedule("t", b"0", delay=0, timer_id="a", headers={"k": "v"})
        delivered = await relay.advance(minutes=5)
        timer = await relay.client.get("t", "a")
    assert [each.attempt for each in delivered] == [1, 1, 1, 1, 2, 1, 1]
    assert {each.outcome for each in delivered} == {Outcome.RESCHEDULE, Outcome.NACK}
    assert len({each.occurrence_id for each in delivered}) == 6
    assert timer is not None
    assert (timer.payload, timer.headers, timer.attempts) == (b"6", {"k": "v"}, 0)
    assert timer.due_time == NEW_YEAR + timedelta(minutes=6)


async def test_a_payload_too_big_to_go_on_with_is_refused() -> None:
    """On a stream the delivery stays leased, as if nothing had been said; a push is a NACK."""
    client, push = RelayClient(), PushHandlers()

    async def grow(delivery: Delivery) -> None:
        raise Reschedule(delay=1, payload=delivery.payload * 2) if delivery.attempt == 1 else Reject

    client.on("stream")(grow)
    push.on("push")(grow)
    async with InMemoryRelay(client, push, delivery_timeout=100, max_payload_bytes=3) as relay:
        await client.schedule("stream", b"xx", delay=0, timer_id="a")
        await client.schedule("push", b"xx", delay=0, timer_id="b")
        first = await relay.run_due()
        assert [(each.outcome, each.void) for each in first] == [(Outcome.RESCHEDULE, True)] * 2
        held, nacked = await client.get("stream", "a"), await client.get("push", "b")
        assert held is not None
        assert nacked is not None
        assert (held.state, held.payload) == (TimerState.LEASED, b"xx")
        assert (nacked.state, nacked.attempts) == (TimerState.PENDING, 1)
        again = await relay.advance(seconds=200)
    assert brief(again) == [("b", 2, Outcome.REJECT), ("a", 2, Outcome.REJECT)]


# -------------------------------------------------------------------- the application


async def test_an_application_s_own_clients_end_in_memory() -> None:
    """Open or not, both kinds at once; afterwards they dial as before."""
    client, blocking = RelayClient("127.0.0.1:1"), SyncRelayClient("127.0.0.1:1")
    client.on("t")(ack)
    async with InMemoryRelay(blocking, client) as relay:
        assert relay.client is client
        blocking.schedule("t", b"", delay=5, timer_id="a")
        assert [each.timer_id async for each in client.list("t")] == ["a"]
        async with client:
            await client.wait_ready(1)
            assert client.ready()
            await client.schedule("t", b"", delay=6, timer_id="b")
        assert len(await relay.advance(seconds=6)) == 2
        assert list(blocking.list("t")) == []
    with pytest.raises(UsageError, match="not open"):
        await client.get("t", "a")


async def test_run_serves_until_stop() -> None:
    """An application's main function works as it is."""
    client = RelayClient()
    client.on("t")(ack)
    async with InMemoryRelay(client) as relay:
        running = asyncio.create_task(client.run())
        await client.schedule("t", b"", delay=0)
        assert len(await relay.run_due()) == 1
        client.stop()
        await asyncio.wait_for(running, PATIENCE)


async def test_pushed_deliveries_can_t_be_extended() -> None:
    push, raised = PushHandlers(), []

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        try:
            await delivery.extend()
        except UsageError as error:
            raised.append(error)

    async with InMemoryRelay(push) as relay:
        await relay.client.schedule("t", b"", delay=0)
        (delivered,) = await relay.run_due()
    assert delivered.outcome is Outcome.ACK
    assert len(raised) == 1


async def test_an_open_client_and_a_second_handler_are_refused() -> None:
    client, push = RelayClient(), PushHandlers()
    client.on("t")(ack)
    push.on("t")(ack)
    async with client:
        with pytest.raises(UsageError, match="before it is opened"):
            async with InMemoryRelay(client):
                raise AssertionError("it was taken")
    async with InMemoryRelay(client, push) as relay:
        with pytest.raises(UsageError, match="two handlers"):
            await relay.run_due()


async def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="naive") as caught:
        InMemoryRelay(now=datetime(2026, 1, 1))  # noqa: DTZ001
    assert caught.value.field == "now"


async def test_what_is_not_in_memory_says_so() -> None:
    async with InMemoryRelay() as relay:
        topics = Topics(lambda: relay.client._wire(), 1)
        with pytest.raises(CallError, match="the relay in memory has no GetTopic"):
            await topics.get("t")


async def test_limits_are_settings() -> None:
    async with InMemoryRelay(max_payload_bytes=3) as relay:
        with pytest.raises(InvalidArgument, match="max_payload_bytes of this topic is 3"):
            await relay.client.schedule("t", b"four", delay=1)


# -------------------------------------------------------------------------- without a loop


def in_a_thread_of_its_own(test: object) -> None:
    """The package keeps a loop running in the main thread; these are for tests that have none."""
    assert callable(test)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(test).result()


async def test_without_a_loop_plain_handlers_run_in_the_calling_thread() -> None:
    """On no event loop: there Django's ORM works, and sees the test's transaction."""

    def body() -> None:
        push, where = PushHandlers(), []

        @push.on("t")
        def handle(delivery: Delivery) -> None:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            where.append(threading.current_thread())
            if delivery.attempt == 1:
                raise KeyError

        with SyncInMemoryRelay(push) as relay:
            relay.client.schedule("t", b"", delay=60, timer_id="a")
            assert relay.advance(seconds=59) == []
            assert brief(relay.advance(minutes=1)) == [("a", 1, Outcome.NACK), ("a", 2, Outcome.ACK)]
        assert where == [threading.current_thread()] * 2

    in_a_thread_of_its_own(body)


async def test_without_a_loop_async_handlers_run_on_one() -> None:
    """They may wait, and call the application's asyncio client; so may a lambda around one."""

    def body() -> None:
        client, producer = RelayClient(), SyncRelayClient()

        @client.on("t")
        async def handle(delivery: Delivery) -> None:
            await asyncio.sleep(0)
            await client.schedule("u", b"", delay=1, timer_id=delivery.timer_id)

        client.on("u")(lambda delivery: ack(delivery))
        with SyncInMemoryRelay(client, producer, now=NEW_YEAR) as relay:
            assert relay.client is producer
            producer.schedule_batch(
                [NewTimer(topic="t", payload=b"", delay=n, timer_id=f"{n}") for n in (1, 2)]
            )
            delivered = relay.advance(hours=1)
            assert relay.run_due() == []
        assert [(each.topic, each.timer_id) for each in delivered] == [
            ("t", "1"),
            ("t", "2"),
            ("u", "1"),
            ("u", "2"),
        ]

    in_a_thread_of_its_own(body)


async def test_producers_may_be_threads() -> None:
    """While the clock moves, too: nothing is lost, nothing comes twice."""

    def body() -> None:
        push, got = PushHandlers(), []

        @push.on("t", concurrency=1)
        def handle(delivery: Delivery) -> None:
            got.append(delivery.timer_id)

        with SyncInMemoryRelay(push) as relay, ThreadPoolExecutor(4) as pool:

            def produce(number: int) -> None:
                for n in range(50):
                    relay.client.schedule("t", b"", delay=0.001 * n, timer_id=f"{number}-{n}")

            producing = [pool.submit(produce, number) for number in range(4)]
            while not all(each.done() for each in producing):
                relay.advance(seconds=0.001)
            relay.advance(seconds=1)
        assert sorted(got) == sorted(f"{number}-{n}" for number in range(4) for n in range(50))

    in_a_thread_of_its_own(body)


def test_both_are_used_alike() -> None:
    for name in ("__init__", "advance", "run_due"):
        there, here = getattr(InMemoryRelay, name), getattr(SyncInMemoryRelay, name)
        assert inspect.signature(there) == inspect.signature(here)


def test_it_loads_nothing_that_only_the_daemon_installs() -> None:
    """It works in an application's tests with the base install."""
    assert loaded("import relay.client.testing") == "[]\n"


def test_recurrences_load_what_their_rules_need_and_nothing_else() -> None:
    script = "import relay.client.testing.recurring"
    assert loaded(script) == "['cronsim', 'dateutil', 'tzdata']\n"


def loaded(script: str) -> str:
    """Run a script, which says in the end what it has loaded of the daemon's."""
    names = ("anyio", "redis", "pydantic", "opentelemetry", "yaml", "cronsim", "dateutil", "tzdata")
    told = f"import sys; print([name for name in {names} if name in sys.modules])"
    run = [sys.executable, "-W", "error", "-c", f"{script}\n{told}"]
    return subprocess.run(run, capture_output=True, text=True, timeout=150, check=True).stdout


async def test_payloads_stay_out_of_what_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handle(_: Delivery) -> None:
            raise Nack(retry_after=100)

        await relay.client.schedule("t", b"a secret", delay=0)
        delivered = await relay.run_due()
    assert "a secret" not in f"{delivered}{caplog.text}"
