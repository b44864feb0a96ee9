"""What handlers ask for in Open, and what the relay answers."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.core.policy import RetryPolicy
from relay.v1 import delivery_service_pb2 as pb
from tests.worlds.engine.served import Served, gone, put
from tests.worlds.engine.stubs import NACK, named_field, settlement, unpacked

BACKOFF = pb.Backoff(initial=Duration(nanos=1_000), multiplier=2.0, max=Duration(seconds=60))


async def answer(relay: Served, *asked: pb.HandlerSettings) -> list[pb.HandlerSettings]:
    stream = relay.stream()
    await stream.send(open=pb.Open(topics=["t"], max_outstanding=1, handlers=asked))
    return list((await stream.next()).opened.handlers)


async def test_the_answer_says_what_holds(relay: Served) -> None:
    """Fewer attempts and less time than the topic's hold as asked for; more are narrowed."""
    relay.tune("t", delivery_timeout=30.0, retry=RetryPolicy(max_attempts=5))
    odd = Duration(seconds=8, nanos=300_000_000)  # no double has this many seconds exactly
    less = pb.HandlerSettings(topic="t", max_attempts=2, backoff=BACKOFF, timeout=odd)
    assert await answer(relay, less) == [less]
    more = pb.HandlerSettings(topic="t", max_attempts=9, timeout=Duration(seconds=31))
    held = pb.HandlerSettings(topic="t", max_attempts=5, timeout=Duration(seconds=30))
    assert await answer(relay, more) == [held]
    assert await answer(relay) == []


async def test_what_is_agreed_is_kept(any_relay: Served) -> None:
    """Three attempts, and all of them soon, where the topic allows 25 and waits for seconds."""
    stream = any_relay.stream()
    asked = pb.HandlerSettings(topic="t", max_attempts=3, backoff=BACKOFF)
    await stream.send(open=pb.Open(topics=["t"], max_outstanding=10, handlers=[asked]))
    assert (await stream.next()).opened.handlers == [asked]
    await put(any_relay, "a")
    for attempt in (1, 2, 3):
        delivery = await stream.delivery()
        assert delivery.attempt == attempt
        await stream.settle(settlement(delivery.token, NACK), received=[delivery.token])
    await gone(any_relay, "a")
    assert await stream.finish() == []


WRONG = {
    "handlers[0].topic": pb.HandlerSettings(topic="other"),
    "handlers[0].max_attempts": pb.HandlerSettings(topic="t", max_attempts=-1),
    "handlers[0].backoff.multiplier": pb.HandlerSettings(topic="t", backoff=pb.Backoff(multiplier=0.5)),
    "handlers[0].backoff.initial": pb.HandlerSettings(
        topic="t", backoff=pb.Backoff(multiplier=1, initial=Duration(seconds=86_401))
    ),
    "handlers[0].backoff.max": pb.HandlerSettings(
        topic="t", backoff=pb.Backoff(multiplier=1, max=Duration(seconds=-1))
    ),
    "handlers[0].timeout": pb.HandlerSettings(topic="t", timeout=Duration()),
}


@pytest.mark.parametrize("field", WRONG)
async def test_a_wrong_wish_is_named(relay: Served, field: str) -> None:
    assert await refused(relay, WRONG[field]) == field


async def test_a_topic_has_one_entry(relay: Served) -> None:
    twice = pb.HandlerSettings(topic="t", max_attempts=1)
    assert await refused(relay, twice, twice) == "handlers[1].topic"


async def refused(relay: Served, *asked: pb.HandlerSettings) -> str:
    stream = relay.stream()
    await stream.send(open=pb.Open(topics=["t"], max_outstanding=1, handlers=asked))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.finish_reading()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return named_field(caught.value.details() or "", unpacked(caught.value.trailing_metadata()))
