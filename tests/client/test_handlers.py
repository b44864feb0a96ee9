"""What a handler's end means for its timer, by policy, and what it may say meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.client import (
    AckPolicy,
    AlreadySettled,
    Delivery,
    DeliveryLost,
    InvalidArgument,
    Nack,
    Reject,
    RelayClient,
    Reschedule,
    UsageError,
)
from relay.v1 import delivery_service_pb2 as pb
from tests.client.scripted_relay import Link, ScriptedRelay, either, names

RESCHEDULE = pb.OUTCOME_RESCHEDULE
ACK, NACK, REJECT, EXTEND = pb.OUTCOME_ACK, pb.OUTCOME_NACK, pb.OUTCOME_REJECT, pb.OUTCOME_EXTEND


columns = either


def summary(link: Link) -> list[tuple[str, int, float | None, str]]:
    return [
        (
            each.token.decode(),
            each.outcome,
            each.retry_after.seconds + each.retry_after.nanos / 1e9 if each.HasField("retry_after") else None,
            each.reason,
        )
        for each in link.settlements
    ]


async def returns(_: Delivery) -> None:
    """End well."""


async def fails(delivery: Delivery) -> None:
    raise ValueError(delivery.payload)


async def nacks(_: Delivery) -> None:
    raise Nack(retry_after=timedelta(seconds=1.5), reason="busy")


async def nacks_plainly(_: Delivery) -> None:
    raise Nack


async def rejects(_: Delivery) -> None:
    raise Reject("no such customer")


async def awaits_a_cancelled_future(_: Delivery) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def returns_in_a_thread(_: Delivery) -> None:
    assert threading.current_thread() is not threading.main_thread()


def fails_in_a_thread(_: Delivery) -> None:
    raise KeyError("x")


def ends_an_iterator_in_a_thread(_: Delivery) -> None:
    next(iter(()))


def returns_a_coroutine(delivery: Delivery) -> Any:
    return nacks(delivery)


async def acks_then_fails(delivery: Delivery) -> None:
    await delivery.ack()
    raise ValueError


async def nacks_by_itself(delivery: Delivery) -> None:
    await delivery.nack(retry_after=2, reason="later")


async def rejects_by_itself(delivery: Delivery) -> None:
    await delivery.reject("never")


async def gives_up(_: Delivery) -> None:
    raise Nack(reason="gone", retryable=False)


async def gives_up_by_itself(delivery: Delivery) -> None:
    await delivery.nack(reason="gone", retryable=False)


async def snoozes(_: Delivery) -> None:
    raise Reschedule(delay=timedelta(seconds=1.5))


async def snoozes_by_itself(delivery: Delivery) -> None:
    await delivery.reschedule(delay=1.5)


def snoozes_in_a_thread(_: Delivery) -> None:
    raise Reschedule(delay=1.5)


async def goes_on(_: Delivery) -> None:
    raise Reschedule(due_time=datetime(2030, 1, 1, tzinfo=UTC), payload=b"next")


async def goes_on_by_itself(delivery: Delivery) -> None:
    await delivery.reschedule(due_time=datetime(2030, 1, 1, tzinfo=UTC), payload=b"next")
    raise ValueError


async def begins_anew_with_nothing(_: Delivery) -> None:
    raise Reschedule(delay=0, payload=b"")


ON_ERROR = AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR
ALL = *ON_ERROR, AckPolicy.MANUAL
CASES: list[tuple[tuple[AckPolicy, ...], Callable[[Delivery], Any], tuple[int, float | None, str] | None]] = [
    (ON_ERROR, returns, (ACK, None, "")),
    (ON_ERROR[:1], fails, (NACK, None, "ValueError")),
    (ON_ERROR[1:], fails, (REJECT, None, "ValueError")),
    (ON_ERROR[:1], awaits_a_cancelled_future, (NACK, None, "CancelledError")),
    (ON_ERROR, returns_in_a_thread, (ACK, None, "")),
    (ON_ERROR[:1], fails_in_a_thread, (NACK, None, "KeyError")),
    (ON_ERROR[:1], ends_an_iterator_in_a_thread, (NACK, None, "RuntimeError")),
    (ON_ERROR[:1], returns_a_coroutine, (NACK, 1.5, "busy")),
    (ALL, nacks, (NACK, 1.5, "busy")),
    (ALL, nacks_plainly, (NACK, None, "")),
    (ALL, rejects, (REJECT, None, "no such customer")),
    (ALL, acks_then_fails, (ACK, None, "")),
    (ALL, nacks_by_itself, (NACK, 2.0, "later")),
    (ALL, rejects_by_itself, (REJECT, None, "never")),
    (ALL[2:], returns, None),
    (ALL[2:], fails, None),
]


@pytest.mark.parametrize(
    ("policy", "handler", "outcome"),
    [
        pytest.param(policy, handler, outcome, id=f"{policy.name}-{handler.__name__}")
        for policies, handler, outcome in CASES
        for policy in policies
    ],
)
async def test_outcomes_by_policy(
    relay: ScriptedRelay,
    client: RelayClient,
    policy: AckPolicy,
    handler: Callable[[Delivery], Any],
    outcome: tuple[int, float | None, str] | None,
) -> None:
    """Each way to end has one outcome, or in MANUAL perhaps none; a handler's error hurts no other."""
    client.on("t", ack_policy=policy)(handler)
    async with client:
        link = await relay.link()
        await link.begin("a", "b")
    assert link.received == [b"a", b"b"]
    expected = [] if outcome is None else [("a", *outcome), ("b", *outcome)]
    assert sorted(summary(link)) == expected


