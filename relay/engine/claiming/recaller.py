"""Lets leases end that the clock of Redis of before has given, when that has stepped back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from relay.core.dispatch import Dispatch
from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import micros
from relay.core.partitions import place_of
from relay.core.policy import Policies
from relay.core.ports import MAX_PER_CALL, ServerClocks
from relay.engine.clock import Clock
from relay.engine.redis_health import RedisHealth

SPARE = 60.0
"""Seconds by which a lease has to be too long, for a relay that has seen no step. Relays whose settings
differ give leases of other lengths, and those are not to be cut while a rollout lasts."""

AGAIN = 1.0
"""Seconds between two calls about leases that can't be cut."""

log = logging.getLogger(__name__)

R = TypeVar("R")


class Recaller:  # see 0088
    """Looks for leases of a partition that end later than one that is given now. Relays that live cut theirs
    by the next renewal; this cuts those of relays that have died.

    A lease whose due time lies ahead, too, can't be cut. It ends once its score has stood for as long as it
    lasts: whoever renews such a lease changes the score. All relays that poll the partition do this at once;
    what one has done the others find done.
    """

    def __init__(
        self, clocks: ServerClocks, policies: Policies, redis_health: RedisHealth, clock: Clock
    ) -> None:
        self._clocks = clocks
        self._policies = policies
        self._redis_health = redis_health
        self._clock = clock

    async def recall(self, partition: str, back: int = 0) -> None:
        """Look at all leases of a partition, and go on until none is left that a clock of before has given.
        `back`: by how many microseconds the clock has stepped back; 0 if no step was seen."""
        policy = self._policies(partition)
        try:
            if policy.dispatch is Dispatch.STREAM:
                if back:  # without a step nobody can tell an idle time that has not begun from a short one
                    group = policy.stream.group
                    await self._insist(partition, lambda: self._clocks.begin_idle_times(partition, group))
            elif policy.dispatch is Dispatch.LEASE:
                spare = 0.0 if back else SPARE
                await self._recall(partition, policy.lease_ttl, spare, back)
        except StoreError as failure:
            log.warning(
                "leases from before a step of Redis' clock were not looked for",
                extra={"topic": place_of(partition), "reason": str(failure)},
            )

    async def _recall(self, partition: str, ttl: float, spare: float, back: int) -> None:
        found = await self._insist(
            partition, lambda: self._clocks.leases_ahead(partition, lease=micros(ttl + spare))
        )
        left: dict[str, tuple[float, float]] = {}
        for start in range(0, len(found), MAX_PER_CALL):
            some = dict.fromkeys(found[start : start + MAX_PER_CALL])
            left |= self._standing(await self._asked(partition, some, ttl, back), ttl, back)
        if found:
            log.warning(
                "leases are cut: they end later than any that is given now, as Redis' clock has stepped back",
                extra={"topic": place_of(partition), "count": len(found)},
            )
        while left:
            await self._clock.sleep(AGAIN)
            left = await self._again(partition, left, ttl)

    async def _again(
        self, partition: str, left: Mapping[str, tuple[float, float]], ttl: float
    ) -> dict[str, tuple[float, float]]:
        """Ask again for leases that stood at a score until an instant at least; return those that still do,
        or that were renewed."""
        now, ids = self._clock.now(), list(left)
        still: dict[str, tuple[float, float]] = {}
        for start in range(0, len(ids), MAX_PER_CALL):
            asked = {each: left[each] for each in ids[start : start + MAX_PER_CALL]}
            over = {each: score if ends <= now else None for each, (score, ends) in asked.items()}
            told = self._standing(await self._asked(partition, over, ttl), ttl)
            still |= {each: asked[each] if asked[each][0] == new[0] else new for each, new in told.items()}
        return still

    async def _asked(
        self, partition: str, scores: Mapping[str, float | None], ttl: float, back: int = 0
    ) -> tuple[int, dict[str, float]]:
        limits, lease = self._policies(partition).limits, micros(ttl)
        return await self._insist(
            partition, lambda: self._clocks.recall(partition, scores, lease=lease, back=back, limits=limits)
        )

    def _standing(
        self, told: tuple[int, Mapping[str, float]], ttl: float, back: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Return the score of each lease that stands, and when it has stood for as long as it lasts; by the
        clock of before that is sooner. One that seems to have ended long ago by that has the score of a clock
        before it, and is renewed or not: who knows."""
        now, scores = told
        here = self._clock.now()

        def left(score: float) -> float:
            by_before = score - (now + back) / 1e6 if back else ttl
            return by_before if -ttl <= by_before <= ttl else ttl

        return {each: (score, here + left(score)) for each, score in scores.items()}

    async def _insist(self, partition: str, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call until it is answered. Raises what Redis refuses."""
        while True:
            try:
                return await self._redis_health.noted(partition, call())
            except StoreUnavailable:
                await self._clock.sleep(AGAIN)
                await self._redis_health.pause(partition)
