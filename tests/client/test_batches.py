"""Many timers in few calls: by columns where they are alike, else one by one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
import pytest

from relay.client import (
    CallError,
    ChangeResult,
    FailedPrecondition,
    InvalidArgument,
    NewTimer,
    RelayClient,
    ResourceExhausted,
    ScheduleResult,
    TimerState,
    Unavailable,
    errors,
)
from relay.client.calls import batches, timer_calls
from relay.client.calls.batches import MAX_BYTES, weight
from relay.client.calls.timer_calls import TRY_TIMEOUT
from relay.v1 import timer_service_pb2 as pb
from relay.v1.timer_pb2 import CHANGE_RESULT_CREATED as CREATED
from tests.client.scripted_relay import Failure, ScriptedRelay

DUE = datetime(2030, 1, 1, tzinfo=UTC)


def timers(count: int, **fields: Any) -> list[NewTimer]:
    return [NewTimer(**{"topic": "t", "payload": b"%d" % n, "delay": n, **fields}) for n in range(count)]


@pytest.mark.usefixtures("one_try")
async def test_batch_has_a_result_for_each(relay: ScriptedRelay, client: RelayClient) -> None:
    """One refused timer hinders no other; results come in the order of the request."""
    timers = [
        NewTimer(topic="t", payload=b"1", delay=1),
        NewTimer(topic="t", payload=b"2", delay=1, timer_id="bad"),
        NewTimer(topic="u", payload=b"3", due_time=datetime(2030, 1, 1, tzinfo=UTC), timer_id="three"),
    ]
    async with client:
        results = await client.schedule_batch(timers)
    assert [result.timer_id for result in results] == [each.timer_id for each in timers]
    assert [result.ok for result in results] == [True, False, True]
    assert isinstance(results[1].error, InvalidArgument)
    assert results[1].error.field == "payload"
    assert results[2].timer is not None
    assert results[2].timer.topic == "u"
    assert len(relay.calls) == 1


@pytest.mark.usefixtures("one_try")
async def test_big_batches_are_split(relay: ScriptedRelay, client: RelayClient) -> None:
    """No call is bigger than a server takes; the results are one list all the same."""
    timers = [NewTimer(topic="t", payload=b"x" * 500_000, delay=1) for _ in range(10)]
    timers += [NewTimer(topic="t", payload=b"", delay=1) for _ in range(1_500)]
    async with client:
        results = await client.schedule_batch(timers)
    assert [result.timer_id for result in results] == [each.timer_id for each in timers]
    assert max(request.ByteSize() for _, request in relay.calls) <= MAX_BYTES
    assert sorted(len(request.timer_ids) for _, request in relay.calls) == [4, 4, 502, 1_000]


class CountingWire:
    """Answers columns after a turn of the loop, and counts how many calls are under way at once; with a
    `broken` one, that at once, and the others when they `may_end`."""

    def __init__(self, broken: int = -1) -> None:
        self.sizes: list[int] = []
        self.active = self.peak = self.cut_off = 0
        self.may_end = asyncio.Event()
        self._broken = broken

    async def call(self, method: Any, request: Any, timeout: float) -> Any:
        number, timers = len(self.sizes), len(request.timer_ids)
        self.sizes.append(timers)
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            if number == self._broken:
                raise FailedPrecondition("no")
            await (asyncio.sleep(0) if self._broken < 0 else self.may_end.wait())
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        finally:
            self.active -= 1
        return pb.ScheduleColumnsResponse(due_times_us=[1] * timers, results=[CREATED] * timers)

    async def close(self) -> None:
        pass


def batch(*timer_ids: str, timeout: float = 60) -> timer_calls.Steps[list[ScheduleResult]]:
    timers = [NewTimer(topic="t", payload=b"", delay=1, timer_id=timer_id) for timer_id in timer_ids]
    return batches.schedule_batch(timers, create_only=False, on_conflict=None, durability="", timeout=timeout)


async def test_the_calls_of_a_big_batch_overlap() -> None:
    """The relay works on one while the client reads the answer to another; the results keep their order."""
    wire = CountingWire()
    names = [str(number) for number in range(9_500)]
    results = await timer_calls.run(wire, batch(*names))
    assert [result.timer_id for result in results] == names
    assert wire.peak == batches.AT_ONCE
    assert sum(wire.sizes) == 9_500


async def test_a_batch_that_names_a_timer_twice_goes_in_order() -> None:
    """The later one stands, so it must not overtake the earlier one."""
    wire = CountingWire()
    await timer_calls.run(wire, batch(*(str(number) for number in range(2_500)), "0"))
    assert wire.peak == 1
    assert wire.sizes == [1_000, 1_000, 501]


async def beside_a_broken_call(wire: CountingWire) -> asyncio.Task[list[ScheduleResult]]:
    """A batch whose fourth call has failed, while the three beside it are under way."""
    names = (str(number) for number in range(9_500))
    running = asyncio.create_task(timer_calls.run(wire, batch(*names)))
    for _ in range(50):  # whatever the error leads to
        await asyncio.sleep(0)
    assert (wire.active, len(wire.sizes)) == (3, 4)
    return running


class OverloadedWire:
    """Refuses each timer so many times, as a relay does whose server is too slow, then stores it. With
    `over_bound` it refuses all calls but the first."""

    def __init__(self, refusals: dict[str, int], *, over_bound: bool = False) -> None:
        self.left = refusals
        self.over_bound = over_bound
        self.sent: list[list[str]] = []
        self.limits: list[float] = []

    async def call(self, method: Any, request: Any, timeout: float) -> Any:
        ids = list(request.timer_ids)
        if self.sent and self.over_bound:
            raise ResourceExhausted("over its bound", retry_after=0.1)
        self.sent.append(ids)
        self.limits.append(timeout)
        answer = pb.ScheduleColumnsResponse(due_times_us=[1] * len(ids), results=[CREATED] * len(ids))
        for place, timer_id in enumerate(ids):
            if self.left.get(timer_id, 0) > 0:
                self.left[timer_id] -= 1
                answer.errors[place].code = grpc.StatusCode.UNAVAILABLE.value[0]
        return answer

    async def close(self) -> None:
        pass


async def test_what_a_busy_server_did_not_take_is_sent_again() -> None:
    """Alone, with twice the time each time, as an unary call is; its result is that of the last try."""
    wire = OverloadedWire({"b": 2, "c": 1})
    results = await timer_calls.run(wire, batch("a", "b", "c"))
    assert wire.sent == [["a", "b", "c"], ["b", "c"], ["b"]]
    assert wire.limits == pytest.approx([TRY_TIMEOUT, 2 * TRY_TIMEOUT, 4 * TRY_TIMEOUT])
    assert [(result.timer_id, result.ok) for result in results] == [("a", True), ("b", True), ("c", True)]


async def test_a_server_that_stays_busy_is_asked_until_the_timeout() -> None:
    wire = OverloadedWire({"b": 1_000})
    results = await timer_calls.run(wire, batch("a", "b", timeout=0.3))
    assert [result.ok for result in results] == [True, False]
    assert isinstance(results[1].error, Unavailable)
    assert wire.sent[1:] == [["b"]] * (len(wire.sent) - 1)


async def test_what_the_relay_says_to_a_second_call_does_not_hide_what_the_first_has_stored() -> None:
    """The caller goes over its bound in between, and stays there."""
    wire = OverloadedWire({"b": 1}, over_bound=True)
    results = await timer_calls.run(wire, batch("a", "b", timeout=0.3))
    assert [result.ok for result in results] == [True, False]
    assert isinstance(results[1].error, Unavailable)


async def test_two_intents_of_one_batch_are_not_sent_again() -> None:
    """The first one, which was refused, would undo the second one."""
    wire = OverloadedWire({"a": 1})
    results = await timer_calls.run(wire, batch("a", "a"))
    assert wire.sent == [["a", "a"]]
    assert [result.ok for result in results] == [False, True]


async def test_an_error_is_told_once_the_calls_beside_it_have_ended() -> None:
    """Until then they could act behind the caller's back, who would go on to something else. No other call
    begins."""
    wire = CountingWire(broken=3)
    running = await beside_a_broken_call(wire)
    assert (running.done(), wire.active) == (False, 3)
    wire.may_end.set()
    with pytest.raises(FailedPrecondition):
        await running
    assert (wire.active, wire.cut_off, len(wire.sizes)) == (0, 0, 4)


async def test_a_caller_that_goes_ends_its_calls() -> None:
    """All of them, whatever has failed."""
    wire = CountingWire(broken=3)
    running = await beside_a_broken_call(wire)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (wire.active, wire.cut_off, len(wire.sizes)) == (0, 3, 4)


async def test_an_empty_batch_makes_no_call(relay: ScriptedRelay, client: RelayClient) -> None:
    """Nothing asked, nothing sent."""
    async with client:
        assert await client.schedule_batch([]) == []
    assert not relay.calls


@pytest.mark.usefixtures("one_try")
async def test_timers_that_are_alike_go_by_columns(relay: ScriptedRelay, client: RelayClient) -> None:
    """Each in its place, with what all of them have said once. Times are rounded up, as a relay rounds."""
    shared: dict[str, Any] = {"headers": {"k": "ö"}, "content_type": "text/plain"}
    delays: list[float | timedelta] = [0, 1.5, 1e-9, timedelta(days=400, microseconds=7)]
    new = [NewTimer(topic="t", payload=bytes([n]), delay=delay, **shared) for n, delay in enumerate(delays)]
    async with client:
        results = await client.schedule_batch(new, create_only=True)
        await client.schedule_batch(timers(2, delay=None, due_time=DUE))
    (_, delayed), (_, due) = relay.calls
    assert (delayed.topic, delayed.mode, delayed.content_type) == ("t", pb.SCHEDULE_MODE_CREATE, "text/plain")
    assert dict(delayed.headers) == {"k": "ö"}
    assert list(delayed.timer_ids) == [each.timer_id for each in new] == [each.timer_id for each in results]
    assert list(delayed.payloads) == [b"\0", b"\1", b"\2", b"\3"]
    assert list(delayed.delays_us) == [0, 1_500_000, 1, 400 * 86_400_000_000 + 7]
    assert list(due.due_times_us) == [1_893_456_000_000_000] * 2
    assert not delayed.due_times_us
    assert not due.delays_us


@pytest.mark.usefixtures("one_try")
async def test_what_columns_answer(relay: ScriptedRelay, client: RelayClient) -> None:
    """Is what a result of each would say; one refused timer hinders no other."""
    first, bad, again = timers(3, delay=None, due_time=DUE)
    bad, again = NewTimer(topic="t", payload=b"", due_time=DUE, timer_id="bad"), first
    async with client:
        results = await client.schedule_batch([first, bad, again])
    assert [name for name, _ in relay.calls] == ["ScheduleColumns"]
    assert [result.ok for result in results] == [True, False, True]
    error = results[1].error
    assert isinstance(error, InvalidArgument)
    assert (error.field, error.message, results[1].timer) == ("payload", "payload is too big", None)
    stored, replaced = results[0].timer, results[2].timer
    assert stored is not None
    assert (stored.topic, stored.timer_id, stored.due_time) == ("t", first.timer_id, DUE)
    assert (stored.state, stored.attempts, stored.next_claim_time) == (TimerState.PENDING, 0, DUE)
    assert (stored.result, stored.replaced) == (ChangeResult.CREATED, False)
    assert replaced is not None
    assert (replaced.result, replaced.replaced) == (ChangeResult.REPLACED, True)


@pytest.mark.parametrize(
    ("number", "result", "state"),
    [
        (3, ChangeResult.UNCHANGED, TimerState.UNKNOWN),
        (4, ChangeResult.IN_FLIGHT, TimerState.LEASED),
        (99, ChangeResult.UNKNOWN, TimerState.UNKNOWN),
    ],
)
def test_what_was_left_as_it_is(number: Any, result: ChangeResult, state: TimerState) -> None:
    """Of columns and of a single result alike: only the due time is known."""
    told = ScheduleResult("id", None, ("topic", 7, number, False, "stored")).timer
    assert told is not None
    assert (told.result, told.state, told.replaced, bool(told.result)) == (result, state, False, False)
    assert told.due_time == datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC)


@pytest.mark.parametrize("time", [{"delay": 3e8 + 1e-9}, {"due_time": DUE}])
@pytest.mark.parametrize("expiry", [{}, {"expire_after": 3e8}, {"expire_time": DUE + timedelta(days=1)}])
@pytest.mark.parametrize("beside", [{}, {"headers": {"ü": "é" * 999}}, {"content_type": "text/plain"}])
@pytest.mark.parametrize("payload", [b"", b"x", b"x" * (1 << 20)])
def test_no_timer_takes_more_than_is_reckoned(time: Any, expiry: Any, beside: Any, payload: bytes) -> None:
    """By columns or as a message: else a call could be larger than servers take."""
    name = "é" * 128
    new = NewTimer(topic=name, timer_id=name, payload=payload, **time, **expiry, **beside)
    spec = new.to_proto()
    one_by_one = pb.ScheduleBatchRequest(timers=[spec])
    by_columns = pb.ScheduleColumnsRequest(
        topic=name,
        timer_ids=[name],
        payloads=[payload],
        headers=new.headers,
        content_type=new.content_type,
        due_times_us=[1 << 62],
    )
    assert weight(new) >= max(one_by_one.ByteSize(), by_columns.ByteSize())


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "u"},
        {"headers": {"k": "v"}},
        {"content_type": "text/plain"},
        {"delay": None, "due_time": DUE},
        {"expire_after": 1},
        {"expire_time": DUE},
    ],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.usefixtures("one_try")
async def test_timers_that_differ_go_one_by_one(
    relay: ScriptedRelay, client: RelayClient, other: dict[str, Any]
) -> None:
    """In whatever has no column; and all that expire."""
    new = [*timers(1), *timers(1, **other)]
    async with client:
        results = await client.schedule_batch(new)
    ((name, request),) = relay.calls
    assert name == "ScheduleBatch"
    assert list(request.timers) == [each.to_proto() for each in new]
    assert [result.ok for result in results] == [True, True]


def test_a_timer_keeps_the_headers_that_it_was_made_with() -> None:
    """So that those which compare alike are alike on the wire."""
    headers = {"k": "1"}
    first = NewTimer(topic="t", payload=b"", delay=1, headers=headers)
    headers["k"] = "2"
    assert first.headers == dict(first.to_proto().headers) == {"k": "1"}


@pytest.mark.usefixtures("one_try")
async def test_a_relay_that_knows_no_columns_gets_timers_one_by_one(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """An older one: it says so once, and nothing is lost."""
    new = timers(2)
    async with client:
        relay.failures = [Failure(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")]
        results = await client.schedule_batch(new)
    assert [name for name, _ in relay.calls] == ["ScheduleColumns", "ScheduleBatch"]
    assert [result.ok for result in results] == [True, True]
    assert {name for _, name in relay.timers} == {each.timer_id for each in new}


class OldWire:
    """To a relay that knows no columns."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, method: Any, request: Any, timeout: float) -> Any:
        self.asked.append(method.name)
        await asyncio.sleep(0)
        if method.name != "ScheduleBatch":
            raise errors.make(grpc.StatusCode.UNIMPLEMENTED, "no")
        return pb.ScheduleBatchResponse(
            results=[pb.ScheduleResult(scheduled={"result": 1}) for _ in request.timers]
        )

    async def close(self) -> None:
        pass


