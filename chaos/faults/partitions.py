"""A topic that gets more partitions, and fewer again."""

from __future__ import annotations

from random import Random

import grpc

from chaos.world import TOPIC, World
from relay.v1 import topic_service_pb2
from tests.worlds.relay.producer import Producer
from tests.worlds.waiting import eventually

NUMBERS = 1, 2, 4
RATE = 200
"""Timers a second that are moved, so that callers and other faults meet them on their way."""


class PartitionsChanged:
    """A person asks for another number of partitions, and a relay moves the timers. With `killed`, that relay
    is killed on the way, and the other one goes on with what it has left."""

    seconds = 0.0, 1.0

    def __init__(self, *, killed: bool = False) -> None:
        self.name = "partitions changed, their mover killed" if killed else "partitions changed"
        self._killed = killed

    def strike(self, world: World, chance: Random) -> None:
        now = world.partitions
        world.partitions = chance.choice([each for each in NUMBERS if each != now])
        self._mover = chance.choice(world.relays)
        _ask(self._mover.target, world.partitions)
        if self._killed:
            self._mover.kill()
            world.relay_died(self._mover)

    def heal(self, world: World) -> None:
        if self._killed:
            self._mover.start()
        eventually(lambda: _is_over(world), "the topic is at rest", 180.0)


def _is_over(world: World) -> bool:
    """Whether the topic has as many partitions as were asked for. Each step of a move has to be asked for."""
    try:
        topic = _ask(world.relays[0].target, world.partitions)
    except grpc.RpcError:
        return False
    return max(topic.partitions, 1) == world.partitions and not topic.moving_to  # one is not told


def _ask(target: str, partitions: int) -> topic_service_pb2.Topic:
    producer = Producer(target)
    try:
        return producer.reshard(TOPIC, partitions, rate=RATE, timeout=20.0)
    finally:
        producer.close()
