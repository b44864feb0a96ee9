"""What handlers ask for: attempts, back-off, time, and which exceptions are final."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from relay.client import AckPolicy, Backoff, Delivery, InvalidArgument, PushHandlers, RelayClient
from relay.client.testing import InMemoryRelay, Outcome
from relay.v1 import delivery_service_pb2 as pb
from tests.client.scripted_relay import ScriptedRelay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, until

BACKOFF = Backoff(initial=1.5, multiplier=3.0, max=60.0)


async def nothing(_: Delivery) -> None: ...


# ------------------------------------------------------------------------- what is sent


async def test_open_says_what_the_handler_asks_for(relay: ScriptedRelay, client: RelayClient) -> None:
    client.on("t", max_attempts=3, backoff=BACKOFF, timeout=timedelta(seconds=20))(nothing)
    async with client:
        link = await relay.link()
        (asked,) = link.requests[0].open.handlers
    assert asked == pb.HandlerSettings(
        topic="t",
        max_attempts=3,
        backoff=pb.Backoff(
            initial=Duration(seconds=1, nanos=500_000_000), multiplier=3.0, max=Duration(seconds=60)
        ),
        timeout=Duration(seconds=20),
    )


async def test_who_asks_for_nothing_sends_nothing(relay: ScriptedRelay, client: RelayClient) -> None:
    client.on("t", concurrency=3, reject=ValueError)(nothing)
    async with client:
        link = await relay.link()
        assert not link.requests[0].open.handlers


async def test_an_older_relay_is_told_of(
    relay: ScriptedRelay, client: RelayClient, caplog: pytest.LogCaptureFixture
) -> None:
    """It passes over what it doesn't know, and its answer doesn't have it. Handlers run all the same."""
    client.on("t", max_attempts=3)(nothing)
    with caplog.at_level(logging.WARNING, "relay.client"):
        async with client:
            await client.wait_ready(PATIENCE)
    (said,) = [record.getMessage() for record in caplog.records if "settings" in record.getMessage()]
    assert said.startswith("the handler's settings do not all hold: topic=t: the relay is older")


def test_a_real_relay_keeps_to_it(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Two attempts, soon; the topic has 25, minutes apart. What it narrows is logged."""
    retry = "RELAY_DEFAULTS__RETRY__"
    settings = {f"{retry}INITIAL": "86400", f"{retry}MAX": "604800", f"{retry}MAX_ATTEMPTS": "2"}
    relay = stage.relay(settings=settings)
    client = RelayClient(relay.target)
    attempts: list[int] = []

    @client.on("t", max_attempts=7, backoff=Backoff(initial=0.01))
    async def handler(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise OSError

    async def gone() -> bool:
        return await client.get("t", "a") is None

    async def main() -> None:
        async with client:
            await client.schedule("t", b"", delay=0, timer_id="a")
            await until(gone, "it is dead")

    with caplog.at_level(logging.WARNING, "relay.client"):
        asyncio.run(main())
    assert attempts == [1, 2]
    (said,) = [record.getMessage() for record in caplog.records if "settings" in record.getMessage()]
    assert said.endswith("max_attempts is 2, as the topic's settings have it")


# ----------------------------------------------------------------------- how it ends here


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(ValueError, Outcome.REJECT), (UnicodeError, Outcome.REJECT), (OSError, Outcome.NACK)],
)
async def test_some_exceptions_are_final(raised: type[Exception], outcome: Outcome) -> None:
    """They and those that are made of them."""
    async with InMemoryRelay() as relay:

        @relay.client.on("t", reject=(ValueError,))
        async def handler(_: Delivery) -> None:
            raise raised

        await relay.client.schedule("t", b"", delay=0)
        (delivered,) = await relay.run_due()
        assert (delivered.outcome, delivered.reason) == (outcome, raised.__name__)


async def test_the_relay_in_memory_keeps_to_it_too() -> None:
    async with InMemoryRelay() as relay:

        @relay.client.on("t", max_attempts=3, backoff=BACKOFF)
        async def handler(_: Delivery) -> None:
            raise OSError

        await relay.client.schedule("t", b"", delay=0)
        start = relay.now
        delivered = await relay.advance(days=1)
        assert [(each.at - start).total_seconds() for each in delivered] == [0.0, 1.5, 6.0]
        assert [(each.reason, each.attempts) for each in relay.dead] == [("attempts", 3)]


