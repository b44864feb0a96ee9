"""Scheduling, cancelling, reading: what goes over the wire and what comes back."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta, timezone

import grpc
import pytest

from relay.client import (
    CallError,
    ChangeResult,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NewTimer,
    NotFound,
    OnConflict,
    RelayClient,
    RelayError,
    ResourceExhausted,
    ScheduledTimer,
    SyncRelayClient,
    TimerChange,
    TimerState,
    Unavailable,
    UsageError,
)
from relay.client.calls import timer_calls
from relay.v1 import timer_pb2
from tests.client.scripted_relay import Failure, ScriptedRelay

CODES = grpc.StatusCode


@pytest.mark.usefixtures("one_try")
async def test_schedule_sends_what_it_was_given(relay: ScriptedRelay, client: RelayClient) -> None:
    """Every argument reaches the relay; the stored timer comes back."""
    due = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2)))
    async with client:
        timer = await client.schedule(
            "invoices", b"42", due_time=due, timer_id="ü", headers={"k": "ö"}, content_type="text/plain"
        )
    spec = relay.calls[0][1].timer
    assert (spec.topic, spec.timer_id, spec.payload) == ("invoices", "ü", b"42")
    assert (dict(spec.headers), spec.content_type) == ({"k": "ö"}, "text/plain")
    assert timer.due_time == due
    assert timer.due_time.tzinfo is UTC
    assert (timer.state, timer.attempts, timer.replaced) == (TimerState.PENDING, 0, False)


@pytest.mark.parametrize(
    ("delay", "seconds", "nanos"),
    [
        (5, 5, 0),
        (0, 0, 0),
        (0.1, 0, 100_000_000),
        (1e-10, 0, 1_000),
        (1.9999999999, 2, 0),
        (timedelta(days=1, microseconds=7), 86_400, 7_000),
        (timedelta(seconds=315_576_000_000), 315_576_000_000, 0),
    ],
)
async def test_delay_is_seconds_or_a_timedelta(
    relay: ScriptedRelay, client: RelayClient, delay: float | timedelta, seconds: int, nanos: int
) -> None:
    """Both are sent as a distance, so that the clock of Redis decides; rounded up to microseconds."""
    async with client:
        await client.schedule("t", b"", delay=delay)
    sent = relay.calls[0][1].timer
    assert not sent.HasField("due_time")
    assert (sent.delay.seconds, sent.delay.nanos) == (seconds, nanos)


async def test_schedule_retries_under_one_id(relay: ScriptedRelay, client: RelayClient) -> None:
    """While the relay is away, the call is repeated with the id that was made first."""
    relay.failures = [Failure(CODES.UNAVAILABLE, "no redis"), Failure(CODES.UNAVAILABLE, "no redis")]
    async with client:
        timer = await client.schedule("t", b"p", delay=1)
    ids = [request.timer.timer_id for _, request in relay.calls]
    assert len(ids) >= 3  # more, where an answer took longer than a try may take
    assert set(ids) == {timer.timer_id}
    assert len(timer.timer_id) == 32


async def test_a_call_that_a_relay_has_left_is_repeated(
    relay: ScriptedRelay, client: RelayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stopped, or since it was too slow. gRPC answers CANCELLED then, in its own words, though nobody
    has cancelled the call: found by the table of faults."""
    left = Failure(CODES.CANCELLED, "CANCELLED")
    relay.failures = [left]
    async with client:
        assert (await client.schedule("t", b"p", delay=1)).timer_id
        assert len(relay.calls) >= 2  # more, where an answer took longer than a try may take
        relay.failures = [left]
        monkeypatch.setattr(timer_calls, "TRY_TIMEOUT", 5.0)  # for one try, whose answer has time to come
        with pytest.raises(Unavailable) as caught:
            await client.schedule("t", b"p", delay=1, timeout=5.0)
    assert caught.value.unanswered, "it may act until its deadline"


@pytest.mark.usefixtures("one_try")
async def test_unavailable_is_raised_when_time_is_up(relay: ScriptedRelay, client: RelayClient) -> None:
    """The relay's RetryInfo is heeded: a pause beyond the timeout ends the call at once."""
    relay.failures = [Failure(CODES.UNAVAILABLE, "no redis", retry_after=60.25)]
    async with client:
        with pytest.raises(Unavailable, match="no redis") as caught:
            await client.schedule("t", b"p", delay=1, timeout=60)
    assert caught.value.retry_after == pytest.approx(60.25)
    assert len(relay.calls) == 1


