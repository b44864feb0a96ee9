"""DeliveryService by columns: deliveries that are alike, and what is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from relay.api import frames
from relay.api.frames import MOST_HEADER_COLUMNS as MOST
from relay.core.timers import NO_HEADERS, ClaimedTimer, ClaimedTimers
from relay.engine.delivery.leases import Leases
from relay.v1 import delivery_service_pb2 as pb
from tests.keyspace import Keyspace
from tests.worlds.engine.leased import leased
from tests.worlds.engine.served import Served, gone, put
from tests.worlds.engine.stubs import ACK, EXTEND, NACK, Stream, at, settlement

DUPLICATE, UNKNOWN = pb.PROBLEM_REASON_DUPLICATE, pb.PROBLEM_REASON_UNKNOWN_TOKEN


async def columns(stream: Stream, count: int) -> list[pb.Delivery]:
    """The next deliveries, all by columns."""
    found: list[pb.Delivery] = []
    while len(found) < count:
        response = await stream.next()
        assert response.WhichOneof("message") == "columns", response
        found += one_by_one(response.columns)
    return found


def one_by_one(said: pb.DeliveryColumns) -> list[pb.Delivery]:
    """What the columns say, as deliveries."""
    found = []
    for place, token in enumerate(said.tokens):
        own = {
            column.name: column.values[place] for column in said.header_columns if place not in column.without
        }
        delivery = pb.Delivery(
            topic=said.topic,
            timer_id=said.timer_ids[place],
            payload=said.payloads[place],
            headers={**said.headers, **own},
            content_type=said.content_type,
            attempt=said.attempts[place],
            occurrence_id=said.occurrence_ids[place],
            token=token,
        )
        delivery.due_time.FromMicroseconds(said.due_times_us[place])
        delivery.lease_deadline.FromMicroseconds(said.lease_deadlines_us[place])
        found.append(delivery)
    return found


async def test_columns_say_what_deliveries_say(any_relay: Served, keyspace: Keyspace) -> None:
    """Every field of each; a stream that doesn't ask for columns never sees them."""
    relay, topic = any_relay, keyspace.topic()
    shared = {"headers": {"k": "ü"}, "content_type": "text/x"}
    names = ("a", "b", "c")
    for place, name in enumerate(names):
        due = at(1_700_000_000 + place, 123_456_000)
        await put(relay, name, topic=topic, payload=name.encode(), due_time=due, **shared)
    plain = await relay.stream().open(topic)
    before = await plain.deliveries(3)
    await plain.settle(*(settlement(each.token, NACK, retry_after=Duration()) for each in before[:1]))
    again = await plain.delivery()
    assert (again.timer_id, again.attempt) == ("a", 2)
    await plain.send(drain=pb.Drain())
    assert await plain.finish() == []  # what is unsettled falls due at once, unreceived
    stream = await relay.stream().open(topic, columns=True)
    said = {each.timer_id: each for each in await columns(stream, 3)}
    for then in (again, *before[1:]):
        now = said[then.timer_id]
        assert now.lease_deadline.ToMicroseconds() >= then.lease_deadline.ToMicroseconds() > 0
        assert now.token != then.token
        for field in ("token", "lease_deadline"):
            now.ClearField(field)
            then.ClearField(field)
        assert now == then
    await stream.call.done_writing()


@pytest.mark.parametrize(
    "fields",
    [{"headers": {"k": "v"}}, {"content_type": "text/x"}, {"headers": {"k": "v"}, "content_type": "text/x"}],
    ids=lambda fields: "-".join(fields),
)
async def test_those_that_are_not_alike_come_one_by_one(relay: Served, fields: dict[str, Any]) -> None:
    """Whoever asks for columns reads deliveries, too."""
    await put(relay, "plain")
    await put(relay, "other", **fields)
    stream = await relay.stream().open(columns=True)
    first, second = await stream.deliveries(2)
    assert (first.timer_id, dict(first.headers), first.content_type) == ("plain", {}, "")
    assert (second.timer_id, dict(second.headers)) == ("other", fields.get("headers", {}))
    assert second.content_type == fields.get("content_type", "")
    await stream.ack([first, second])
    await gone(relay, "plain", "other")


async def test_headers_that_differ_have_columns(any_relay: Served, keyspace: Keyspace) -> None:
    """For whoever asks for these, too: what all share is said once, and what one lacks is not there."""
    relay, topic = any_relay, keyspace.topic()
    sent = {
        "a": {"tenant": "Søren", "traceparent": "1"},
        "b": {"tenant": "Søren", "traceparent": "2", "more": ""},
        "c": {"tenant": "Søren"},
    }
    for name, headers in sent.items():
        await put(relay, name, topic=topic, headers=headers, content_type="text/x")
    stream = await relay.stream().open(topic, columns=True, header_columns=True)
    found = await columns(stream, 3)
    assert {each.timer_id: dict(each.headers) for each in found} == sent
    (said,) = [frame.columns for frame in stream.frames if frame.HasField("columns")]
    assert dict(said.headers) == {"tenant": "Søren"}
    assert {column.name for column in said.header_columns} == {"traceparent", "more"}
    await stream.ack(found)
    await gone(relay, *sent, topic=topic)