GIVEN_UP = pb.Settlement(outcome=NACK, reason="gone", retryable=False)
SNOOZED = pb.Settlement(
    outcome=RESCHEDULE, reschedule=pb.Reschedule(delay=Duration(seconds=1, nanos=500_000_000))
)
WENT_ON = pb.Settlement(
    outcome=RESCHEDULE,
    reschedule=pb.Reschedule(due_time=Timestamp(seconds=1_893_456_000), payload=b"next"),
)
EMPTIED = pb.Settlement(outcome=RESCHEDULE, reschedule=pb.Reschedule(delay=Duration(), payload=b""))
FURTHER: list[tuple[tuple[AckPolicy, ...], Callable[[Delivery], Any], pb.Settlement]] = [
    (ALL, gives_up, GIVEN_UP),
    (ALL, gives_up_by_itself, GIVEN_UP),
    (ALL, snoozes, SNOOZED),
    (ALL, snoozes_by_itself, SNOOZED),
    (ON_ERROR, snoozes_in_a_thread, SNOOZED),
    (ALL, goes_on, WENT_ON),
    (ALL, goes_on_by_itself, WENT_ON),
    (ON_ERROR[:1], begins_anew_with_nothing, EMPTIED),
]


@pytest.mark.parametrize(
    ("policy", "handler", "settlement"),
    [
        pytest.param(policy, handler, settlement, id=f"{policy.name}-{handler.__name__}")
        for policies, handler, settlement in FURTHER
        for policy in policies
    ],
)
async def test_giving_up_and_going_on_are_said_in_full(
    relay: ScriptedRelay,
    client: RelayClient,
    policy: AckPolicy,
    handler: Callable[[Delivery], Any],
    settlement: pb.Settlement,
) -> None:
    """To the byte, in every policy, raised or said; an empty payload is not the old one."""
    client.on("t", ack_policy=policy)(handler)
    async with client:
        link = await relay.link()
        await link.begin("a")
        await link.settled("a")
    (said,) = link.settlements
    assert said.token == b"a"
    said.ClearField("token")
    assert said == settlement


