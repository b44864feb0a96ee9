"""Which partitions of a topic this relay polls first, and which it leaves to others."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import anyio
from anyio.abc import TaskGroup

from relay.core.instants import micros
from relay.core.partitions import place_of
from relay.core.ports import Heartbeats, WakeHints
from relay.engine.claiming.poller import Poller
from relay.engine.claiming.rendezvous import preferred
from relay.engine.clock import Clock

BEAT = 1.0
"""Seconds between two heartbeats."""

LASTS = 2.5
"""Seconds for which a heartbeat counts: a relay that has died is missed after that, and `BEAT`."""

KEPT = 3
"""The number of heartbeats whose shares count, the last one among them: so a relay keeps a partition that
another one is to have for two heartbeats more."""

log = logging.getLogger(__name__)


class Preference:  # see 0086
    """Has a topic's pollers poll first, or stand back, by the relays that poll the topic.

    It is not a right: leases decide who has a timer, and relays that see different things lose time at most.

    This has a race: a relay comes, and a partition goes from one of the others to another. The one hears of
    it, the other not yet, and nobody polls the partition first. So a relay takes a partition at once, and
    keeps it for some heartbeats after it was to give it up: by then all have heard of it.
    """

    def __init__(
        self,
        topic: str,
        pollers: Mapping[str, Poller],
        heartbeats: Heartbeats,
        hints: WakeHints,
        clock: Clock,
        tasks: TaskGroup,
    ) -> None:
        """`pollers` has one for each partition of the topic."""
        self._topic = topic
        self._pollers = pollers
        self._places = {place_of(partition): partition for partition in pollers}
        self._heartbeats = heartbeats
        self._hints = hints
        self._clock = clock
        self._tasks = tasks
        self._relay = secrets.token_hex(8)
        self._has_left = False
        self._others: frozenset[str] | None = None
        """The other relays that poll the topic, by the last heartbeat."""
        self._shares: deque[frozenset[str]] = deque(maxlen=KEPT)
        """The partitions that the relay was to poll first, by each of the last heartbeats."""

    async def run(self) -> None:
        """Beat until cancelled, or until the relay leaves."""
        while not self._has_left:
            others = await self._beat(LASTS)
            if self._has_left:
                await self._beat(0)  # this heartbeat may have come behind the relay's leaving
                return
            self._learn(others)
            await self._clock.sleep(BEAT)

    async def leave(self) -> None:
        """Say that this relay takes no more timers of the topic, and call others to its partitions."""
        if self._has_left:
            return
        self._has_left = True
        for poller in self._pollers.values():
            poller.stand_back()  # a relay without room for good calls nobody
        others = await self._beat(0)
        for partition in self._first() if others else ():
            await self._hints.call_for_help(partition)

    async def _beat(self, lasts: float) -> frozenset[str]:
        """The other relays that poll the topic; none if Redis does not say, so that no timer waits for a
        relay that is not there."""
        found: Sequence[str] = ()
        with anyio.move_on_after(LASTS):
            try:
                found = await self._heartbeats.beat(self._topic, self._relay, lasts=micros(lasts))
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
                log.debug("no heartbeat", extra={"topic": self._topic, "reason": str(failure)})
        return frozenset(found) - {self._relay}

    def _learn(self, others: frozenset[str]) -> None:
        if others == self._others:
            share = self._shares[-1]
        else:
            self._others = others
            places = preferred(self._relay, others | {self._relay}, self._places)
            share = frozenset(self._places[place] for place in places)
        self._shares.append(share)
        first = self._first()
        for partition, poller in self._pollers.items():
            if partition not in first:
                poller.stand_back()
            elif others:
                poller.prefer(partial(self._call_for_help, partition))
            else:
                poller.prefer()

    def _first(self) -> frozenset[str]:
        return frozenset().union(*self._shares)

    def _call_for_help(self, partition: str) -> None:
        self._tasks.start_soon(self._hints.call_for_help, partition)
