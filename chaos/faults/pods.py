"""A relay and its application, which die together when their machine does."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from chaos import ledger
from chaos.judging.deliveries import deliveries
from chaos.world import World

AT_WORK = 0.05, 1.5
"""Seconds for which a handler has been running when it dies: before its receipt is written, or after that."""
IN_VAIN = 20.0
"""Seconds after which they die without one."""
LOOK = 0.05


class PodKilled:
    """SIGKILL of a relay and of its application, while a handler is at work. Both come back."""

    name = "relay killed with its application"
    seconds = 0.0, 0.5

    def strike(self, world: World, chance: Random) -> None:
        self._relay = chance.choice(world.relays)
        self._application = world.application_of(self._relay)
        wait_at_work(world.directory / f"of-{self._relay.name}.jsonl", chance.choice(AT_WORK))
        self._relay.kill()
        self._application.kill()
        world.relay_died(self._relay)

    def heal(self, world: World) -> None:
        self._relay.start()
        self._application.spawn()


def wait_at_work(path: Path, seconds: float) -> None:
    """Until one of the handlers that write here has been running for so long, for a while at most."""
    ends = time.monotonic() + IN_VAIN
    while time.monotonic() < ends and not is_at_work(path, seconds, time.monotonic()):
        time.sleep(LOOK)


def is_at_work(path: Path, seconds: float, now: float) -> bool:
    """Whether one of these handlers has been running for so long. Those that died before their application
    was ready once more are not."""
    entries = list(ledger.lines(path)) if path.exists() else []
    ready = max((n for n, entry in enumerate(entries) if entry["kind"] == "ready"), default=0)
    return any(each.outcome == "" and each.begins <= now - seconds for each in deliveries(entries[ready:]))