@pytest.mark.usefixtures("one_try")
async def test_a_relay_without_redis_is_not_lost(
    relay: ScriptedRelay, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A blocking client's lines are about the relay, and that one has answered."""
    caplog.set_level(logging.INFO, "relay.client")
    relay.failures = [Failure(CODES.UNAVAILABLE, "no redis", retry_after=0.01)]

    def blocking() -> None:
        with SyncRelayClient(target) as client:
            client.schedule("t", b"p", delay=1)

    await asyncio.to_thread(blocking)
    assert len(relay.calls) == 2
    said = [record.getMessage() for record in caplog.records if record.name == "relay.client"]
    assert said == [f"connected to the relay at {target}"]


async def test_no_relay_at_all_is_unavailable(client: RelayClient) -> None:
    """Nobody listens: the last error is raised after the timeout, not a hang."""
    async with client:
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await client.schedule("t", b"p", delay=1, timeout=0.3)


async def test_a_bound_that_is_reached_has_its_pause(relay: ScriptedRelay, client: RelayClient) -> None:
    """The pause of the status reaches the caller whose timeout is shorter, and is kept where it is not."""
    relay.failures = [Failure(CODES.RESOURCE_EXHAUSTED, "over", retry_after=pause) for pause in (0.2, 60.0)]
    async with client:
        with pytest.raises(ResourceExhausted) as caught:
            await client.get("t", "a")
    assert caught.value.retry_after == 60.0
    assert len(relay.calls) == 2


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(CODES.INVALID_ARGUMENT, "payload too big", field="payload"), InvalidArgument),
        (Failure(CODES.RESOURCE_EXHAUSTED, "full"), ResourceExhausted),
        (Failure(CODES.FAILED_PRECONDITION, "wrong type"), FailedPrecondition),
        (Failure(CODES.DEADLINE_EXCEEDED, "slow"), DeadlineExceeded),
        (Failure(CODES.INTERNAL, "bug"), CallError),
        (Failure(CODES.CANCELLED, "cancelled by the relay"), CallError),
    ],
    ids=lambda value: value.code.name if isinstance(value, Failure) else "",
)
async def test_statuses_become_errors(
    relay: ScriptedRelay, client: RelayClient, failure: Failure, kind: type[CallError]
) -> None:
    """Each status has its class; the field comes from the status details."""
    relay.failures = [failure]
    async with client:
        with pytest.raises(kind) as caught:
            await client.get("t", "a")
    assert type(caught.value) is kind
    assert caught.value.code is failure.code
    assert failure.message in str(caught.value)
    assert isinstance(caught.value, RelayError)
    if isinstance(caught.value, InvalidArgument):
        assert caught.value.field == "payload"


GOOD = {"topic": "t", "payload": b"p", "delay": 1.0}


