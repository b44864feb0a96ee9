"""Repairs what foreign writers and crashes leave behind, and removes dead letters beyond what is kept."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import random

from relay.core.errors import StoreError, StoreRefused, StoreUnavailable
from relay.core.instants import micros
from relay.core.pacing import Jitter
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, Places, TopicStore
from relay.engine.clock import Clock
from relay.telemetry.metrics.catalogue import REPAIRED, TRIMMED
from relay.telemetry.metrics.instruments import Instruments

INTERVAL = 300.0
"""Seconds between two rounds, plus or minus a tenth; one of all relays makes each round."""

GRACE = 60.0
"""Seconds for which an orphan must stay one, which is longer than a publisher needs between its two
writes."""

PART = 100
"""The entries that one script call reads; their payloads pass through the script."""

MAX_PARTS = 100
"""The most script calls for each topic in a round; the next round goes on from there."""

LOCK = "janitor"

CUT_SHORT = "a round of the janitor was cut short"

log = logging.getLogger(__name__)


class Janitor:
    """Makes rounds: look at a part of each topic, wait for the grace period, look again and repair."""

    def __init__(
        self,
        topics: TopicStore,
        places: Places,
        policy: Callable[[str], TopicPolicy],
        clock: Clock,
        instruments: Instruments,
        jitter: Jitter = random,
    ) -> None:
        self._topics = topics
        self._places = places
        self._policy = policy
        self._clock = clock
        self._instruments = instruments
        self._jitter = jitter

    async def run(self) -> None:
        """Clean up until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL * (0.9 + 0.2 * self._jitter()))
            await self.step()

    async def step(self) -> None:
        """Make one round, if no other relay has made one."""
        try:
            # The lock is not given back, so that a relay that comes within the interval does nothing.
            if not await self._topics.lock(LOCK, ttl=micros(INTERVAL * 0.8)):
                return
            found: dict[str, list[str]] = {}

            async def look_at(topic: str) -> None:
                await self._trim(topic)
                if ids := await self._search(topic):
                    found[topic] = sorted(ids)

            await self._each(await self._topics.topics(), look_at)
            if found:
                await self._clock.sleep(GRACE)
                await self._each(found, lambda topic: self._repair(topic, found[topic]))
        except StoreError as failure:
            log.info(CUT_SHORT, extra={"reason": str(failure)})
        except Exception:  # whatever it is, it must not end the loop
            log.exception("a round of the janitor failed")

    async def _each(self, topics: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
        """Do the work for one topic after the other. A refusal for one of them, such as for a key of the
        wrong type, does not keep the others from their turn. A place that does not answer costs one call, and
        a ping: the call may have been for a partition that is elsewhere."""
        away: set[str] = set()
        for topic in topics:
            place = self._places.of(topic)
            if place in away:
                continue
            try:
                await work(topic)
            except StoreUnavailable as failure:
                if not await self._answers(place):
                    away.add(place)
                log.info(CUT_SHORT, extra={"reason": str(failure)})
            except StoreError as failure:
                log.warning("the janitor left a topic alone", extra={"topic": topic, "reason": str(failure)})

    async def _answers(self, place: str) -> bool:
        try:
            with suppress(StoreRefused):  # for a missing permission, for instance, which is a sign of life
                await self._places.ping(place)
        except StoreError:
            return False
        return True

    async def _trim(self, topic: str) -> None:
        policy = self._policy(topic).dead_letters
        if not (policy.max_count or policy.max_age):
            return
        age = micros(policy.max_age)
        removed = await self._topics.trim(topic, max_count=policy.max_count, max_age=age)
        if removed:
            self._instruments.count(TRIMMED, topic, n=removed)
            log.warning(
                "dead letters removed, as dead_letters.max_count or dead_letters.max_age asks",
                extra={"topic": topic, "count": removed},
            )

    async def _search(self, topic: str) -> set[str]:
        found: set[str] = set()
        for _ in range(MAX_PARTS):
            orphans, done = await self._topics.orphans(topic, limit=PART)
            found.update(orphans)
            if done:
                break
        return found

    async def _repair(self, topic: str, orphans: list[str]) -> None:
        for start in range(0, len(orphans), MAX_PER_CALL):
            payloads, leases = await self._topics.repair(topic, orphans[start : start + MAX_PER_CALL])
            self._instruments.count(REPAIRED, topic, "payload", n=payloads)
            self._instruments.count(REPAIRED, topic, "lease", n=leases)
            if payloads or leases:
                log.warning(
                    "payloads and lease records without a timer removed",
                    extra={"topic": topic, "payloads": payloads, "leases": leases},
                )
