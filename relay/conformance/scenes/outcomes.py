"""What a handler's end becomes. A scene raises `Broken` where its rule is broken."""

from __future__ import annotations

from collections.abc import Callable

from relay.conformance.observed import Broken
from relay.conformance.scene import scene
from relay.conformance.stage import Stage
from relay.conformance.stream import delivery
from relay.v1 import delivery_service_pb2 as pb

SECTION = "outcomes"
SECRET = "rosebud-1941"


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
    _check_no_pause(await stage.settled(stream, plain, pb.OUTCOME_NACK))
    _check_pause(await stage.settled(stream, paused, pb.OUTCOME_NACK))


def _check_no_pause(said: pb.Settlement) -> None:
    if said.HasField("retry_after"):
        raise Broken("plain: retry_after came, and was not asked for")


def _check_pause(said: pb.Settlement) -> None:
    if said.retry_after.ToMicroseconds() != 1_500_000:
        raise Broken(f"paused: retry_after: {said.retry_after.ToJsonString()} came, and 1.5 s was asked for")


@scene(SECTION, "An error that a handler did not expect is a NACK, without the payload in its reason.")
async def error(stage: Stage) -> None:
    _check_no_quote(await ended(stage, f"error {SECRET}", pb.OUTCOME_NACK))


def _check_no_quote(said: pb.Settlement) -> None:
    if SECRET in said.reason:
        raise Broken("the reason quotes the payload")


@scene(SECTION, "A NACK that says that another attempt is useless has retryable set to false.")
async def final_nack(stage: Stage) -> None:
    _check_final(await ended(stage, "final", pb.OUTCOME_NACK))


def _check_final(said: pb.Settlement) -> None:
    if not said.HasField("retryable") or said.retryable:
        raise Broken("retryable: false was asked for, and did not come")


@scene(SECTION, "A REJECT carries its reason.")
async def reject(stage: Stage) -> None:
    _check_reason(await ended(stage, "reject größer", pb.OUTCOME_REJECT))


def _check_reason(said: pb.Settlement) -> None:
    if said.reason != "größer":
        raise Broken(f"reason: {said.reason!r} came, and 'größer' was asked for")


@scene(SECTION, "RESCHEDULE carries the delay that was asked for.")
async def reschedule(stage: Stage) -> None:
    _check_delay(await ended(stage, "reschedule 60000", pb.OUTCOME_RESCHEDULE))


def _check_delay(said: pb.Settlement) -> None:
    if said.reschedule.delay.ToMicroseconds() != 60_000_000:
        raise Broken("reschedule.delay: 60 s was asked for, and did not come")


def _check_nothing(_: pb.Settlement) -> None: ...


CHECKS: tuple[tuple[str, pb.Outcome, Callable[[pb.Settlement], None]], ...] = (
    ("ack", pb.OUTCOME_ACK, _check_nothing),
    ("nack", pb.OUTCOME_NACK, _check_no_pause),
    ("nack 1500", pb.OUTCOME_NACK, _check_pause),
    (f"error {SECRET}", pb.OUTCOME_NACK, _check_no_quote),
    ("final", pb.OUTCOME_NACK, _check_final),
    ("reject größer", pb.OUTCOME_REJECT, _check_reason),
    ("reschedule 60000", pb.OUTCOME_RESCHEDULE, _check_delay),
)
"""The payloads that ask for an outcome at once, the outcome, and what raises `Broken` for a wrong one."""


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
