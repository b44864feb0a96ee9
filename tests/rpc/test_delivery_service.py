"""DeliveryService: one stream from Open to its end, and all the ways in which it may be misused."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, cast

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.api import replies
from relay.core.errors import StoreUnavailable
from relay.core.policy import RetryPolicy
from relay.core.timers import NewTimer
from relay.engine.delivery.session import FRAME_PROBLEMS, MAX_PROBLEMS
from relay.rpc.delivery_service import Context, DeliveryService
from relay.v1 import delivery_service_pb2 as pb
from relay.v1.timer_service_pb2 import GetTimerRequest, ScheduleRequest
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served, gone, put, served
from tests.worlds.engine.stubs import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    Stream,
    at,
    named_field,
    settlement,
    spec,
    unpacked,
)
from tests.worlds.waiting import until

UNKNOWN = pb.PROBLEM_REASON_UNKNOWN_TOKEN
DUPLICATE = pb.PROBLEM_REASON_DUPLICATE
STALE = pb.PROBLEM_REASON_STALE
GONE = pb.PROBLEM_REASON_GONE
INVALID = pb.PROBLEM_REASON_INVALID


async def released(relay: Served, *names: str) -> None:
    """Until none of these timers is leased."""

    async def condition() -> bool:
        timers = [await relay.engine.get("t", name) for name in names]
        return all(timer is not None and timer.state.value == "pending" for timer in timers)

    await until(condition, f"{names} are released")


async def refusal(stream: Stream) -> str:
    """The field that the stream's INVALID_ARGUMENT names."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.finish_reading()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return named_field(caught.value.details() or "", unpacked(caught.value.trailing_metadata()))


class Answered:
    """gRPC's context of a stream whose Open has come and whose first answer is being written."""

    def __init__(self, relay: Served) -> None:
        self._relay = relay
        self._requests = iter([pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=1))])
        self.attended: list[bool] = []
        """Whether the relay knew of the application with each answer."""

    async def read(self) -> object:
        return next(self._requests, grpc.aio.EOF)

    async def write(self, _: pb.DeliverResponse) -> None:
        sessions = self._relay.engine._dispatcher.sessions()
        self.attended.append(any(session.attended for session in sessions))


async def test_an_application_that_knows_of_its_stream_is_known(relay: Served) -> None:
    """The race: the answer to Open has come, and the relay is told to stop. One that stops last must find the
    application, or it would not wait for it."""
    context = Answered(relay)
    await DeliveryService(relay.engine).Deliver(None, cast("Context", context))
    assert context.attended[:1] == [True]


# ------------------------------------------------------------------------- one timer's way


async def test_delivers_what_was_scheduled(any_relay: Served, keyspace: Keyspace) -> None:
    """Content, times, attempt and token; an ACK removes it."""
    relay = any_relay
    topic = keyspace.topic()
    due = at(1_700_000_000, 123_456_000)
    stream = await relay.stream().open(topic)
    await put(
        relay, "a", topic=topic, payload=b"\0x", headers={"k": "ü"}, content_type="text/x", due_time=due
    )
    delivery = await stream.delivery()
    assert (delivery.topic, delivery.timer_id, delivery.payload) == (topic, "a", b"\0x")
    assert (dict(delivery.headers), delivery.content_type) == ({"k": "ü"}, "text/x")
    assert delivery.due_time == due
    assert not delivery.due_time_approximate
    assert delivery.attempt == 1
    assert delivery.lease_deadline.seconds > due.seconds
    assert delivery.occurrence_id
    await stream.settle(settlement(delivery.token), received=[delivery.token])
    await gone(relay, "a", topic=topic)
    assert await stream.finish() == []


async def test_trace_context_reaches_the_handler(relay: Served) -> None:
    """From the metadata of Schedule to the headers of the delivery."""
    stream = await relay.stream().open()
    metadata = (("traceparent", "00-1-2-01"),)
    await relay.timers.Schedule(ScheduleRequest(timer=spec()), metadata=metadata)
    delivery = await stream.delivery()
    assert delivery.headers["traceparent"] == "00-1-2-01"
    await stream.ack([delivery])
    await stream.finish()


