"""Holds back log lines about what happens all the time: each is counted, and told now and then."""

from __future__ import annotations

from relay.engine.clock import Clock


class ThrottledLog:
    """Tells of each key once in `interval` seconds, with all that has come since it last did."""

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._interval = interval
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def add(self, key: str, count: int = 1) -> int:
        """What is to be told of the key now; 0 if the last time was too lately. The first is told at once."""
        self._untold[key] = self._untold.get(key, 0) + count
        now = self._clock.now()
        if now - self._told.get(key, now - self._interval) < self._interval:
            return 0
        self._told[key] = now
        return self._untold.pop(key)
