"""Streams and connections that break. A scene raises `Broken` where its rule is broken."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import grpc

from relay.conformance.observed import Broken
from relay.conformance.scene import scene
from relay.conformance.stage import START_PATIENCE, Stage
from relay.conformance.stream import delivery
from relay.v1 import delivery_service_pb2 as pb

SECTION = "what-happens-when-it-breaks"
OUTAGE = 0.5
"""Seconds for which nobody listens."""
REFUSALS = 6
SHORTEST = 3.0
"""Seconds that these pauses have at least: 0.1 s, doubled each time, and jitter takes a half at most."""
SHORTEST_OTHERS = 1.5
"""The same without the longest of them: a machine that stands still for a while makes one of them long."""


@scene(
    SECTION,
    "A stream that broke is followed by another, with an Open of its own, and no token of the old one.",
)
async def broken_stream(stage: Stage) -> None:
    stream = await stage.stream()
    await stage.begin(stream, delivery(f"hold {stage.gate()}"))
    stream.end(grpc.StatusCode.UNAVAILABLE, "the relay stops")
    again = await stage.opened()
    other = delivery(f"hold {stage.gate()}", attempt=2)
    await stage.begin(again, other)
    stage.gate().touch()
    await stage.settled(again, other, pb.OUTCOME_ACK)
    last = delivery("ack", "last")
    await again.deliver(last)
    await stage.settled(again, last, pb.OUTCOME_ACK)


@scene(SECTION, "A client whose relay has gone dials until it is back.")
async def lost_connection(stage: Stage) -> None:
    stream = await stage.stream()
    await stage.begin(stream, delivery(f"hold {stage.gate()}"))
    await stage.relay.stop()
    await asyncio.sleep(OUTAGE)
    await stage.relay.start()
    again = await stage.opened()
    one = delivery("ack", attempt=2)
    await again.deliver(one)
    await stage.settled(again, one, pb.OUTCOME_ACK)


@scene(SECTION, "Between two tries to open a stream there is a pause, and it grows.")
async def back_off(stage: Stage) -> None:
    stage.relay.refusals = [(grpc.StatusCode.UNAVAILABLE, "the relay starts")] * REFUSALS
    await stage.handle()
    await stage.until(lambda: stage.relay.streams, "the client opens a stream", patience=START_PATIENCE)
    arrivals = stage.relay.arrivals
    span = arrivals[REFUSALS] - arrivals[0]
    others = span - max(later - earlier for earlier, later in pairwise(arrivals[: REFUSALS + 1]))
    if span < SHORTEST:
        raise Broken(f"{REFUSALS + 1} tries came within {span:.2f} s")
    if others < SHORTEST_OTHERS:
        raise Broken(
            f"{REFUSALS + 1} tries came within {others:.2f} s, but for one pause of {span - others:.2f} s"
        )


SCENES = (broken_stream, lost_connection, back_off)