async def test_every_outcome_does_what_it_says(relay: Served) -> None:
    """ACK and REJECT remove, NACK delivers again as the next attempt, EXTEND is no end."""
    stream = await relay.stream().open()
    await put(relay, "ack", "nack", "reject", "extend")
    by_name = {delivery.timer_id: delivery for delivery in await stream.deliveries(4)}
    outcomes = {"ack": ACK, "reject": REJECT, "extend": EXTEND}
    await stream.settle(
        *(settlement(by_name[name].token, outcome) for name, outcome in outcomes.items()),
        settlement(by_name["nack"].token, NACK, retry_after=Duration(), reason="not yet"),
    )
    again = await stream.delivery()
    assert (again.timer_id, again.attempt) == ("nack", 2)
    assert again.occurrence_id == by_name["nack"].occurrence_id
    assert again.token != by_name["nack"].token
    await gone(relay, "ack", "reject")
    await stream.ack([again, by_name["extend"]])
    await gone(relay, "nack", "extend")
    assert await stream.finish() == []


async def test_the_reason_of_a_rejection_is_logged_and_bounded(
    relay: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """At most 1,024 bytes, cut between characters."""
    stream = await relay.stream().open()
    await put(relay, "a")
    await stream.settle(settlement((await stream.delivery()).token, REJECT, reason="ü" * 1_000 + "x"))
    await gone(relay, "a")
    said = [record for record in caplog.records if "rejected by its application" in record.message]
    assert [getattr(record, "reason", "") for record in said] == ["ü" * 512]
    await stream.finish()


async def test_many_timers_come_in_few_frames(relay: Served) -> None:
    """Batch by batch, never more than max_outstanding at a time."""
    await put(relay, *(f"{n:04}" for n in range(2_000)))
    stream = await relay.stream().open(max_outstanding=300)
    seen: set[str] = set()
    while len(seen) < 2_000:
        response = await stream.next()
        deliveries = response.deliveries.deliveries
        assert 0 < len(deliveries) <= 300
        seen |= {delivery.timer_id for delivery in deliveries}
        await stream.ack(deliveries)
    assert len(stream.frames) < 200
    await stream.finish()
    await gone(relay, "0000", "1999")


async def test_a_delivery_above_four_megabytes(relay: Served) -> None:
    """A topic may allow it; the relay does not limit what it sends, and each goes in a frame of its own."""
    relay.tune(max_payload_bytes=8 << 20)
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(relay.server.address, options=options) as channel:
        big = relay.dial(channel)
        for name in "ab":
            await put(big, name, payload=bytes(6 << 20))
        stream = await big.stream().open()
        deliveries = await stream.deliveries(2)
        assert [len(delivery.payload) for delivery in deliveries] == [6 << 20] * 2
        assert len(stream.frames) == 3
        await stream.ack(deliveries)
        await stream.finish()
        await gone(relay, "a", "b")


async def test_a_client_with_grpc_s_own_limits_can_read_every_frame(relay: Served) -> None:
    """Frames of payloads and headers at their limits stay below the 4 MiB that gRPC takes by default."""
    for n in range(8):
        await put(relay, f"p{n}", payload=bytes(1 << 20))
    for n in range(100):
        await relay.engine.schedule("t", NewTimer(f"h{n}", b"", delay=0, headers={"h": "x" * 65_000}))
    stream = await relay.stream().open(max_outstanding=1_000)
    await stream.ack(await stream.deliveries(108))
    await stream.finish()


# ------------------------------------------------------------------------------- bad opens


BAD_OPENS = {
    "settle-first": ("open", pb.DeliverRequest(settle=pb.Settle())),
    "drain-first": ("open", pb.DeliverRequest(drain=pb.Drain())),
    "empty-message": ("open", pb.DeliverRequest()),
    "no-topics": ("topics", pb.DeliverRequest(open=pb.Open(max_outstanding=1))),
    "thousands": (
        "topics",
        pb.DeliverRequest(open=pb.Open(topics=[f"t{n}" for n in range(1_001)], max_outstanding=1)),
    ),
    "empty-topic": ("topics", pb.DeliverRequest(open=pb.Open(topics=["t", ""], max_outstanding=1))),
    "brace": ("topics", pb.DeliverRequest(open=pb.Open(topics=["{t}"], max_outstanding=1))),
    "over-long": ("topics", pb.DeliverRequest(open=pb.Open(topics=["x" * 257], max_outstanding=1))),
    "zero": ("max_outstanding", pb.DeliverRequest(open=pb.Open(topics=["t"]))),
    "negative": ("max_outstanding", pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=-1))),
    "too-many": ("max_outstanding", pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=100_001))),
    "slow-negative": (
        "slow_outstanding",
        pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=2, slow_outstanding=-1)),
    ),
    "slow-above-all": (
        "slow_outstanding",
        pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=2, slow_outstanding=3)),
    ),
}