async def test_payloads_stay_out_of_reasons_and_reprs(
    relay: ScriptedRelay, client: RelayClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing handler is logged with its names; the payload goes nowhere by our doing."""
    seen = []

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        seen.append(repr(delivery))
        raise RuntimeError("boom")

    async with client:
        link = await relay.link()
        await link.begin("a", payload=b"secret", headers={"k": "hidden"})
    assert seen == ["<Delivery topic=t timer_id=a attempt=1>"]
    assert "topic=t timer_id=a attempt=1" in caplog.text
    assert "boom" in caplog.text
    assert "secret" not in caplog.text
    assert link.settlements[0].reason == "RuntimeError"


@pytest.mark.parametrize("approximate", [False, True])
async def test_a_delivery_tells_all_it_knows(
    relay: ScriptedRelay, client: RelayClient, approximate: bool
) -> None:
    """Everything on the wire is an attribute, times as aware datetimes in UTC."""
    seen: list[Delivery] = []
    client.on("t")(seen.append)
    async with client:
        link = await relay.link()
        await link.begin(
            "a",
            payload=b'{"n": 1}',
            headers={"k": "v"},
            content_type="application/json",
            attempt=3,
            due_time_approximate=approximate,
            lease_deadline=Timestamp(seconds=1_700_000_030, nanos=1_000),
            occurrence_id="o",
        )
    delivery = seen[0]
    assert (delivery.topic, delivery.timer_id, delivery.attempt) == ("t", "a", 3)
    assert (delivery.payload, delivery.json()) == (b'{"n": 1}', {"n": 1})
    assert (delivery.headers, delivery.content_type) == ({"k": "v"}, "application/json")
    assert delivery.due_time == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
    assert delivery.lease_deadline == datetime(2023, 11, 14, 22, 13, 50, 1, tzinfo=UTC)
    assert delivery.due_time_approximate is approximate
    assert delivery.occurrence_id == "o"
    assert delivery.settled is True


async def test_extend_comes_any_time_before_the_outcome(relay: ScriptedRelay, client: RelayClient) -> None:
    """EXTEND is no end; after one, it is refused like a second outcome."""
    late_calls: list[str] = []

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        await delivery.extend()
        await delivery.extend()
        await delivery.ack()
        for late in (delivery.extend, delivery.ack, delivery.nack, delivery.reject):
            with pytest.raises(AlreadySettled):
                await late()
            late_calls.append(late.__name__)
        with pytest.raises(AlreadySettled):
            await delivery.reschedule(delay=1)
        late_calls.append("reschedule")

    async with client:
        link = await relay.link()
        await link.begin("a")
    assert [each.outcome for each in link.settlements] == [EXTEND, EXTEND, ACK]
    assert late_calls == ["extend", "ack", "nack", "reject", "reschedule"]


async def test_manual_may_settle_after_the_handler(relay: ScriptedRelay, client: RelayClient) -> None:
    """A MANUAL handler may hand its delivery to another task."""
    held: list[Delivery] = []

    @client.on("t", ack_policy=AckPolicy.MANUAL, concurrency=1)
    async def handler(delivery: Delivery) -> None:
        held.append(delivery)

    async with client:
        link = await relay.link()
        await link.deliver("a", "b")
        await link.until(lambda: len(link.received) == 2)  # so the first has given up its place
        assert link.settlements == []
        await held[0].ack()
        await link.settled("a")


@pytest.mark.parametrize("reason", [pb.PROBLEM_REASON_STALE, pb.PROBLEM_REASON_GONE])
async def test_a_lost_lease_is_noticed_while_the_handler_runs(
    relay: ScriptedRelay,
    client: RelayClient,
    caplog: pytest.LogCaptureFixture,
    reason: pb.ProblemReason,
) -> None:
    """`lost` turns true, settling raises `DeliveryLost`, one warning names the timer. The outcome goes out
    all the same: until it comes the relay keeps the delivery's place."""
    lost: list[bool] = []
    told = asyncio.Event()

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        if delivery.timer_id == "b":  # sent after the problem, so that has been read
            told.set()
            return
        lost.append(delivery.lost)
        await delivery.extend()
        await told.wait()
        lost.append(delivery.lost)
        with pytest.raises(DeliveryLost):
            await delivery.extend()
        await delivery.ack()

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.until(lambda: link.settlements)
        await link.problem("a", reason)
        await link.problem("a", reason)
        await link.begin("b")
        await link.settled("a")
        await link.problem("a", reason)
    assert lost == [False, True]
    sent = [("a", EXTEND, None, ""), ("a", ACK, None, ""), ("b", ACK, None, "")]
    assert sorted(summary(link)) == sorted(sent)
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "topic=t timer_id=a reason=" in warnings[0]
    assert pb.ProblemReason.Name(reason).endswith(warnings[0].split("reason=")[1].split(":")[0])


@pytest.mark.parametrize("policy", AckPolicy)
@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("returns", ACK),
        ("gives up", NACK),
        ("fails", NACK),
        ("rejects", REJECT),
    ],
)
async def test_what_is_lost_has_one_outcome(
    relay: ScriptedRelay, client: RelayClient, policy: AckPolicy, end: str, outcome: pb.Outcome
) -> None:
    """However its handler ends: the relay keeps its place until then."""
    told = asyncio.Event()

    @client.on("t", ack_policy=policy)
    async def handler(delivery: Delivery) -> None:
        if delivery.timer_id == "b":
            told.set()
            await delivery.ack()
            return
        await told.wait()
        match end:
            case "gives up":
                await delivery.extend()
            case "fails":
                raise ValueError
            case "rejects":
                raise Reject

    async with client:
        link = await relay.link()
        await link.begin("a")
        await link.problem("a", pb.PROBLEM_REASON_STALE)
        await link.begin("b")
        await link.settled("a", "b")
    (sent,) = [each.outcome for each in link.settlements if each.token == b"a"]
    match end, policy:
        case "fails", AckPolicy.REJECT_ON_ERROR:
            outcome = REJECT
        case "returns", AckPolicy.MANUAL:
            outcome = NACK
    assert sent == outcome


