"""How topics and this relay stand, read once a second for as long as somebody looks: one reader for all
pages."""

from __future__ import annotations

import json
import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

import anyio

from relay.core.endpoints.announcement import Announcement
from relay.core.errors import ServiceError
from relay.core.timers import TopicStats
from relay.engine.engine import Engine
from relay.telemetry.metrics.catalogue import LATENESS
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.instruments import Instruments

EVERY = 1.0
"""Seconds between two looks."""

KEPT = 90
"""The looks that are remembered, for lines over time; `console.js` goes on with as many."""

WINDOW = 60
"""The number of looks over which lateness is measured."""

VITALS_EVERY = 5.0
"""Seconds between two looks at the nodes of Redis, and at the relays that live."""

NAMES_FRESH = 10.0
"""Seconds after which a topic of another relay shows up, while somebody looks."""

PATIENCE = 1.0
"""Seconds that such a look may take."""

Seen = TypeVar("Seen")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeVitals:
    """How a node of Redis is: what it is, the bytes that it uses, and may use (0: no limit), its slots (0: no
    Cluster), its clients, the commands that it does in a second, its replicas, and what is wrong with it,
    empty if nothing is."""

    place: str
    name: str
    used: int
    most: int
    slots: int = 0
    clients: int = 0
    commands: int = 0
    replicas: int = 0
    trouble: str = ""


ReadVitals = Callable[[], Awaitable[Sequence[NodeVitals]]]
ReadRelays = Callable[[], Awaitable[Sequence[Announcement]]]


@dataclass(frozen=True, slots=True)
class TopicLook:
    """A topic at one look. Rates are of this relay, in timers a second, None where it counts the topic
    together with others; latenesses in seconds, None there, too, and where it has delivered nothing within
    the last minute. `waiting` are the timers at the latest looks, the
    oldest first."""

    stats: TopicStats
    rate_in: float | None = 0.0
    rate_out: float | None = 0.0
    late_p50: float | None = None
    late_p99: float | None = None
    waiting: Sequence[int] = ()
    consumers: int = 0
    in_flight: int = 0

    @property
    def overdue(self) -> float:
        """The seconds for which the timer has been due that is due longest."""
        first = self.stats.first
        return 0.0 if first is None else max(self.stats.now - first, 0) / 1e6

    def numbers(self) -> dict[str, object]:
        """What changes on a page that is open."""
        stats = self.stats
        return {
            "timers": stats.timers,
            "due": stats.due,
            "dead": stats.dead,
            "first": None if stats.first is None else stats.first // 1000,
            "paused": stats.paused_until is not None,
            "overdue": round(self.overdue, 3),
            "minute": stats.coming[0],
            "hour": stats.coming[1],
            "day": stats.coming[2],
            "in": None if self.rate_in is None else round(self.rate_in, 1),
            "out": None if self.rate_out is None else round(self.rate_out, 1),
            "p50": self.late_p50,
            "p99": self.late_p99,
        }


@dataclass(slots=True)
class Passage:
    """How many timers of a topic had come and gone through this relay when it was last looked at."""

    _before: tuple[float, int, int] | None = None

    def rates(self, passed: tuple[int, int] | None, now: float) -> tuple[float, float] | None:
        """Return how many came and went a second since the last call, at whose `now` (seconds) they were
        counted. None for the first call, and where the relay counts the topic together with others."""
        before, self._before = self._before, None if passed is None else (now, *passed)
        if passed is None or before is None:
            return None
        since, come, gone = before
        seconds = max(now - since, 1e-3)
        return (passed[0] - come) / seconds, (passed[1] - gone) / seconds