@pytest.mark.parametrize(("field", "message"), BAD_OPENS.values(), ids=BAD_OPENS.keys())
async def test_refuses_a_bad_open(relay: Served, field: str, message: pb.DeliverRequest) -> None:
    """INVALID_ARGUMENT names what is wrong; nothing was claimed."""
    stream = relay.stream()
    await stream.call.write(message)
    assert await refusal(stream) == field
    assert relay.store.count("claim") == 0


async def test_an_open_says_how_many_may_be_slow(relay: Served) -> None:
    """As many as ever, if it doesn't."""
    await relay.stream().open("t", max_outstanding=5, slow_outstanding=2)
    await relay.stream().open("u", max_outstanding=5)
    sessions = await relay.attached(2)
    assert {each.topics: each.slow_outstanding for each in sessions} == {("t",): 2, ("u",): 0}


async def test_refuses_a_second_open(relay: Served) -> None:
    """And releases at once what the stream held, without suspicion: the application lives."""
    stream = await relay.stream().open()
    await put(relay, "a", "b")
    await stream.deliveries(2)
    await stream.send(open=pb.Open(topics=["u"], max_outstanding=1))
    assert await refusal(stream) == "open"
    await released(relay, "a", "b")
    again = await relay.stream().open()
    deliveries = await again.deliveries(2)
    assert len(again.frames) == 2, "both in one frame"
    await again.ack(deliveries)
    await again.finish()


async def test_refuses_an_empty_message(relay: Served) -> None:
    """A newer client may say what this relay does not know."""
    stream = await relay.stream().open()
    await stream.call.write(pb.DeliverRequest())
    assert await refusal(stream) == "message"


async def test_a_stream_that_says_nothing_and_ends_is_fine(relay: Served) -> None:
    """Nothing to do, nothing to complain about."""
    assert await relay.stream().finish() == []


async def test_bytes_that_are_no_message_end_only_their_stream(relay: Served) -> None:
    """Before Open and after it; what the stream held is released."""
    path = "/relay.v1.DeliveryService/Deliver"
    for first in ([], [pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=9)).SerializeToString()]):
        call: Any = relay.channel.stream_stream(path)()
        for message in (*first, b"\xff\xff\xff"):
            await call.write(message)
            if message in first:
                await call.read()
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    stream = await relay.stream().open()
    await put(relay, "a")
    await stream.ack([await stream.delivery()])
    await stream.finish()
    await gone(relay, "a")


# ------------------------------------------------------------------------------- bad settlements


async def test_answers_bad_settlements_with_problems(relay: Served) -> None:
    """Each by itself; the good ones of the same message stand."""
    stream = await relay.stream().open()
    await put(relay, "a", "b", "c")
    a, b, c = await stream.deliveries(3)
    await stream.settle(
        settlement(b"never given"),
        settlement(b""),
        settlement(a.token, pb.OUTCOME_UNSPECIFIED),
        settlement(b.token, NACK, retry_after=Duration(seconds=-1)),
        settlement(b.token, NACK, retry_after=Duration(nanos=1_000_000_000)),
        pb.Settlement.FromString(settlement(a.token).SerializeToString()[:-1] + b"\x63"),  # outcome 99
        settlement(c.token),
        settlement(c.token),
        received=[b"nor this"],
    )
    expected = [UNKNOWN, UNKNOWN, UNKNOWN, INVALID, INVALID, INVALID, INVALID, DUPLICATE]
    assert await stream.problems(8) == expected
    await gone(relay, "c")
    words = [p.message for frame in stream.frames for p in frame.problems.problems]
    assert all(words)
    await stream.ack([a, b])
    await gone(relay, "a", "b")
    await stream.finish()


