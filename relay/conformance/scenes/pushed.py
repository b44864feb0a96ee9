"""Push: the client listens, and is called. A scene raises `Broken` where its rule is broken."""

from __future__ import annotations

import grpc

from relay.conformance.dialled import CallOfClient, DialledClient
from relay.conformance.observed import Broken, Unasked
from relay.conformance.scene import scene
from relay.conformance.scenes.handling import LARGE, check_told, odd
from relay.conformance.scenes.newer import UNKNOWN_FIELD, with_unknown_field
from relay.conformance.scenes.outcomes import CHECKS
from relay.conformance.stage import Stage
from relay.conformance.stream import delivery
from relay.v1 import delivery_service_pb2 as pb

SECTION, BATCH = "push", "by-the-batch"
ELSEWHERE = "conformance-elsewhere"
"""A topic that the client has no handler for."""
DEADLINE = 1.0
"""Seconds of a call that is not answered in time."""


@scene(SECTION, "A handler's end is the answer, as on a stream; the status INVALID_ARGUMENT is a REJECT.")
async def push_outcomes(stage: Stage) -> None:
    dialled = await stage.pushed()
    for word, outcome, check in CHECKS:
        one = delivery(word, word.partition(" ")[0])
        check(await stage.settled(dialled.deliver(one), one, outcome))


@scene(SECTION, "The initial metadata with relay-receipt has left before the handler's first line runs.")
async def push_receipt(stage: Stage) -> None:
    dialled = await stage.pushed()
    one = delivery("freeze")
    await stage.receipt(dialled.deliver(one), one)


@scene(
    SECTION,
    "A handler gets what was sent: to the microsecond, above gRPC's usual 4 MiB, and beside unknown fields.",
)
async def push_content(stage: Stage) -> None:
    dialled = await stage.pushed()
    one, large = odd(), delivery("", payload=b"ack" + b" " * LARGE)
    request = with_unknown_field(1, one.SerializeToString()) + UNKNOWN_FIELD
    check_told(await stage.settled(dialled.deliver_bytes(one, request), one, pb.OUTCOME_REJECT), one)
    await stage.settled(dialled.deliver(large), large, pb.OUTCOME_ACK)


@scene(
    SECTION,
    "A timer of a topic without a handler is answered UNIMPLEMENTED, or refused in a batch: no receipt.",
)
async def push_unknown_topic(stage: Stage) -> None:
    dialled = await stage.pushed()
    one, other = delivery("ack", topic=ELSEWHERE), delivery("ack", topic=ELSEWHERE)
    for call, each in ((dialled.deliver(one), one), (dialled.deliver_batch(other), other)):
        await _ended(stage, call)
        if each.token not in call.refused and call.code is not grpc.StatusCode.UNIMPLEMENTED:
            raise Broken(f"{call.ended}, and the client has no handler for the topic")
        if each.token in call.received:
            raise Broken("a receipt came, which makes it an attempt, and the client has no handler")
    known = delivery("ack")
    await stage.settled(dialled.deliver(known), known, pb.OUTCOME_ACK)


@scene(SECTION, "A timer that comes again, as the same occurrence, is handled and answered again.")
async def push_redelivery(stage: Stage) -> None:
    dialled = await stage.pushed()
    ends = ("nack", pb.OUTCOME_NACK), ("ack", pb.OUTCOME_ACK), ("reject again", pb.OUTCOME_REJECT)
    for attempt, (word, outcome) in enumerate(ends, 1):
        one = delivery(word, attempt=attempt)
        call = dialled.deliver(one)
        await stage.receipt(call, one)
        await stage.settled(call, one, outcome)


@scene(
    SECTION,
    "A timer that comes again after its call's deadline is answered, beside the handler that is late.",
)
async def push_deadline(stage: Stage) -> None:
    dialled = await stage.pushed()
    late, again = delivery(f"hold {stage.gate('late')}"), delivery(f"hold {stage.gate()}", attempt=2)
    missed = dialled.deliver(late, DEADLINE)
    await stage.until(lambda: missed.ended, "the call ends by its deadline")
    if (said := missed.outcomes.get(late.token)) and said.outcome != pb.OUTCOME_NACK:
        raise Broken(f"{missed.ended}, and its handler still worked")
    call = dialled.deliver(again)
    await stage.receipt(call, again)
    stage.gate("late").touch()
    one = delivery("ack", "next")
    await stage.settled(dialled.deliver(one), one, pb.OUTCOME_ACK)
    if call.answered:
        raise Broken(f"{call.ended}, and its handler still worked")
    stage.gate().touch()
    await stage.settled(call, again, pb.OUTCOME_ACK)


