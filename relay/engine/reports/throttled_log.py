"""Limits log lines about frequent events: all are counted, and each line says how many there were."""

from __future__ import annotations

from relay.engine.clock import Clock


class ThrottledLog:
    """Lets one line for each key through every `interval` seconds, with the count since the last one."""

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._interval = interval
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def add(self, key: str, count: int = 1) -> int:
        """Add `count` events. Returns how many to report now, 0 if the key had a line within `interval`."""
        self._untold[key] = self._untold.get(key, 0) + count
        now = self._clock.now()
        if now - self._told.get(key, now - self._interval) < self._interval:
            return 0
        self._told[key] = now
        return self._untold.pop(key)