async def test_outcomes_that_are_alike_are_written_together(relay: Served) -> None:
    """Those in a row, of one claim; another outcome, or another pause, begins the next."""
    stream = await relay.stream().open()
    await put(relay, "a", "b", "c", "d", "e")
    a, b, c, d, e = await stream.deliveries(5)
    soon, later = Duration(seconds=1), Duration(seconds=2)
    await stream.settle(
        settlement(a.token, NACK, retry_after=soon),
        settlement(b.token, NACK, retry_after=soon),
        settlement(c.token, NACK, retry_after=later),
        settlement(d.token),
        settlement(e.token),
    )
    await gone(relay, "d", "e")
    assert relay.store.alike == [["a", "b"], ["c"], ["d", "e"]]
    await stream.finish()


async def test_answers_stale_and_vanished_timers(relay: Served) -> None:
    """Rescheduled and cancelled in flight."""
    stream = await relay.stream().open()
    await put(relay, "a", "b")
    a, b = await stream.deliveries(2)
    await put(relay, "a", due_time=at(4_000_000_000))
    await relay.engine.cancel("t", "b")
    await stream.ack([a])
    assert await stream.problems() == [STALE]
    await stream.ack([b])
    assert await stream.problems() == [GONE]
    await stream.finish()


async def test_a_retry_after_beyond_all_time_harms_no_other(
    relay_on_valkey: Served, keyspace: Keyspace
) -> None:
    """The longest Duration there is, and what is beyond it, beside a good settlement."""
    relay, topic = relay_on_valkey, keyspace.topic()
    stream = await relay.stream().open(topic)
    await put(relay, "a", "b", "c", topic=topic)
    a, b, c = await stream.deliveries(3)
    await stream.settle(
        settlement(a.token, NACK, retry_after=Duration(seconds=315_576_000_000)),
        settlement(b.token, NACK, retry_after=Duration(seconds=(1 << 63) - 1, nanos=999_999_999)),
        settlement(c.token),
    )
    assert await stream.problems(2) == [INVALID, INVALID]
    await gone(relay, "c", topic=topic)
    await stream.settle(settlement(a.token, NACK, retry_after=Duration(seconds=1_000_000_000)))

    async def retried() -> bool:
        timer = await relay.engine.get(topic, "a")
        return timer is not None and timer.attempts == 1

    await until(retried, "the NACK is written")
    timer = (await relay.timers.GetTimer(GetTimerRequest(topic=topic, timer_id="a"))).timer
    assert timer.next_claim_time.seconds > 2_700_000_000
    await stream.ack([b])
    await stream.finish()


async def test_thousands_of_problems_are_said_in_readable_messages(relay: Served) -> None:
    """An application that settles nonsense hears of all of it, as long as it listens."""
    stream = await relay.stream().open()
    await stream.settle(*(settlement(f"{n}".encode()) for n in range(3 * FRAME_PROBLEMS)))
    assert await stream.problems(3 * FRAME_PROBLEMS) == [UNKNOWN] * 3 * FRAME_PROBLEMS
    assert max(len(frame.problems.problems) for frame in stream.frames) <= FRAME_PROBLEMS
    await stream.finish()


async def test_an_application_that_only_talks_is_not_listened_to_for_ever(relay: Served) -> None:
    """Nonsense without end, and no answer read: the relay stops reading, and its memory stays small."""
    stream = await relay.stream().open()
    nonsense = pb.Settle(settlements=[settlement(bytes([n % 256]) * 200) for n in range(2_000)])
    (session,) = await relay.attached()
    stuck = 0

    async def talk() -> bool:
        nonlocal stuck
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(stream.send(settle=nonsense))), 0.2)
        except TimeoutError:
            stuck += 1
        return stuck > 0

    await until(talk, "gRPC's flow control holds the application back")
    assert len(session._problems) <= MAX_PROBLEMS + 2_000
    await put(relay, "a", topic="u")
    other = await relay.stream().open("u")
    await other.ack([await other.delivery()])
    await other.finish()
    stream.call.cancel()


# ------------------------------------------------------------------------------- ends of streams