def one(topic: str, name: str, *, claimed: int, headers: Mapping[str, str] = NO_HEADERS) -> Leases:
    timer = ClaimedTimer(name, b"x", headers, "", due=1, attempt=1, occurrence_id=name)
    return leased(timer, topic=topic, claimed=claimed)


@pytest.mark.parametrize(("names", "said"), [(MOST, "columns"), (MOST + 1, "deliveries")])
def test_many_different_headers_come_one_by_one(names: int, said: str) -> None:
    """A header takes an entry for each delivery, even where only one has it."""
    parts = [one("t", str(n), claimed=n, headers={f"h{n}": "v"}) for n in range(names)]
    frame = frames.frame(parts, columns=True, header_columns=True)
    assert frame.WhichOneof("message") == said


def test_the_same_headers_are_said_once() -> None:
    """Whether or not the application reads columns of headers."""
    parts = [one("t", name, claimed=7, headers={"k": "v"}) for name in "ab"]
    asked, unasked = (frames.frame(parts, columns=True, header_columns=header) for header in (True, False))
    assert asked == unasked
    assert dict(asked.columns.headers) == {"k": "v"}


def test_two_topics_are_not_alike() -> None:
    """A message of columns has one topic."""
    frame = frames.frame([one("one", "a", claimed=7), one("two", "b", claimed=7)], columns=True)
    assert [(each.topic, each.timer_id) for each in frame.deliveries.deliveries] == [
        ("one", "a"),
        ("two", "b"),
    ]
    assert not frame.HasField("columns")


def test_two_claims_of_a_topic_are_alike() -> None:
    """Each with its own lease."""
    said = frames.frame([one("t", "a", claimed=7), one("t", "b", claimed=8)], columns=True)
    assert [each.lease_deadline.nanos for each in one_by_one(said.columns)] == [7_000, 8_000]


async def test_a_guessed_due_time_is_said(relay: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no column for it."""
    real = Leases.of

    def guessed(topic: str, timers: ClaimedTimers, *rest: Any, **more: Any) -> Leases:
        timers.approximate = [True] * len(timers)
        return real(topic, timers, *rest, **more)

    monkeypatch.setattr(Leases, "of", guessed)
    stream = await relay.stream().open(columns=True)
    await put(relay, "a")
    assert (await stream.delivery()).due_time_approximate


async def test_what_is_acknowledged_is_gone(any_relay: Served, keyspace: Keyspace) -> None:
    """Opened says that the list is read; it is, of columns and of deliveries alike."""
    relay, topic = any_relay, keyspace.topic()
    for asked in (True, False):
        stream = await relay.stream().open(topic, columns=asked)
        assert stream.frames[0].opened.acknowledged
        await put(relay, "a", "b", topic=topic)
        tokens: list[bytes] = []
        while len(tokens) < 2:
            response = await stream.next()
            tokens += response.columns.tokens or [each.token for each in response.deliveries.deliveries]
        await stream.send(settle=pb.Settle(received=tokens, acknowledged=tokens))
        await gone(relay, "a", "b", topic=topic)
        await stream.send(drain=pb.Drain())
        assert await stream.finish() == []


async def test_what_is_acknowledged_is_read_last(relay: Served) -> None:
    """An EXTEND in the same message came before its handler ended."""
    stream = await relay.stream().open(columns=True)
    await put(relay, "a", "b")
    a, b = (each.token for each in await columns(stream, 2))
    extend, ack = settlement(a, EXTEND), settlement(b, ACK)
    await stream.send(settle=pb.Settle(settlements=[extend, ack], acknowledged=[a]))
    await gone(relay, "a", "b")
    await stream.send(drain=pb.Drain())
    assert await stream.finish() == []


async def test_what_can_t_be_acknowledged_is_a_problem(relay: Served) -> None:
    """Each as it would be of a Settlement, and the others stand."""
    stream = await relay.stream().open(columns=True)
    await put(relay, "a")
    (token,) = (each.token for each in await columns(stream, 1))
    said = pb.Settle(settlements=[settlement(token, NACK)], acknowledged=[token, b"unheard of"])
    await stream.send(settle=said)
    assert await stream.problems(2) == [DUPLICATE, UNKNOWN]


@pytest.mark.parametrize("columns", [True, False])
async def test_a_payload_is_forgotten_once_it_is_written(relay: Served, *, columns: bool) -> None:
    """The application has it: two copies of many would be much."""
    await put(relay, "a", payload=b"x" * 1_000)
    stream = await relay.stream().open(columns=columns)
    assert (await stream.next()).ByteSize() > 1_000
    ((_, lease),) = relay.engine._dispatcher.leases()
    assert (lease.timer.payload, lease.size) == (b"", 1_000)
