"""What load is expected of a topic at an instant, by what falls due and by the rate that it has shown."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import anyio

from relay.core.errors import ServiceError
from relay.core.instants import SECOND
from relay.core.loop.call_ends import call_deadline
from relay.core.partitions import Layout
from relay.core.ports import Forecasts
from relay.core.recurring.expected_load import (
    LOOKED_AT,
    MINUTE,
    ExpectedLoad,
    arrivals,
    standing,
    waiting,
    window_of,
)
from relay.core.recurring.forecast import Forecast
from relay.engine.clock import Clock
from relay.engine.recurring.recurrences import ByLayout

MOST_READS = 10
"""The most reads of a topic within the time for which one counts. A read is a script call of a millisecond
for each partition."""

KEPT = 1.0
"""Seconds for which a read counts in a topic of `MOST_READS` partitions or fewer; in others longer, so that
no more script calls are made."""

MOST_TOPICS = 256
"""The most topics whose reads are kept."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A look at a window, and when it was made by the engine's clock."""

    found: Forecast
    at: float


@dataclass(slots=True)
class _Reads:
    """What was read of a topic lately: from now on, and from the beginnings of windows on."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    by_start: dict[int | None, _Read] = field(default_factory=dict)
    lasts: float = KEPT


class Expecting:  # see 0127
    """Nothing is read until somebody asks."""

    def __init__(
        self,
        forecasts: Forecasts | None,
        partitioning: ByLayout,
        rate: Callable[[str, float], float | None],
        clock: Clock,
    ) -> None:
        self._forecasts = forecasts
        self._partitioning = partitioning
        self._rate = rate
        self._clock = clock
        self._topics: OrderedDict[str, _Reads] = OrderedDict()

    async def load(self, topic: str, instant: int) -> ExpectedLoad | None:
        """Return what is expected of a topic at an instant (microseconds); None if that can't be told now:
        what falls due can't be read, was read too often already, or takes half of the time for which the
        caller still waits: it waits to hear that its timer is stored."""
        if self._forecasts is None:
            return None
        reads = self._topics.setdefault(topic, _Reads())
        self._topics.move_to_end(topic)
        if len(self._topics) > MOST_TOPICS:
            self._topics.popitem(last=False)
        with anyio.move_on_after((call_deadline() - monotonic()) / 2):
            return await self._load(topic, instant, reads)
        return None

    async def _load(self, topic: str, instant: int, reads: _Reads) -> ExpectedLoad | None:
        try:
            async with reads.lock:  # who comes meanwhile takes what is being read
                now = await self._read(topic, reads, None)
                if now is None:
                    return None
                start = window_of(instant)
                if start <= now.found.since:
                    return self._told(topic, instant, now, now.found.since, standing(now.found))
                there = await self._read(topic, reads, start)
                if there is None:
                    return None
                return self._told(topic, instant, there, now.found.since, None)
        except ServiceError:  # the timer is stored all the same
            return None

    async def _read(self, topic: str, reads: _Reads, start: int | None) -> _Read | None:
        now = self._clock.now()
        for each in [each for each, read in reads.by_start.items() if now - read.at >= reads.lasts]:
            del reads.by_start[each]
        if (known := reads.by_start.get(start)) is not None:
            return known
        if len(reads.by_start) >= MOST_READS:
            return None

        async def look(layout: Layout) -> Forecast:
            assert self._forecasts is not None, "load has asked"
            reads.lasts = KEPT * max(len(layout.partitions) / MOST_READS, 1.0)
            return await self._forecasts.read(layout, LOOKED_AT, start)

        read = _Read(await self._partitioning.begin(topic, look), now)
        reads.by_start[start] = read
        return read

    def _told(self, topic: str, instant: int, read: _Read, now: int, stands: int | None) -> ExpectedLoad:
        """`now` is by the clock of Redis, when the topic was read. `stands` is None for a window yet to come:
        what falls due before it may be delivered by then, as far as the rate allows."""
        found, counts = read.found, arrivals(read.found)
        minute = instant // MINUTE * MINUTE - found.since
        in_minute = sum(counts[max(minute // SECOND, 0) : max((minute + MINUTE) // SECOND, 0)])
        rate = self._rate(topic, self._clock.now())
        if not rate:
            return ExpectedLoad(None, None, in_minute, now)
        if stands is None:
            stands = max(int(standing(found) - rate * (found.since - now) / SECOND), 0)
        place, after = divmod(max(instant - found.since, 0), SECOND)
        late = waiting(stands, counts, min(place, len(counts) - 1), after, rate) / rate
        return ExpectedLoad(round(late * SECOND), rate, in_minute, now)