async def test_a_half_close_after_drain_ends_in_order(relay: Served) -> None:
    """Last settlements are written before the stream's OK; the rest is released, without suspicion. A loss
    would make suspects here."""
    relay.tune(retry=RetryPolicy(max_attempts=1))
    stream = await relay.stream().open()
    await put(relay, "a", "b", "c")
    a, _, _ = await stream.deliveries(3)
    await stream.send(drain=pb.Drain())
    slow = relay.store.hold("settle")
    await stream.ack([a])

    async def reached() -> bool:
        return slow.reached > 0

    await until(reached, "the settlement is on its way")
    await stream.call.done_writing()
    await put(relay, "late")
    slow.open()
    assert await stream.finish_reading() == []
    assert await relay.store.inner.get("t", "a") is None
    await released(relay, "b", "c")
    again = await relay.stream().open()
    deliveries = await again.deliveries(3)
    assert len(again.frames) == 2, "no suspects: all in one frame"
    await again.ack(deliveries)
    await again.finish()


async def test_a_half_close_without_drain_looks_like_a_death(relay: Served) -> None:
    """What was in flight comes back, received ones as the next attempt; one by one if it is the last."""
    relay.tune(retry=RetryPolicy(max_attempts=2, initial=0.0))
    stream = await relay.stream().open()
    await put(relay, "a", "b")
    a, _ = await stream.deliveries(2)
    await stream.settle(received=[a.token])
    assert await stream.finish() == []
    await released(relay, "a", "b")
    again = await relay.stream().open()
    attempts = {}
    for _ in range(2):
        delivery = await again.delivery()
        attempts[delivery.timer_id] = delivery.attempt
        await again.ack([delivery])
    assert attempts == {"a": 2, "b": 1}
    assert len(again.frames) == 3, "each alone"
    await again.finish()


async def test_a_late_problem_is_said_before_the_end(relay: Served) -> None:
    """The last settlement was stale: the application hears of it although it has ended its side."""
    stream = await relay.stream().open()
    await put(relay, "a")
    delivery = await stream.delivery()
    await put(relay, "a", due_time=at(4_000_000_000))
    await stream.send(drain=pb.Drain())
    await stream.ack([delivery])
    (last,) = await stream.finish()
    assert [problem.reason for problem in last.problems.problems] == [STALE]