@scene(SECTION, "As many handlers run at once as the relay calls: max_concurrent bounds it, and none waits.")
async def push_flood(stage: Stage) -> None:
    dialled = await stage.pushed(places=32)
    many = [delivery(f"hold {stage.gate()}", f"a{number}") for number in range(32)]
    calls = [dialled.deliver(each) for each in many]
    for call, each in zip(calls, many, strict=True):
        await stage.receipt(call, each)
    if any(call.answered for call in calls):
        raise Broken("an outcome came, and the handler still worked")
    stage.gate().touch()
    for call, each in zip(calls, many, strict=True):
        await stage.settled(call, each, pb.OUTCOME_ACK)


@scene(SECTION, "A client goes on when a connection breaks under a call: the next one is answered.")
async def push_connection(stage: Stage) -> None:
    dialled = await stage.pushed()
    held = delivery(f"hold {stage.gate()}")
    await stage.receipt(dialled.deliver(held), held)
    await dialled.hang_up()
    dialled.dial()
    await stage.serving()
    again = delivery("ack", attempt=2)
    call = dialled.deliver(again)
    await stage.receipt(call, again)
    await stage.settled(call, again, pb.OUTCOME_ACK)
    stage.gate().touch()
    last = delivery("ack", "last")
    await stage.settled(dialled.deliver(last), last, pb.OUTCOME_ACK)


@scene(
    SECTION,
    "On SIGTERM: NOT_SERVING, the outcomes of the handlers that run, no attempt lost by a call that comes, "
    "exit code 0.",
)
async def push_stop(stage: Stage) -> None:
    dialled = await stage.pushed()
    held, batched = delivery(f"hold {stage.gate()}", "held"), delivery(f"hold {stage.gate()}", "batched")
    call, batch = dialled.deliver(held), dialled.deliver_batch(batched)
    await stage.receipt(call, held)
    await stage.until(lambda: batched.token in batch.received or batch.ended, "the receipt of batched comes")
    stage.client.terminate()
    crossing = delivery("reject as asked", "crossing")
    crossed = dialled.deliver(crossing)
    if dialled.has_health:
        await stage.until(lambda: dialled.said_not_serving or call.ended, "its health says NOT_SERVING")
    if call.ended:
        raise Broken(f"{call.ended}, and its handler still worked")
    stage.gate().touch()
    await stage.settled(call, held, pb.OUTCOME_ACK)
    if batch.code is not grpc.StatusCode.UNIMPLEMENTED:
        await stage.settled(batch, batched, pb.OUTCOME_ACK)
    await stage.until(lambda: crossed.ended, "the call that came behind SIGTERM ends")
    if _is_lost(crossed, crossing):
        raise Broken(f"a call that came behind SIGTERM cost an attempt: {crossed.ended}")
    if code := await stage.ended():
        raise Broken(f"the exit code is {code}: {stage.client.last_words()}")


async def _ended(stage: Stage, call: CallOfClient) -> None:
    await stage.until(lambda: call.ended, "the call ends")


def _is_lost(call: CallOfClient, one: pb.Delivery) -> bool:
    """Whether a call counts as an attempt, and no handler had it."""
    said = call.outcomes.get(one.token)
    if said is not None and said.outcome == pb.OUTCOME_REJECT:
        return False  # the handler did as asked
    if said is not None and call.code is not grpc.StatusCode.UNAVAILABLE:
        return True
    return one.token in call.received


@scene(
    BATCH, "Each delivery of a batch has its outcome as it ends, by its token; then the call ends with OK."
)
async def push_batch(stage: Stage) -> None:
    dialled = await stage.pushed(places=len(CHECKS) + 1)
    held = delivery(f"hold {stage.gate()}", "held")
    quick = [delivery(word, f"a{number}") for number, (word, *_) in enumerate(CHECKS)]
    call = await _batch(stage, dialled, held, *quick)
    for one, (_, outcome, check) in zip(quick, CHECKS, strict=True):
        check(await stage.settled(call, one, outcome))
    if call.answered:
        raise Broken("an outcome came, and the handler still worked")
    stage.gate().touch()
    await stage.settled(call, held, pb.OUTCOME_ACK)
    await _ended(stage, call)
    if call.code is not grpc.StatusCode.OK:
        raise Broken(call.ended)


@scene(BATCH, "The receipt of a delivery in a batch has left before its handler's first line runs.")
async def push_batch_receipts(stage: Stage) -> None:
    dialled = await stage.pushed()
    one = delivery("freeze")
    await stage.receipt(await _batch(stage, dialled, one), one)


async def _batch(stage: Stage, dialled: DialledClient, *many: pb.Delivery) -> CallOfClient:
    """Call `DeliverBatch`. Raises `Unasked` if the client does not have it."""
    call = dialled.deliver_batch(*many)
    await stage.until(lambda: call.messages or call.ended, "a receipt or an outcome of the batch comes")
    if call.code is grpc.StatusCode.UNIMPLEMENTED and not call.messages:
        raise Unasked
    return call


SCENES = (
    push_outcomes,
    push_receipt,
    push_content,
    push_unknown_topic,
    push_redelivery,
    push_deadline,
    push_flood,
    push_connection,
    push_stop,
    push_batch,
    push_batch_receipts,
)
