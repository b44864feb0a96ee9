"""Relays that are newer or older than the client."""

from __future__ import annotations

from relay.conformance.scene import scene
from relay.conformance.stage import Stage
from relay.conformance.stream import ServedStream, delivery
from relay.v1 import delivery_service_pb2 as pb

SECTION = "a-client-in-n-steps"
UNKNOWN_FIELD = b"\xba\x3e\x03new"
"""Field 999 of any message: three bytes."""


def with_unknown_field(number: int, content: bytes) -> bytes:
    """A message in the field of this number, with a field that nobody knows."""
    inner = content + UNKNOWN_FIELD
    return bytes([number << 3 | 2]) + _length(len(inner)) + inner


def _length(count: int) -> bytes:
    low, high = count & 0x7F, count >> 7
    return bytes([low | 0x80, high]) if high else bytes([low])


async def _goes_on(stage: Stage, stream: ServedStream) -> None:
    one = delivery("ack", "next")
    await stream.deliver(one)
    await stage.settled(stream, one, pb.OUTCOME_ACK)


@scene(SECTION, "Fields that the client does not know are ignored, in every message.")
async def unknown_fields(stage: Stage) -> None:
    await stage.handle()
    stream = await stage.arrived()
    await stream.open_it(answer=with_unknown_field(1, b"") + UNKNOWN_FIELD)
    one = delivery("ack")
    known = pb.DeliverResponse(deliveries=pb.DeliveryBatch(deliveries=[one]))
    stream.make_known(known)
    batch = with_unknown_field(1, one.SerializeToString())
    await stream.send(with_unknown_field(2, batch) + UNKNOWN_FIELD)
    await stage.settled(stream, one, pb.OUTCOME_ACK)
    await _goes_on(stage, stream)


@scene(SECTION, "A kind of message that the client does not know is ignored.")
async def unknown_kinds(stage: Stage) -> None:
    stream = await stage.stream()
    await stream.send(UNKNOWN_FIELD)
    await _goes_on(stage, stream)


@scene(
    "problems",
    "A Problem with a reason that the client does not know, or with a token that it has not, ends nothing.",
)
async def unknown_reasons(stage: Stage) -> None:
    stream = await stage.stream()
    held = delivery(f"hold {stage.gate()}", "held")
    await stage.begin(stream, held)
    await stream.problem(held.token, 77)
    await stream.problem(b"nobody's", pb.PROBLEM_REASON_UNKNOWN_TOKEN)
    stage.gate().touch()
    await stage.outcome(stream, held)
    await _goes_on(stage, stream)


@scene(
    "deliveries-by-columns", "Where Opened does not say that `acknowledged` is read, ACKs are settlements."
)
async def older_relay(stage: Stage) -> None:
    stream = await stage.stream()
    await _goes_on(stage, stream)


SCENES = (unknown_fields, unknown_kinds, unknown_reasons, older_relay)