async def test_problems_of_ended_deliveries_are_logged_once(
    relay: ScriptedRelay, client: RelayClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The token alone says nothing to people: the log has topic, timer_id and reason."""
    client.on("t")(returns)
    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
        await link.problem("a", pb.PROBLEM_REASON_STALE)
        await link.problem("a", pb.PROBLEM_REASON_STALE)
        await link.problem("never sent", pb.PROBLEM_REASON_UNKNOWN_TOKEN)
        await link.begin("b")
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == ["relay refused a settlement: topic=t timer_id=a reason=STALE: as scripted"]


async def test_context_variables_do_not_leak(relay: ScriptedRelay, client: RelayClient) -> None:
    """Handlers share workers, but never what one of them set in its context."""
    variable = contextvars.ContextVar("variable", default="clean")
    seen: list[str] = []

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        seen.append(variable.get())
        variable.set(delivery.timer_id)

    async with client:
        link = await relay.link()
        await link.begin(*names(20))
    assert seen == ["clean"] * 20
    assert len(link.settlements) == 20


async def test_concurrency_is_a_limit_and_is_reached(relay: ScriptedRelay, client: RelayClient) -> None:
    """As many handlers as allowed run at a time, never more."""
    running = peak = 0
    full = asyncio.Event()

    @client.on("t", concurrency=7)
    async def handler(_: Delivery) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if running == 7:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1

    async with client:
        link = await relay.link()
        await link.deliver(*names(50))
        await link.settled(*names(50))
    assert peak == 7


def test_registration_refuses_what_cannot_work(client: RelayClient) -> None:
    """A topic has one handler; every wrong argument is named."""
    client.on("t")(returns)
    with pytest.raises(UsageError, match="'t' has a handler"):
        client.on("t")(fails)
    wrong: list[tuple[str, str, dict[str, Any], Any]] = [
        ("topic", "", {}, returns),
        ("concurrency", "u", {"concurrency": 0}, returns),
        ("concurrency", "u", {"concurrency": 100_001}, returns),
        ("prefetch", "u", {"prefetch": -1}, returns),
        ("ack_policy", "u", {"ack_policy": "manual"}, returns),
        ("ack_policy", "u", {"ack_policy": AckPolicy.MANUAL}, returns_in_a_thread),
        ("handler", "u", {}, None),
    ]
    for field, topic, options, handler in wrong:
        with pytest.raises(InvalidArgument) as caught:
            client.on(topic, **options)(handler)
        assert caught.value.field == field


async def test_handlers_are_registered_before_the_opening(client: RelayClient) -> None:
    """A late registration would be silently idle, so it is an error."""
    async with client:
        with pytest.raises(UsageError, match="before deliveries begin"):
            client.on("t")(returns)


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("retry_after", lambda: Nack(retry_after=-1)),
    ("retry_after", lambda: Nack(retry_after=1, retryable=False)),
    ("reason", lambda: Nack(reason=b"x")),  # type: ignore[arg-type]
    ("reason", lambda: Reject("\ud800")),
    ("due_time", lambda: Reschedule()),
    ("due_time", lambda: Reschedule(delay=1, due_time=datetime(2030, 1, 1, tzinfo=UTC))),
    ("due_time", lambda: Reschedule(due_time=datetime(2030, 1, 1))),  # noqa: DTZ001
    ("delay", lambda: Reschedule(delay=-1)),
    ("payload", lambda: Reschedule(delay=1, payload="text")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("field", "make"), WRONG)
def test_wrong_outcomes_are_refused_where_they_are_made(field: str, make: Callable[[], object]) -> None:
    """It is the handler's mistake, told at once."""
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert caught.value.field == field


async def test_a_wrong_outcome_leaves_the_delivery_to_its_policy(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """It is an exception like another; nothing of it was said."""

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        with pytest.raises(InvalidArgument):
            await delivery.reschedule(delay=1, due_time=datetime(2030, 1, 1, tzinfo=UTC))
        with pytest.raises(InvalidArgument):
            await delivery.nack(retry_after=1, retryable=False)
        assert not delivery.settled
        raise Reschedule

    async with client:
        link = await relay.link()
        await link.begin("a")
    assert summary(link) == [("a", NACK, None, "InvalidArgument")]


def test_long_reasons_are_cut_and_rescheduling_shows_no_payload() -> None:
    """To the 1,024 bytes that the relay keeps, never through a character."""
    assert Nack(reason="ä" * 600).settlement.reason == "ä" * 512
    assert Reject("x" + "ä" * 600).settlement.reason == "x" + "ä" * 511
    assert "secret" not in f"{Reschedule(delay=1, payload=b'secret')!r}"
