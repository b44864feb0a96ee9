"""A rate that all bulk loads keep together, however many workers they have."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from relay.core.instants import SECOND
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.verbs import bulk

TURN = 0.1
"""The most seconds that one batch lasts: the load is spread, and no batch waits long for another."""


class Pace:  # see 0051
    """Turns at `rate` timers a second, by the clock of Redis. Loads that name a rate share the time: two at
    1,000/s write 500/s each."""

    def __init__(self, store: BulkStore, rate: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._rate = rate
        self._sleep = sleep
        self.batch = min(BATCH, max(1, math.floor(rate * TURN)))
        """The most timers to write in one turn."""

    def turn(self, count: int) -> None:
        """Wait until `count` timers may be written. Raises `StoreError`."""
        lasts = math.ceil(count / self._rate * SECOND)
        wait = int(self._store.call(bulk.pace(lasts)))
        if wait > 0:
            self._sleep(wait / SECOND)
