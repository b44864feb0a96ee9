"""What a handler's end becomes. A scene raises `Broken` where its rule is broken."""

from __future__ import annotations

from relay.conformance.observed import Broken
from relay.conformance.scene import scene
from relay.conformance.stage import Stage
from relay.conformance.stream import delivery
from relay.v1 import delivery_service_pb2 as pb

SECTION = "outcomes"


async def ended(stage: Stage, payload: str, outcome: pb.Outcome) -> pb.Settlement:
    """Deliver one timer with this payload; return its settlement. Raises `Broken` for another outcome."""
    stream, one = await stage.stream(), delivery(payload)
    await stream.deliver(one)
    return await stage.settled(stream, one, outcome)


@scene(SECTION, "A handler that returns is an ACK.")
async def ack(stage: Stage) -> None:
    await ended(stage, "ack", pb.OUTCOME_ACK)


@scene(SECTION, "A NACK carries the pause that was asked for, and none that was not.")
async def nack(stage: Stage) -> None:
    stream = await stage.stream()
    plain, paused = delivery("nack", "plain"), delivery("nack 1500", "paused")
    await stream.deliver(plain, paused)
    said = await stage.settled(stream, plain, pb.OUTCOME_NACK)
    if said.HasField("retry_after"):
        raise Broken("plain: retry_after came, and was not asked for")
    said = await stage.settled(stream, paused, pb.OUTCOME_NACK)
    if said.retry_after.ToMicroseconds() != 1_500_000:
        raise Broken(f"paused: retry_after: {said.retry_after.ToJsonString()} came, and 1.5 s was asked for")


@scene(SECTION, "An error that a handler did not expect is a NACK, without the payload in its reason.")
async def error(stage: Stage) -> None:
    secret = "rosebud-1941"
    said = await ended(stage, f"error {secret}", pb.OUTCOME_NACK)
    if secret in said.reason:
        raise Broken("the reason quotes the payload")


@scene(SECTION, "A NACK that says that another attempt is useless has retryable set to false.")
async def final_nack(stage: Stage) -> None:
    said = await ended(stage, "final", pb.OUTCOME_NACK)
    if not said.HasField("retryable") or said.retryable:
        raise Broken("retryable: false was asked for, and did not come")


@scene(SECTION, "A REJECT carries its reason.")
async def reject(stage: Stage) -> None:
    said = await ended(stage, "reject größer", pb.OUTCOME_REJECT)
    if said.reason != "größer":
        raise Broken(f"reason: {said.reason!r} came, and 'größer' was asked for")


@scene(SECTION, "RESCHEDULE carries the delay that was asked for.")
async def reschedule(stage: Stage) -> None:
    said = await ended(stage, "reschedule 60000", pb.OUTCOME_RESCHEDULE)
    if said.reschedule.delay.ToMicroseconds() != 60_000_000:
        raise Broken("reschedule.delay: 60 s was asked for, and did not come")


@scene(SECTION, "EXTEND leaves the delivery open, and an outcome follows.")
async def extend(stage: Stage) -> None:
    stream = await stage.stream()
    one = delivery(f"extend {stage.gate()}")
    await stage.begin(stream, one)
    await stage.until(lambda: one.token in stream.extended or one.token in stream.outcomes, "EXTEND comes")
    if one.token in stream.outcomes:
        raise Broken("an outcome came, and the handler still worked")
    stage.gate().touch()
    await stage.settled(stream, one, pb.OUTCOME_ACK)


SCENES = (ack, nack, error, final_nack, reject, reschedule, extend)