async def test_an_application_that_vanishes_is_released_at_once(
    relay: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """No lease is waited for, nothing is logged as an error."""
    stream = await relay.stream().open()
    await put(relay, "a", "b")
    await stream.deliveries(2)
    stream.call.cancel()
    await released(relay, "a", "b")
    assert relay.engine._dispatcher.sessions() == set()
    assert caplog.text == ""


async def test_a_broken_connection_is_released_at_once(
    relay: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The channel is closed without a word."""
    async with grpc.aio.insecure_channel(relay.server.address) as channel:
        other = relay.dial(channel)
        stream = await other.stream().open()
        await put(relay, "a")
        await stream.delivery()
    await released(relay, "a")
    assert caplog.text == ""


async def test_an_application_that_vanishes_while_its_last_words_are_written_leaves_nothing(
    relay: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """It half-closes, Redis hangs, it goes: the settlement is written all the same."""
    stream = await relay.stream().open()
    await put(relay, "a", "b")
    a, _ = await stream.deliveries(2)
    slow = relay.store.hold("settle")
    await stream.ack([a])
    await stream.call.done_writing()

    async def ended() -> bool:
        return slow.reached > 0 and not relay.engine._dispatcher.sessions()

    await until(ended, "the relay has seen the end")
    stream.call.cancel()
    slow.open()
    await gone(relay, "a")
    await released(relay, "b")
    assert caplog.text == ""


async def test_a_half_close_by_an_application_that_reads_slowly_ends_in_order(relay: Served) -> None:
    """A frame is stuck in flow control when it ends its side: it may still read to the last word."""
    for n in range(12):
        await put(relay, f"{n:02}", payload=bytes(1 << 20))
    stream = await relay.stream().open()

    async def claimed() -> bool:
        page = await relay.engine.page("t", state=None, limit=100, cursor="")
        return all(timer.state.value == "leased" for timer in page.timers)

    await until(claimed, "all are claimed")
    await stream.settle(settlement(b"?"))
    await stream.call.done_writing()
    await released(relay, "00", "11")
    frames = await stream.finish_reading()
    # Not always the last word: before the end of its side came, a frame may have left behind the problem's.
    assert [frame.WhichOneof("message") for frame in frames].count("problems") == 1
    assert await stream.status() is grpc.StatusCode.OK


async def test_a_refused_application_that_does_not_read_is_released_all_the_same(relay: Served) -> None:
    """Its second Open comes while a frame is stuck in flow control: not even the status can reach it."""
    names = [f"{n:02}" for n in range(12)]
    await put(relay, *names, payload=bytes(1 << 20))
    stuck = await relay.stream().open()

    async def claimed() -> bool:
        page = await relay.engine.page("t", state=None, limit=100, cursor="")
        return all(timer.state.value == "leased" for timer in page.timers)

    await until(claimed, "all are claimed")
    await stuck.send(open=pb.Open(topics=["t"], max_outstanding=1))
    await released(relay, *names)


async def test_a_stream_that_never_settles_or_reads_holds_up_nobody(relay: Served) -> None:
    """It keeps its own places; other streams, on the same topic too, and calls go on."""
    await put(relay, *(f"{n}" for n in range(5)), payload=bytes(1 << 20))
    stuck = await relay.stream().open(max_outstanding=5)
    (session,) = await relay.attached()

    async def full() -> bool:
        return session.free == 0

    await until(full, "it is full")
    other = await relay.stream().open("t", "u")
    await put(relay, "mine")
    await put(relay, "also", topic="u")
    deliveries = await other.deliveries(2)
    assert {delivery.timer_id for delivery in deliveries} == {"mine", "also"}
    await other.ack(deliveries)
    await gone(relay, "mine")
    await other.finish()
    stuck.call.cancel()


# ------------------------------------------------------------------------------- drain by the relay


async def test_the_relay_s_drain_reaches_the_application(relay: Served) -> None:
    """It finishes what it has, settles it and ends its side; drain waits for that."""
    stream = await relay.stream().open()
    await put(relay, "a")
    delivery = await stream.delivery()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay.engine.drain, 20.0)
        assert (await stream.next()).WhichOneof("message") == "drain"
        await put(relay, "b")
        late = await relay.stream().open()
        assert (await late.next()).WhichOneof("message") == "drain"
        await stream.ack([delivery])
        assert await stream.finish() == []
        assert await late.finish() == []
    assert await relay.store.inner.get("t", "a") is None
    await released(relay, "b")


async def test_an_application_that_ignores_the_drain_is_cut_off(
    relay: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Its timers are released, its stream ended; a late word harms nothing."""
    stream = await relay.stream().open()
    await put(relay, "a")
    delivery = await stream.delivery()
    await relay.engine.drain(0.05)
    await released(relay, "a")
    assert (await stream.next()).WhichOneof("message") == "drain"
    await stream.ack([delivery])
    assert await stream.problems() == [UNKNOWN]
    await relay.server.stop(0.1)
    assert await stream.status() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert caplog.text == ""


async def test_redis_away_and_back_is_survived_by_a_stream(relay: Served) -> None:
    """It stays open; what it said meanwhile is written, and deliveries go on."""
    stream = await relay.stream().open()
    await put(relay, "a")
    delivery = await stream.delivery()
    doors = [relay.store.fail(v, StoreUnavailable("away")) for v in ("claim", "settle", "extend", "ping")]
    await stream.ack([delivery])

    async def noticed() -> bool:
        return bool(relay.engine.ready())

    await until(noticed, "the absence is noticed")
    for door in doors:
        door.open()
    await gone(relay, "a")
    await put(relay, "b")
    await stream.ack([await stream.delivery()])
    await gone(relay, "b")
    await stream.finish()


# ------------------------------------------------------------------------------- foreign content


def envelope(headers: dict[bytes, bytes], body: bytes) -> bytes:
    """FastStream's binary form, with whatever bytes in the headers."""
    block = b"".join(struct.pack(">H", len(text)) + text for item in headers.items() for text in item)
    return (
        b"\x89BIN\x0d\x0a\x1a\x0a" + struct.pack(">HIIH", 1, 18, 20 + len(block), len(headers)) + block + body
    )


FOREIGN = {
    "no envelope": b"just bytes \xff\xfe",
    "empty": b"",
    "magic only": b"\x89BIN\x0d\x0a\x1a\x0a",
    "odd headers": envelope({"ключ\u200b".encode(): "\u0000\u202e\U0001f525".encode()}, b"body"),
    "headers no utf-8": envelope({b"\xff\xfe": b"\xed\xa0\x80"}, b"body"),
    "lone surrogates": b'{"data": "x", "headers": {"a\\ud800": "\\udfff"}}',
    "json of other shape": b'{"data": 7, "headers": [1]}',
    "nested without end": b'{"data": ' + b"[" * 200_000,
    "a number without end": b'{"data": ' + b"9" * 10_000 + b"}",
}


async def test_foreign_content_is_delivered_and_breaks_nothing(
    relay_on_valkey: Served, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Whatever a foreign publisher wrote comes as some payload; none of it ends the stream or the poller."""
    relay, topic = relay_on_valkey, keyspace.topic()
    with valkey.client() as redis:
        redis.hset(f"timers_payloads:{topic}", mapping=dict(FOREIGN))
        redis.zadd(f"timers_timeline:{topic}", {name: 1_700_000_000 + n for n, name in enumerate(FOREIGN)})
        redis.hset(f"timers_payloads:{topic}", b"\xff\xfe", b"x")
        redis.zadd(f"timers_timeline:{topic}", {b"\xff\xfe": 1.0})
        redis.zadd(f"timers_timeline:{topic}", {"no payload": 2.0, "never": float("inf")})
        redis.hset(f"timers_payloads:{topic}", "never", b"x")
    stream = await relay.stream().open(topic)
    deliveries = await stream.deliveries(len(FOREIGN))
    assert {delivery.timer_id for delivery in deliveries} == FOREIGN.keys()
    by_name = {delivery.timer_id: delivery for delivery in deliveries}
    assert by_name["no envelope"].payload == FOREIGN["no envelope"]
    assert by_name["odd headers"].payload == b"body"
    assert dict(by_name["odd headers"].headers) == {"ключ\u200b": "\u0000\u202e\U0001f525"}
    await stream.ack(deliveries)
    await gone(relay, *FOREIGN, topic=topic)
    assert await stream.finish() == []


async def test_a_listing_shows_ids_that_are_no_text(
    relay_on_valkey: Served, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Escaped, for people to see that they are there."""
    topic = keyspace.topic()
    with valkey.client() as redis:
        redis.hset(f"timers_payloads:{topic}", b"\xff", b"x")
        redis.zadd(f"timers_timeline:{topic}", {b"\xff": 4e9})
    page = await relay_on_valkey.engine.page(topic, state=None, limit=9, cursor="")
    assert [replies.timer(topic, timer).timer_id for timer in page.timers] == ["\\xff"]


async def test_a_unix_socket_carries_streams_too(tmp_path: Any) -> None:
    """The same service, another way in."""
    async with served(listen=f"unix:{tmp_path}/r.sock") as relay:
        stream = await relay.stream().open()
        await put(relay, "a")
        await stream.ack([await stream.delivery()])
        await stream.finish()
        await gone(relay, "a")


async def test_headers_that_no_envelope_holds_harm_no_other_timer(
    relay_on_valkey: Served, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """A foreign writer's JSON may have longer ones; with a new payload they can't be written back."""
    relay, topic = relay_on_valkey, keyspace.topic()
    with valkey.client() as redis:
        long = json.dumps({"data": "x", "headers": {"h": "v" * 70_000}})
        redis.hset(f"timers_payloads:{topic}", mapping={"long": long, "other": b"x"})
        redis.zadd(f"timers_timeline:{topic}", {"long": 1.0, "other": 1.0})
    stream = await relay.stream().open(topic)
    tokens = {one.timer_id: one.token for one in await stream.deliveries(2)}
    again = pb.Reschedule(delay=Duration(seconds=60), payload=b"new")
    await stream.settle(
        settlement(tokens["long"], pb.OUTCOME_RESCHEDULE, reschedule=again), settlement(tokens["other"])
    )
    await gone(relay, "other", topic=topic)
    stored = await relay.engine.get(topic, "long")
    assert stored is not None
    assert (stored.attempts, stored.payload) == (1, b"x")
    await stream.finish()