async def test_a_handler_has_its_time(relay: ScriptedRelay, client: RelayClient) -> None:
    """An async one is cancelled, and its attempt has failed."""
    ended: list[str] = []

    @client.on("t", timeout=0.05)
    async def handler(delivery: Delivery) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(delivery.timer_id)

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
    (said,) = link.settlements
    assert (said.outcome, said.reason) == (pb.OUTCOME_NACK, "no end within 0.05 s")
    assert ended == ["a"]


async def test_a_handler_that_swallows_its_end_has_failed(relay: ScriptedRelay, client: RelayClient) -> None:
    """It was cut off somewhere, and returns as if all was done."""

    @client.on("t", timeout=0.05)
    async def handler(_: Delivery) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
    (said,) = link.settlements
    assert (said.outcome, said.reason) == (pb.OUTCOME_NACK, "no end within 0.05 s")


async def test_extend_begins_its_time_again(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of its own: two thirds of the time pass before EXTEND and two thirds behind it."""
    loop, passed = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed[0])
    steps: list[str] = []

    @client.on("t", timeout=30.0)
    async def handler(delivery: Delivery) -> None:
        for step in ("before", "behind"):
            passed[0] += 20.0
            await asyncio.sleep(0.01)  # long enough for a timeout that is over
            steps.append(step)
            await delivery.extend()
        passed[0] += 30.0
        await asyncio.Event().wait()

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
    assert steps == ["before", "behind"]
    assert link.outcomes == {"a": pb.OUTCOME_NACK}


async def test_a_timeout_of_the_handlers_own_is_its_own(relay: ScriptedRelay, client: RelayClient) -> None:
    @client.on("t", timeout=PATIENCE)
    async def handler(_: Delivery) -> None:
        raise TimeoutError

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
    assert link.settlements[0].reason == "TimeoutError"


async def test_a_plain_handler_keeps_its_place_until_its_thread_is_free(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: its time is over, the thread runs on, and the next delivery would wait for that thread while
    its own time runs. So that one is not received yet. The time of the first passes by a clock of its own,
    and the next one's thread has all of its time."""
    loop, passed = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed[0])
    go = threading.Event()
    began: list[str] = []
    settled: list[bool] = []

    @client.on("t", timeout=30.0, concurrency=1, prefetch=1)
    def handler(delivery: Delivery) -> None:
        began.append(delivery.timer_id)
        if delivery.timer_id == "a":
            go.wait(PATIENCE)
            settled.append(delivery.settled)

    async with client:
        link = await relay.link()
        await link.deliver("a", "b")
        await until(lambda: began, "its thread is at work")
        passed[0] += 30.0
        await link.settled("a")
        assert (link.received, began) == ([b"a"], ["a"])
        go.set()
        await link.settled("b")
    assert link.outcomes == {"a": pb.OUTCOME_NACK, "b": pb.OUTCOME_ACK}
    assert settled == [True], "the thread can know that it was too slow"


# ---------------------------------------------------------------------------- mistakes

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no attempt": ({"max_attempts": 0}, "max_attempts"),
    "a wait as back-off": ({"backoff": 3.0}, "backoff"),
    "no time": ({"timeout": 0.0}, "timeout"),
    "too much time": ({"timeout": timedelta(days=8)}, "timeout"),
    "an exception": ({"reject": ValueError()}, "reject"),
    "what no handler raises": ({"reject": (KeyboardInterrupt,)}, "reject"),
    "two rules": ({"reject": ValueError, "ack_policy": AckPolicy.MANUAL}, "reject"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_as_the_handler_is_registered(case: str) -> None:
    options, field = WRONG[case]
    with pytest.raises(InvalidArgument) as caught:
        RelayClient().on("t", **options)(nothing)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "wrong", [{"initial": -1.0}, {"initial": 86_401.0}, {"multiplier": 0.9}, {"max": float("nan")}]
)
def test_a_back_off_that_the_relay_would_refuse_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Backoff(**wrong)
    assert caught.value.field == next(iter(wrong))


@pytest.mark.parametrize("asked", [{"max_attempts": 3}, {"backoff": Backoff()}])
def test_a_pushed_topic_has_the_relays_settings(asked: dict[str, Any]) -> None:
    """A call has no Open in which it could be said."""
    with pytest.raises(InvalidArgument, match="set retry in the relay's settings"):
        PushHandlers().on("t", **asked)(nothing)
