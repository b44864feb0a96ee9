"""Timers that both sides move and cancel while relays and faststream-redis-timers deliver them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.e2e.calls import Call, calls
from tests.e2e.conftest import Stage
from tests.e2e.mixed import TOPIC, Mixed
from tests.e2e.peer import Publisher, publisher
from tests.e2e.processes import eventually
from tests.e2e.producer import Producer

SEED = 3
TIMERS = 300
INTENTS = 5
"""How often each timer is given a new intent."""
WORK = 0.15
"""Seconds that each handler takes."""
SLACK = 1.0
"""Seconds that a busy machine may need from a claim to its handler, and from there to the commit."""


@dataclass
class Intent:
    """What somebody wanted of a timer: to be delivered with this version, or (None) not at all."""

    version: int | None
    sent: float
    answered: float = 0.0


@dataclass
class Mover:
    """Schedules and cancels by way of a relay and of the peer in turns, and keeps book of it."""

    relay: Producer
    peer: Publisher
    chance: random.Random
    intents: dict[str, list[Intent]] = field(default_factory=dict)

    def move(self, timer_id: str, *, cancel: bool) -> None:
        """Give a timer its next intent."""
        intents = self.intents.setdefault(timer_id, [])
        version = len(intents) + 1
        headers, delay = {"version": str(version)}, self.chance.choice((0.0, 0.0, 0.2))
        intents.append(Intent(None if cancel else version, time.time()))
        side = self.chance.choice((self.relay, self.peer))
        if cancel:
            side.cancel(TOPIC, timer_id)
        elif side is self.relay:
            self.relay.schedule(TOPIC, timer_id, {"sleep": WORK}, delay=delay, headers=headers)
        else:
            self.peer.publish(TOPIC, timer_id, {"sleep": WORK}, delay=delay, headers=headers)
        intents[-1].answered = time.time()