async def test_it_says_so_once_for_a_big_batch() -> None:
    """Or as often as calls are under way when it does."""
    wire, names = OldWire(), [str(number) for number in range(20_000)]
    results = await timer_calls.run(wire, batch(*names))
    assert [result.timer_id for result in results] == names
    assert wire.asked.count("ScheduleBatch") == 20
    assert wire.asked.count("ScheduleColumns") == batches.AT_ONCE


@pytest.mark.usefixtures("one_try")
async def test_what_all_share_is_refused_of_each(relay: ScriptedRelay, client: RelayClient) -> None:
    """As if they had been sent one by one from the beginning: so a chunk that is refused hinders no other."""
    async with client:
        relay.failures = [Failure(grpc.StatusCode.INVALID_ARGUMENT, "topic: is not configured")]
        results = await client.schedule_batch(timers(2))
        await client.schedule_batch(timers(1))
    assert [name for name, _ in relay.calls] == ["ScheduleColumns", "ScheduleBatch", "ScheduleColumns"]
    assert [result.ok for result in results] == [True, True]


@pytest.mark.usefixtures("one_try")
async def test_another_error_is_the_calls(relay: ScriptedRelay, client: RelayClient) -> None:
    """Nothing is tried one by one that was refused by columns."""
    async with client:
        relay.failures = [Failure(grpc.StatusCode.INTERNAL, "no")]
        with pytest.raises(CallError, match="INTERNAL"):
            await client.schedule_batch(timers(2))
    assert [name for name, _ in relay.calls] == ["ScheduleColumns"]


def test_a_result_shows_no_more_than_its_name_and_its_error() -> None:
    """In a log as anywhere: what the relay said of a timer is long."""
    told = pb.ScheduleResponse(replaced=True)
    assert repr(ScheduleResult("id", None, told)) == "ScheduleResult(timer_id='id', error=None)"


def test_a_payload_that_changes_later() -> None:
    """What was checked is what is sent."""
    buffer = bytearray(b"first")
    new = NewTimer(topic="t", payload=cast("bytes", buffer), delay=1)
    buffer[:] = b"then!"
    assert (new.payload, new.to_proto().payload) == (b"first", b"first")