@dataclass(slots=True)
class _Trail:
    """What was seen of a topic, the oldest first."""

    waiting: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    passage: Passage = field(default_factory=Passage)
    late: deque[list[int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


@dataclass(frozen=True, slots=True)
class LiveLook:
    """All that one look saw. `at` is by the wall clock, in seconds, for people. `silent` are the places of
    Redis that did not answer in time, whose topics are missing; `is_cut`: there are more topics than are
    looked at."""

    at: float
    topics: Mapping[str, TopicLook]
    relay: RelayState
    trouble: Sequence[str]
    vitals: Sequence[NodeVitals]
    silent: Sequence[str] = ()
    is_cut: bool = False
    relays: Sequence[Announcement] = ()


class Live:
    """Looks once a second while somebody waits for it, and not at all otherwise."""

    def __init__(
        self,
        engine: Engine,
        counts: Instruments,
        read_vitals: ReadVitals | None = None,
        read_relays: ReadRelays | None = None,
    ) -> None:
        self._engine = engine
        self._counts = counts
        self._read_vitals = read_vitals
        self._read_relays = read_relays
        self._relays: Sequence[Announcement] = ()
        self._trails: dict[str, _Trail] = {}
        self._last: LiveLook | None = None
        self._looked_at = -math.inf
        self._vitals: Sequence[NodeVitals] = ()
        self._vitals_at = -math.inf
        self._lock = anyio.Lock()
        self._began = time.monotonic()
        self.looks = 0
        """How often Redis was read."""
        self.watched = 0
        """How many pages are open."""
        self._sent: dict[tuple[str, str], str] = {}
        self.ended = anyio.Event()
        """Set when the relay stops: streams end then."""

    async def look(self) -> LiveLook:
        """How everything stands: read now, unless somebody did within the last second."""
        async with self._lock:  # who comes meanwhile gets what is being read
            now = time.monotonic()
            if self._last is None or now - self._looked_at >= EVERY * 0.9:
                self._last = await self._read(now)
                self._looked_at = now
                self._sent = {}
            return self._last

    def uptime(self) -> float:
        """The seconds for which this relay has been there."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """End all streams."""
        self.ended.set()

    def text(self, principal: str, key: str, make: Callable[[], object]) -> str:
        """What one look says to those who see the same, as JSON: made once for all of them."""
        if (principal, key) not in self._sent:
            self._sent[principal, key] = json.dumps(make(), separators=(",", ":"))
        return self._sent[principal, key]

    async def _read(self, now: float) -> LiveLook:
        state, stats = await self._engine.standing(names_within=NAMES_FRESH)
        silent, is_cut = self._engine.silent_places, self._engine.has_more_topics
        self.looks += 1
        if not silent:
            for gone in self._trails.keys() - {each.topic for each in stats}:
                del self._trails[gone]
        topics = {each.topic: self._topic(each, state, now) for each in stats}
        await self._look_around(now)
        return LiveLook(
            time.time(), topics, state, self._engine.ready(), self._vitals, silent, is_cut, self._relays
        )

    def _topic(self, stats: TopicStats, state: RelayState, now: float) -> TopicLook:
        trail = self._trails.setdefault(stats.topic, _Trail())
        passed = self._counts.passed(stats.topic)
        unknown = (None, None) if passed is None else (0.0, 0.0)
        rate_in, rate_out = trail.passage.rates(passed, now) or unknown
        trail.waiting.append(stats.timers)
        p50, p99 = self._lateness(trail, stats.topic)
        return TopicLook(
            stats,
            rate_in,
            rate_out,
            p50,
            p99,
            tuple(trail.waiting),
            state.consumers.get(stats.topic, 0),
            state.in_flight.get(stats.topic, 0),
        )

    def _lateness(self, trail: _Trail, topic: str) -> tuple[float | None, float | None]:
        counts = self._counts.lateness_counts(topic)
        if not counts:
            return None, None
        trail.late.append(counts)
        oldest = trail.late[0] if len(trail.late) > 1 else [0] * len(counts)
        fresh = [now - then for now, then in zip(counts, oldest, strict=True)]
        return quantile(fresh, 0.5), quantile(fresh, 0.99)

    async def _look_around(self, now: float) -> None:
        """Look at the nodes of Redis and at other relays, now and then."""
        if now - self._vitals_at < VITALS_EVERY:
            return
        self._vitals_at = now
        self._vitals = () if self._read_vitals is None else await _looked(self._read_vitals, "nodes")
        self._relays = () if self._read_relays is None else await _looked(self._read_relays, "relays")


async def _looked(read: Callable[[], Awaitable[Sequence[Seen]]], what: str) -> Sequence[Seen]:
    """What is read; nothing if Redis does not tell in time."""
    try:
        with anyio.fail_after(PATIENCE):
            return await read()
    except (ServiceError, TimeoutError) as failure:
        log.debug("the console could not look around", extra={"at": what, "reason": str(failure)})
        return ()


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The upper end of the bucket of `LATENESS` in which this share of the values ends; None if there are
    none. What is beyond the last bucket counts as its end."""
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return None
    bounds = LATENESS.bounds
    return bounds[min(bisect_left(sums, share * sums[-1]), len(bounds) - 1)]
