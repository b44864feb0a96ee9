"""Ends that somebody asked for, and leases that are lost.

A scene raises `Broken` where its rule is broken.
"""

from __future__ import annotations

import asyncio

import grpc

from relay.conformance.observed import Broken
from relay.conformance.scene import scene
from relay.conformance.stage import START_PATIENCE, Stage
from relay.conformance.stream import delivery
from relay.v1 import delivery_service_pb2 as pb

LINGER = 0.3
"""Seconds for which the relay lets the client wait for the end of the stream."""


@scene(
    "drain-said-by-the-application",
    "On SIGTERM: Drain, no new handlers, the outcomes of those that run, the end of its side, exit code 0.",
)
async def stop(stage: Stage) -> None:
    stream = await stage.stream()
    held, crossing = delivery(f"hold {stage.gate()}", "held"), delivery("ack", "crossing")
    await stage.begin(stream, held)
    stage.client.terminate()
    await stage.until(lambda: stream.drained or stream.half_closed or stream.over, "Drain comes")
    if not stream.drained:
        raise Broken("ended without Drain")
    await stream.deliver(crossing)
    stage.gate().touch()
    await stage.settled(stream, held, pb.OUTCOME_ACK)
    await stage.until(lambda: stream.half_closed, "it ends its side")
    if crossing.token in stream.received:
        raise Broken("a handler started after Drain")
    await asyncio.sleep(LINGER)
    if stream.over or stage.client.exit_code is not None:
        raise Broken("broke off, and did not wait for the relay's end of the stream")
    stream.end()
    if code := await stage.ended():
        raise Broken(f"the exit code is {code}: {stage.client.last_words()}")


@scene(
    "drain-said-by-the-relay",
    "After the relay's Drain: the outcomes of handlers that run, the end of its side, then another stream.",
)
async def relay_drains(stage: Stage) -> None:
    stream = await stage.stream()
    held = delivery(f"hold {stage.gate()}", "held")
    await stage.begin(stream, held)
    await stream.drain()
    stage.gate().touch()
    await stage.settled(stream, held, pb.OUTCOME_ACK)
    await stage.until(lambda: stream.half_closed, "it ends its side")
    stream.end()
    again = await stage.opened()
    one = delivery("ack")
    await again.deliver(one)
    await stage.settled(again, one, pb.OUTCOME_ACK)


@scene("deliveries", "A timer that comes again is handled again, and settled by its new token.")
async def redelivery(stage: Stage) -> None:
    stream = await stage.stream()
    first = delivery("nack")
    await stage.begin(stream, first)
    await stage.settled(stream, first, pb.OUTCOME_NACK)
    again = delivery("ack", attempt=2)
    await stage.begin(stream, again)
    await stage.settled(stream, again, pb.OUTCOME_ACK)


@scene(
    "what-happens-when-it-breaks",
    "A timer that comes again while its handler runs, past delivery_timeout: each delivery has its outcome.",
)
async def late_outcome(stage: Stage) -> None:
    stream = await stage.stream()
    late, again = delivery(f"hold {stage.gate()}"), delivery("ack", attempt=2)
    await stage.begin(stream, late)
    await stream.problem(late.token, pb.PROBLEM_REASON_STALE)
    await stage.begin(stream, again)
    await stage.settled(stream, again, pb.OUTCOME_ACK)
    stage.gate().touch()
    await stage.outcome(stream, late)


@scene("problems", "A lease that is lost ends no stream, and the outcome is sent all the same.")
async def lease_lost(stage: Stage) -> None:
    stream = await stage.stream()
    lost = delivery(f"hold {stage.gate()}", "lost")
    await stage.begin(stream, lost)
    await stream.problem(lost.token, pb.PROBLEM_REASON_GONE)
    stage.gate().touch()
    await stage.outcome(stream, lost)
    await stream.problem(lost.token, pb.PROBLEM_REASON_GONE)
    one = delivery("ack", "next")
    await stream.deliver(one)
    await stage.settled(stream, one, pb.OUTCOME_ACK)


@scene(
    "what-happens-when-it-breaks",
    "An Open that INVALID_ARGUMENT refuses is not sent again: the client ends.",
)
async def refused(stage: Stage) -> None:
    stage.relay.refusals = [(grpc.StatusCode.INVALID_ARGUMENT, "topics: is pushed to its application")]
    await stage.handle()
    stage.client.may_end = True
    arrivals = stage.relay.arrivals
    await stage.until(
        lambda: arrivals or stage.client.exit_code is not None,
        "the client opens a stream",
        patience=START_PATIENCE,
    )
    if not arrivals:
        raise Broken(f"the client ended before it opened a stream: {stage.client.last_words()}")
    await stage.until(lambda: len(arrivals) > 1 or stage.client.exit_code is not None, "the client ends")
    if len(arrivals) > 1:
        raise Broken("it dialled again")
    if stage.client.exit_code == 0:
        raise Broken("the exit code is 0, as if all were well")


SCENES = (stop, relay_drains, redelivery, late_outcome, lease_lost, refused)
