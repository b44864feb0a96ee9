"""Which partitions of a topic this relay polls first, and where it comes after others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import anyio

from relay.core.errors import StoreUnavailable
from relay.core.instants import micros
from relay.core.partitions import Layout
from relay.core.ports import Heartbeats, WakeHints
from relay.engine.claiming.poller import Poller
from relay.engine.claiming.rendezvous import ranks
from relay.engine.clock import Clock
from relay.engine.loop_starter import LoopStarter
from relay.engine.redis_health import RedisHealth

BEAT = 1.0
"""Seconds between two heartbeats."""

LASTS = 2.5
"""Seconds for which a heartbeat counts: a relay that has died is missed after that, and `BEAT`."""

ANSWERED = 0.5
"""Seconds within which Redis answers a heartbeat, or it has failed. With `BEAT` that is less than `LASTS`, so
that one lost reply changes nothing."""

KEPT = 3
"""The number of heartbeats whose ranks count, the last one among them: so a relay keeps a partition that
another one is to have for two heartbeats more."""


class Preference:  # see 0086
    """Ranks a topic's pollers by the relays that poll the topic.

    A rank is not a right: leases decide who has a timer, and relays that see different things lose time at
    most. Only relays that know the same layout count each other: their partitions are the same.

    This has a race: a relay comes, and a partition goes from one of the others to another. The one hears of
    it, the other not yet, and nobody polls the partition first. So a relay takes a better rank at once, and
    keeps it for some heartbeats after it was to give it up: by then all have heard of it.
    """

    def __init__(
        self,
        relay: str,
        layout: Layout,
        pollers: Mapping[str, Poller],
        heartbeats: Heartbeats,
        hints: WakeHints,
        redis_health: RedisHealth,
        clock: Clock,
        loops: LoopStarter,
        stays_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        """`relay` is this relay's name; `pollers` has one for each partition of the topic, in their order.
        While it `stays_behind`, others don't count it: it must not come first anywhere."""
        self._relay = relay
        self._topic = layout.topic
        self._layout = layout.text
        """What follows the names of those that know the same layout."""
        self._pollers = pollers
        self._heartbeats = heartbeats
        self._hints = hints
        self._redis_health = redis_health
        self._clock = clock
        self._loops = loops
        self._stays_behind = stays_behind
        self._has_left = False
        self._refused = False
        self._others: frozenset[str] | None = None
        """The other relays that poll the topic, by the last heartbeat."""
        self._heard_at = clock.now()
        """When Redis said so."""
        self._ranks: deque[Mapping[str, int]] = deque(maxlen=KEPT)
        """This relay's rank at each partition, by each of the last heartbeats."""

    async def run(self) -> None:
        """Beat until cancelled, or until the relay leaves."""
        while not self._has_left:
            others = await self._beat(0 if self._stays_behind() else LASTS)
            if self._has_left:
                await self._beat(0)  # this heartbeat may have come behind the relay's leaving
                return
            self._learn(others)
            await self._clock.sleep(BEAT)

    async def leave(self) -> None:
        """Say that this relay takes no more timers of the topic, and call the next ones to where it came
        first."""
        if self._has_left:
            return
        self._has_left = True
        for partition, poller in self._pollers.items():
            poller.take_rank(self._rank(partition))  # a relay without room for good calls nobody
        others = await self._beat(0)
        async with anyio.create_task_group() as tasks:
            for partition in self._pollers:
                if others and not self._rank(partition):
                    tasks.start_soon(self._call, partition, 1)

    async def _beat(self, lasts: float) -> frozenset[str]:
        """The other relays that poll the topic. If Redis does not say, those of the last time for as long as
        their heartbeats count, then none: no timer waits for a relay that is not there."""
        name = f"{self._relay} {self._layout}"
        with anyio.move_on_after(ANSWERED):
            try:
                found = await self._heartbeats.beat(self._topic, name, lasts=micros(lasts))
            except StoreUnavailable:
                pass
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
                self._redis_health.refused(
                    "Redis refuses heartbeats, so this relay does not share the partitions out with others",
                    failure,
                    said=self._refused,
                    topic=self._topic,
                )
                self._refused = True
            else:
                self._heard_at = self._clock.now()
                names = (each.partition(" ") for each in found)
                return frozenset(relay for relay, _, text in names if text == self._layout) - {self._relay}
        counts = self._clock.now() < self._heard_at + LASTS
        return self._others or frozenset() if counts else frozenset()

    def _learn(self, others: frozenset[str]) -> None:
        if others != self._others:
            self._others = others
            found = ranks(self._relay, others | {self._relay}, self._topic, len(self._pollers))
            self._ranks.append(dict(zip(self._pollers, found, strict=True)))
        else:
            self._ranks.append(self._ranks[-1])
        for partition, poller in self._pollers.items():
            rank = self._rank(partition)
            behind = range(rank + 1, len(others) + 1)
            poller.take_rank(rank, partial(self._call_for_help, partition, behind) if behind else None)

    def _rank(self, partition: str) -> int:
        return min((each[partition] for each in self._ranks), default=0)

    def _call_for_help(self, partition: str, behind: range, calls: int) -> None:
        """Call one of the ranks behind this relay's, after `calls` others that have not helped."""
        self._loops.start(self._call, partition, behind[calls % len(behind)])

    async def _call(self, partition: str, rank: int) -> None:
        try:
            await self._hints.call_for_help(partition, rank)
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the relay's loops)
            self._redis_health.refused("other relays can't be called for help", failure, topic=self._topic)
