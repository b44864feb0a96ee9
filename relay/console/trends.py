"""The last hour of topics, as this relay has seen it: a sample each 15 s, in memory."""

from __future__ import annotations

import logging
import math
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from relay.console.live import Passage, quantile
from relay.core.timers import TopicStats
from relay.engine.engine import Engine
from relay.engine.topic_watch import MOST
from relay.telemetry.metrics.catalogue import LATENESS
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.instruments import Instruments

EVERY = 15.0
"""Seconds between two samples."""

KEPT = 240
"""The samples that are kept of each topic: an hour."""

SERIES = ("timers", "due", "dead", "in", "out", "p50", "p99")
"""What a sample shows of a topic: numbers of timers, timers a second, seconds. Rates and latenesses are those
of this relay, since the sample before; a relay has none of a topic that it counts together with others."""

OBJECTIVE = 1.0
"""Seconds within which a first delivery is in time; see deploy/prometheus/relay-rules.yaml."""

_WIDTH = 1 + len(SERIES) + 2
"""The numbers of a sample: its time, `SERIES`, the first deliveries, and those of them that were late."""

_IN_TIME = bisect_left(LATENESS.bounds, OBJECTIVE) + 1
"""The buckets of `LATENESS` that are in time."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Trend:
    """A topic's samples, the oldest first, one behind the other in an array of at most 19 KiB."""

    numbers: array[float] = field(default_factory=lambda: array("d"))
    passage: Passage = field(default_factory=Passage)
    seen: float = 0.0
    late: list[int] = field(default_factory=list)

    def add(self, sample: Sequence[float]) -> None:
        """Keep a sample, and forget the oldest."""
        self.numbers.extend(sample)
        del self.numbers[: -KEPT * _WIDTH]

    def column(self, place: int) -> list[float | None]:
        """One number of each sample; None where a sample lacks it."""
        return [None if math.isnan(each) else each for each in self.numbers[place::_WIDTH]]

    def columns(self) -> list[list[float | None]]:
        """The times in seconds since 1970, then `SERIES`."""
        return [self.column(place) for place in range(1 + len(SERIES))]

    def latest(self) -> list[float | None]:
        """The newest sample, as a row of `columns`."""
        newest = self.numbers[-_WIDTH:][: 1 + len(SERIES)]
        return [None if math.isnan(each) else each for each in newest]

    def grown(self, seconds: float) -> float:
        """By how much dead letters have become more within `seconds` before the newest sample."""
        dead = self.numbers[1 + SERIES.index("dead") :: _WIDTH][-round(seconds / EVERY) - 1 :]
        return dead[-1] - dead[0] if dead else 0.0

    def misses(self, seconds: float) -> float:
        """The share of first deliveries that were late, within `seconds` before the newest sample."""
        rows = round(seconds / EVERY) * _WIDTH
        delivered = self.numbers[-rows:][_WIDTH - 2 :: _WIDTH]
        late = self.numbers[-rows:][_WIDTH - 1 :: _WIDTH]
        return sum(late) / (sum(delivered) or 1)


Told = Callable[[RelayState, Sequence[TopicStats], Mapping[str, Trend]], None]


class Trends:
    """Samples topics, whether or not somebody looks: one pipelined read each, of 500 topics at most."""

    def __init__(self, engine: Engine, counts: Instruments, told: Told = lambda *_: None) -> None:
        """`told` is called after each sample, with what was read and with all trends."""
        self._engine = engine
        self._counts = counts
        self._told = told
        self._of: dict[str, Trend] = {}

    def of(self, topic: str) -> Trend:
        """What was seen of a topic; nothing if it is not looked at."""
        return self._of.get(topic) or Trend()

    async def sample(self) -> None:
        """Take one, and tell it. Topics of a place of Redis that does not answer in time lack
        one."""
        state, stats = await self._engine.standing()
        now, at = time.monotonic(), round(time.time(), 1)
        for each in stats:
            self._add(each, now, at)
        self._forget(now)
        self._told(state, stats, self._of)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                await self.sample()
            except Exception:  # whatever it is, it must not end the loop
                log.exception("topics could not be sampled for the console")
            await anyio.sleep(EVERY)

    def _forget(self, now: float) -> None:
        """Forget topics that were not seen for an hour, and of too many those that were not seen for longest.
        Not sooner: while Redis is away none is seen, and people want to know how it came to that."""
        for topic, trend in list(self._of.items()):  # in the order in which they were seen last
            if len(self._of) <= MOST and now - trend.seen < KEPT * EVERY:
                break
            del self._of[topic]

    def _add(self, stats: TopicStats, now: float, at: float) -> None:
        trend = self._of[stats.topic] = self._of.pop(stats.topic, Trend())
        trend.seen = now
        rates = trend.passage.rates(self._counts.passed(stats.topic), now) or (math.nan, math.nan)
        counts = self._counts.lateness_counts(stats.topic)
        before = trend.late or [0] * len(counts)
        fresh = [after - then for after, then in zip(counts, before, strict=True)] if counts else []
        trend.late = counts
        p50, p99 = quantile(fresh, 0.5), quantile(fresh, 0.99)
        trend.add(
            (
                at,
                *(stats.timers, stats.due, stats.dead),
                *(round(each, 3) for each in rates),
                *(math.nan if each is None else each for each in (p50, p99)),
                sum(fresh),
                sum(fresh[_IN_TIME:]),
            )
        )
