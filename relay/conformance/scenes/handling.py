"""From Open to the receipt: what is asked for, what a handler gets, and how much of it at once.

A scene raises `Broken` where its rule is broken.
"""

from __future__ import annotations

from relay.conformance.observed import Broken, Unasked
from relay.conformance.scene import scene
from relay.conformance.stage import Stage
from relay.conformance.stream import DUE_US, TOPIC, delivery
from relay.v1 import delivery_service_pb2 as pb

LARGE = 6 * 2**20
"""Bytes: more than the 4 MiB that gRPC's libraries take unless they are told to take more."""
MANY = 500
"""The most deliveries of one message."""
GATHERED = 750
"""The most messages for them. Without gathering there are 1,000. A client whose handlers end one by one, each
behind the last write, has 500 of outcomes. Its receipts are gathered: their deliveries came together."""


@scene(
    "open", "The first message is Open, with the topic and the places that were asked for; there is one Open."
)
async def opening(stage: Stage) -> None:
    await stage.handle(outstanding=7)
    stream = await stage.arrived()
    assert stream.open is not None
    if list(stream.open.topics) != [TOPIC]:
        raise Broken(f"topics: {list(stream.open.topics)} came, and [{TOPIC!r}] was asked for")
    if stream.open.max_outstanding != 7:
        raise Broken(f"max_outstanding: {stream.open.max_outstanding} came, and 7 was asked for")
    await stream.open_it()
    one = delivery("ack")
    await stage.begin(stream, one)
    await stage.settled(stream, one, pb.OUTCOME_ACK)


@scene("receipts", "A receipt has left before its handler's first line runs.")
async def receipts(stage: Stage) -> None:
    stream = await stage.stream()
    await stage.begin(stream, delivery("freeze"))


@scene(
    "deliveries",
    "A handler gets the content, the headers and the due time to the microsecond, as they were sent.",
)
async def content(stage: Stage) -> None:
    stream = await stage.stream()
    one = odd()
    await stage.begin(stream, one)
    check_told(await stage.settled(stream, one, pb.OUTCOME_REJECT), one)


def odd() -> pb.Delivery:
    """A delivery that asks its handler to tell what it got, and has what is easily lost."""
    return delivery(
        "",
        "zwölf",
        attempt=3,
        payload=b"tell \x00\xff",
        headers={"ort": "Brötchen ☕"},
        content_type="text/x-all",
    )


def check_told(said: pb.Settlement, one: pb.Delivery) -> None:
    """Raises `Broken` unless the handler has told what was sent."""
    wanted = (
        one.timer_id,
        str(one.attempt),
        str(DUE_US),
        one.occurrence_id,
        one.content_type,
        one.headers["ort"],
        one.payload.hex(),
    )
    names = ("timer_id", "attempt", "due_time", "occurrence_id", "content_type", "header ort", "payload")
    told = said.reason.split("|")
    if len(told) != len(wanted):
        raise Broken(f"the reason has to have {len(wanted)} parts, and has {len(told)}")
    for name, was, sent in zip(names, told, wanted, strict=True):
        if was != sent:
            raise Broken(f"{name}: {sent!r} was sent, and the handler got {was!r}")


@scene("open", "A message that is larger than gRPC's usual 4 MiB is received.")
async def large_message(stage: Stage) -> None:
    stream = await stage.stream()
    one = delivery("", payload=b"ack" + b" " * LARGE)
    await stage.begin(stream, one)
    await stage.settled(stream, one, pb.OUTCOME_ACK)


@scene("outcomes", "Receipts and outcomes are gathered: 500 deliveries take at most 750 messages.")
async def batches(stage: Stage) -> None:
    stream = await stage.stream(outstanding=MANY)
    many = [delivery("ack", f"a{number}") for number in range(MANY)]
    await stream.deliver(*many)
    await stage.until(lambda: len(stream.outcomes) == MANY, f"{MANY} outcomes come")
    if stream.messages > GATHERED:
        raise Broken(f"{stream.messages} messages came for {MANY} deliveries")


@scene(
    "open", "No more handlers run than max_outstanding says, whatever comes; and all of it gets its outcome."
)
async def flood(stage: Stage) -> None:
    stream = await stage.stream(outstanding=4)
    many = [delivery(f"hold {stage.gate()}", f"a{number}") for number in range(12)]
    await stream.deliver(*many)
    await stage.until(lambda: stream.running >= 4, "four handlers run")
    stage.gate().touch()
    await stage.until(lambda: stream.most_running > 4 or len(stream.outcomes) == 12, "12 outcomes come")
    if stream.most_running > 4:
        raise Broken(f"{stream.most_running} handlers ran at once, and max_outstanding is 4")


@scene("deliveries-by-columns", "A client that asks for columns settles each delivery of them.")
async def columns(stage: Stage) -> None:
    stream = await stage.stream()
    assert stream.open is not None
    if not stream.open.columns:
        raise Unasked
    rows = [delivery("ack", "a"), delivery("nack", "b"), delivery("reject no", "c")]
    message = pb.DeliverResponse(
        columns=pb.DeliveryColumns(
            topic=TOPIC,
            timer_ids=[each.timer_id for each in rows],
            payloads=[each.payload for each in rows],
            due_times_us=[DUE_US] * len(rows),
            attempts=[1] * len(rows),
            lease_deadlines_us=[DUE_US] * len(rows),
            occurrence_ids=[each.occurrence_id for each in rows],
            tokens=[each.token for each in rows],
        )
    )
    await stream.send(message)
    ends = (pb.OUTCOME_ACK, pb.OUTCOME_NACK, pb.OUTCOME_REJECT)
    for one, outcome in zip(rows, ends, strict=True):
        await stage.settled(stream, one, outcome)


SCENES = (opening, receipts, content, large_message, batches, flood, columns)