WRONG: list[tuple[str, dict[str, object]]] = [
    ("topic", {"topic": ""}),
    ("topic", {"topic": "a{b}"}),
    ("topic", {"topic": "ü" * 129}),
    ("topic", {"topic": "\ud800"}),
    ("timer_id", {"timer_id": ""}),
    ("timer_id", {"timer_id": "a\nb"}),
    ("timer_id", {"timer_id": 7}),
    ("payload", {"payload": "text"}),
    ("payload", {"payload": None}),
    ("headers", {"headers": {"a": 1}}),
    ("headers", {"headers": {"a": "x" * 65_536}}),
    ("headers", {"headers": ["a"]}),
    ("content_type", {"content_type": b"x"}),
    ("delay", {"delay": -1}),
    ("delay", {"delay": float("nan")}),
    ("delay", {"delay": float("inf")}),
    ("delay", {"delay": timedelta(seconds=-1)}),
    ("delay", {"delay": timedelta.max}),
    ("delay", {"delay": True}),
    ("delay", {"delay": "5"}),
    ("due_time", {"delay": None}),
    ("due_time", {"due_time": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("due_time", {"delay": None, "due_time": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ("due_time", {"delay": None, "due_time": datetime(1969, 12, 31, tzinfo=UTC)}),
    ("due_time", {"delay": None, "due_time": 1_700_000_000}),
    ("expire_time", {"expire_time": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ("expire_time", {"expire_time": datetime(2030, 1, 1, tzinfo=UTC), "expire_after": 5}),
    (
        "expire_time",
        {
            "delay": None,
            "due_time": datetime(2030, 1, 1, tzinfo=UTC),
            "expire_time": datetime(2030, 1, 1, tzinfo=UTC),
        },
    ),
    ("expire_after", {"expire_after": -1}),
    ("expire_after", {"expire_after": 0}),
    ("expire_after", {"expire_after": timedelta(0)}),
    ("only_if_due_at", {"timer_id": "a", "only_if_due_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ("create_only", {"timer_id": "a", "create_only": True, "only_if_pending": True}),
    ("on_conflict", {"create_only": True, "on_conflict": OnConflict.REPLACE}),
    ("create_only", {"timer_id": "a", "on_conflict": OnConflict.KEEP_EXISTING, "only_if_pending": True}),
    ("debounce", {"timer_id": "a", "debounce": 5}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 0}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": "5"}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 5, "expire_after": 1}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 5, "spread": 1}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 5, "create_only": True}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 5, "only_if_pending": True}),
    ("debounce", {"timer_id": "a", "delay": None, "debounce": 5, "on_conflict": OnConflict.REPLACE}),
    ("timer_id", {"delay": None, "debounce": 5}),
    ("at_most", {"at_most": 5}),
    ("at_most", {"timer_id": "a", "delay": None, "debounce": 5, "at_most": 4.999999}),
    ("spread", {"spread": -1}),
    ("timer_id", {"only_if_pending": True}),
    ("timer_id", {"only_if_due_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("timeout", {"timeout": 0}),
]


@pytest.mark.parametrize(("field", "wrong"), WRONG)
async def test_wrong_arguments_are_refused_before_the_call(
    relay: ScriptedRelay, client: RelayClient, field: str, wrong: dict[str, object]
) -> None:
    """The error names the argument, and the relay hears nothing."""
    async with client:
        with pytest.raises(InvalidArgument) as caught:
            await client.schedule(**{**GOOD, **wrong})  # type: ignore[arg-type]
    assert caught.value.field == field
    assert not relay.calls


async def test_cancel_and_get_tell_what_is_there(relay: ScriptedRelay, client: RelayClient) -> None:
    """`cancel` says whether there was a timer; `get` answers None where there is none."""
    async with client:
        await client.schedule("t", b"secret", delay=1, timer_id="a", headers={"k": "hidden"})
        timer = await client.get("t", "a")
        assert timer is not None
        assert (timer.payload, timer.headers) == (b"secret", {"k": "hidden"})
        assert "secret" not in repr(timer)
        assert "hidden" not in repr(timer)
        assert (await client.cancel("t", "a")).result is ChangeResult.CANCELLED
        assert (await client.cancel("t", "a")).result is ChangeResult.NOT_FOUND
        assert await client.get("t", "a") is None
    assert relay.timers == {}


@pytest.mark.usefixtures("one_try")
async def test_modes_conditions_and_expiry_are_sent(relay: ScriptedRelay, client: RelayClient) -> None:
    """Each as the field of the proto that says so; without them the request has none."""
    due, end = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    new = NewTimer(topic="t", payload=b"", delay=1, expire_after=timedelta(minutes=1))
    async with client:
        await client.schedule("t", b"", delay=1)
        await client.schedule("t", b"", delay=1, timer_id="a", create_only=True, expire_time=end)
        await client.schedule("t", b"", delay=1, timer_id="a", only_if_pending=True, only_if_due_at=due)
        await client.schedule_batch([new], create_only=True)
        await client.cancel("t", "a")
        await client.cancel("t", "a", only_if_due_at=due)
    plain, create, conditional, batch, cancel, cancel_due = [request for _, request in relay.calls]
    assert (plain.mode, create.mode, batch.mode) == (1, 2, 2)
    assert not any(each.HasField("condition") for each in (plain, create, cancel))
    assert create.timer.expire_time.ToDatetime(UTC) == end
    assert batch.timers[0].expire_after.seconds == 60
    assert conditional.condition.only_if_pending
    assert conditional.condition.due_time.ToDatetime(UTC) == due
    assert not cancel_due.condition.only_if_pending
    assert cancel_due.condition.due_time.ToDatetime(UTC) == due


@pytest.mark.usefixtures("one_try")
async def test_intents_are_sent(relay: ScriptedRelay, client: RelayClient) -> None:
    """A batch goes by columns if its timers have them in common."""
    earliest, soon = OnConflict.KEEP_EARLIEST, timedelta(seconds=30)
    alike = [NewTimer(topic="t", payload=b"", debounce=30, at_most=300, timer_id=name) for name in "ab"]
    spread = [NewTimer(topic="t", payload=b"", delay=1, spread=60, timer_id="c"), *alike]
    async with client:
        await client.schedule("t", b"", delay=1, timer_id="a", on_conflict=earliest, spread=soon)
        await client.schedule("t", b"", debounce=soon, at_most=timedelta(minutes=5), timer_id="a")
        await client.schedule("t", b"", delay=1, timer_id="a", on_conflict=OnConflict.KEEP_EXISTING)
        await client.schedule_batch(alike)
        await client.schedule_batch(spread, on_conflict=OnConflict.KEEP_LATEST)
    kept, debounced, existing, columns, batch = [request for _, request in relay.calls]
    assert (kept.mode, kept.on_conflict, kept.timer.spread.seconds) == (0, 2, 30)
    assert (debounced.timer.debounce.seconds, debounced.timer.at_most.seconds) == (30, 300)
    assert not debounced.timer.HasField("delay")
    assert (existing.mode, existing.on_conflict) == (2, 0)  # which relays of before know
    assert (columns.debounce.seconds, columns.at_most.seconds, columns.HasField("spread")) == (30, 300, False)
    assert not columns.delays_us
    assert not columns.due_times_us
    assert [each.HasField("debounce") for each in batch.timers] == [False, True, True]
    assert (batch.mode, batch.on_conflict, batch.timers[0].spread.seconds) == (0, 3, 60)


MADE = {ChangeResult.CREATED, ChangeResult.REPLACED, ChangeResult.CANCELLED, ChangeResult.RUN}


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (timer_pb2.CHANGE_RESULT_UNCHANGED, ChangeResult.UNCHANGED),
        (timer_pb2.CHANGE_RESULT_IN_FLIGHT, ChangeResult.IN_FLIGHT),
        (timer_pb2.CHANGE_RESULT_NOT_FOUND, ChangeResult.NOT_FOUND),
        (timer_pb2.CHANGE_RESULT_RUN, ChangeResult.RUN),
        (timer_pb2.CHANGE_RESULT_CANCELLED, ChangeResult.CANCELLED),
        (timer_pb2.CHANGE_RESULT_CREATED, ChangeResult.CREATED),
        (timer_pb2.CHANGE_RESULT_REPLACED, ChangeResult.REPLACED),
        (99, ChangeResult.UNKNOWN),
    ],
)
async def test_results_are_told(
    relay: ScriptedRelay, client: RelayClient, number: timer_pb2.ChangeResult, result: ChangeResult
) -> None:
    """By schedule, cancel and run alike; true where the change was made."""
    relay.result = number
    async with client:
        timer = await client.schedule("t", b"", delay=1, timer_id="a")
        changes = [await client.cancel("t", "a"), await client.run_timer("t", "a")]
        assert [timer.result, *(change.result for change in changes)] == [result] * 3
    assert bool(result) is (result in MADE)
    assert all(bool(change) is bool(result) for change in changes)
    # Of a timer that was left as it is the relay knows the due time alone.
    assert timer.due_time == timer.next_claim_time == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert timer.state is TimerState.UNKNOWN


async def test_a_delivery_under_way_is_told(relay: ScriptedRelay, client: RelayClient) -> None:
    """By schedule, by a batch in either form, by cancel and by run: of that timer, and of no other."""
    relay.under_way = {"a"}
    async with client:
        for timer_id, under_way in (("a", True), ("b", False)):
            changes: list[ScheduledTimer | TimerChange] = [
                await client.schedule("t", b"", delay=1, timer_id=timer_id),
                await client.run_timer("t", timer_id),
                await client.cancel("t", timer_id),
            ]
            assert [change.delivery_under_way for change in changes] == [under_way] * 3
        for headers in ({}, {"k": "v"}):
            batch = [NewTimer(topic="t", payload=b"", delay=1, timer_id=each) for each in "ba"]
            batch.append(NewTimer(topic="t", payload=b"", delay=1, timer_id="c", headers=headers))
            told = [result.timer for result in await client.schedule_batch(batch)]
            assert [timer and timer.delivery_under_way for timer in told] == [False, True, False]
    assert {"ScheduleColumns", "ScheduleBatch"} <= {name for name, _ in relay.calls}


async def test_running_what_is_not_there_is_no_error(relay: ScriptedRelay, client: RelayClient) -> None:
    """As cancelling it is none; a condition about it is one."""
    relay.failures = [Failure(CODES.NOT_FOUND, "no such timer")] * 2
    async with client:
        assert (await client.run_timer("t", "a")).result is ChangeResult.NOT_FOUND
        with pytest.raises(NotFound):
            await client.schedule("t", b"", delay=1, timer_id="a", only_if_pending=True)
        with pytest.raises(InvalidArgument) as caught:
            await client.run_timer("t", "")
    assert caught.value.field == "timer_id"


async def test_list_follows_pages(relay: ScriptedRelay, client: RelayClient) -> None:
    """Empty pages in between are no end."""
    async with client:
        for number in range(5):
            await client.schedule("t", b"", delay=1, timer_id=str(number))
        found = [each.timer_id async for each in client.list("t", page_size=2, state=TimerState.PENDING)]
    assert found == list("01234")
    assert relay.calls[-1][1].state == 1


async def test_a_closed_client_says_so(client: RelayClient) -> None:
    """Calls before the opening and after the close raise `UsageError`."""
    with pytest.raises(UsageError):
        await client.schedule("t", b"", delay=1)
    async with client:
        with pytest.raises(UsageError):
            await client.open()
    with pytest.raises(UsageError):
        client.list("t")


@pytest.mark.usefixtures("one_try")
async def test_a_client_can_be_opened_again(relay: ScriptedRelay, client: RelayClient) -> None:
    """Each opening is a new channel."""
    for _ in range(2):
        async with client:
            await client.schedule("t", b"", delay=1)
    assert len(relay.calls) == 2


def test_new_timers_hide_their_payload_and_keep_their_id() -> None:
    """What is scheduled twice must have one id; what is printed must not leak."""
    new = NewTimer(topic="t", payload=b"secret", delay=1, headers={"k": "hidden"})
    assert new.to_proto() == new.to_proto()
    assert "secret" not in repr(new)
    assert "hidden" not in repr(new)


def test_target_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument goes before RELAY_TARGET, and that before the default."""
    monkeypatch.setenv("RELAY_TARGET", "unix:/run/relay.sock")
    assert RelayClient().target == "unix:/run/relay.sock"
    assert RelayClient("host:1").target == "host:1"
    monkeypatch.delenv("RELAY_TARGET")
    assert RelayClient().target == "127.0.0.1:7451"


@pytest.mark.parametrize("client", [RelayClient, SyncRelayClient])
@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:7451",
        "https://h:1",
        "redis://:hunter2@h:1",
        "grpc://h:1",
        "localhost",
        "h:x",
        "h:0",
        "::1:7451",
    ],
)
def test_what_is_no_target_is_refused_at_once(client: type, target: str) -> None:
    """As an argument that is wrong, which says what a target looks like; a password in it is not repeated."""
    with pytest.raises(
        InvalidArgument, match=r"as host:port or unix:/path, such as 127\.0\.0\.1:7451"
    ) as caught:
        client(target)
    assert caught.value.field == "target"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "target",
    ["h:1", "[::1]:7451", "unix:/run/relay.sock", "unix:///run/relay.sock", "dns:///h:1", "ipv4:1.2.3.4:5"],
)
def test_what_grpc_dials_is_a_target(target: str) -> None:
    assert SyncRelayClient(target).target == target
