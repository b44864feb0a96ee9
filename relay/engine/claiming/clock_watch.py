"""Notices that the clock of Redis has stepped: it is compared with the machine's monotonic one."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection
from copy import copy

from relay.core.errors import StoreError
from relay.core.instants import CLOCK_STEP, SECOND
from relay.core.ports import Places, ServerClocks
from relay.engine.clock import Clock
from relay.engine.lanes import Lanes

LOOK = 1.0
"""Seconds between two looks. No lease is to outlive its relay by more than `lease_ttl` and a second."""

SLEW = 1e-3
"""By how much the two clocks run apart: the kernel and `ntpd` slew each by 500 ppm at most. `chronyd` may
slew by more: that looks like small steps, which are looked into and change nothing."""

SHOWN = 900.0
"""Seconds for which the largest step is told: longer than lies between two collections of metrics."""

log = logging.getLogger(__name__)

Stepped = Callable[[Collection[str], int], None]
"""Told the partitions whose clock has stepped, and by how many microseconds at least; less than 0 if back."""


class Offset:
    """By how many microseconds a server's clock is ahead of the monotonic one: between `_least` and `_most`.

    The server has read its clock at some time between a question and its answer.
    """

    def __init__(self) -> None:
        self._least, self._most = -math.inf, math.inf
        self._at = -math.inf

    def heard(self, told: int, asked: float, received: float) -> int:
        """Note the server's time in an answer (microseconds), and when it was asked and received (monotonic
        seconds). Return by how many microseconds its clock has stepped at least since the answer before; 0 if
        it has not."""
        least, most = told - received * SECOND, told - asked * SECOND
        slewed = (received - self._at) * SECOND * SLEW
        before, behind = self._least - slewed, self._most + slewed
        step = min(most - before, 0.0) + max(least - behind, 0.0)
        if abs(step) >= CLOCK_STEP:
            before, behind = -math.inf, math.inf
        else:
            step = 0.0
        self._least, self._most = max(least, min(before, most)), min(most, max(behind, least))
        self._at = received
        return int(step)


class PlaceClock:
    """Looks at the clock of one place; a lane, see `Lanes`.

    This has a race: a node of a Cluster dies, and its replica, which is another place, has another clock. So
    a partition that comes takes along what was known of the clock that it had.
    """

    def __init__(
        self,
        place: str,
        clocks: ServerClocks,
        clock: Clock,
        here: Callable[[str], Collection[str]],
        stepped: Stepped,
    ) -> None:
        """`here` tells the partitions of a place."""
        self.place = place
        self._clocks = clocks
        self._clock = clock
        self._here = here
        self._stepped = stepped
        self._offset = Offset()
        self._came: dict[str, Offset] = {}
        """Partitions that came since the last look, each with the clock that it had."""
        self._largest = (0, -math.inf)
        """The largest step of late, and when it was seen: who slews the clock afterwards does not hide it."""

    def leave(self, topic: str, lane: PlaceClock) -> bool:
        """See `Lane.leave`."""
        lane._came[topic] = self._came.pop(topic, copy(self._offset))
        return True

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.step()
            await self._clock.sleep(LOOK)

    async def step(self) -> None:
        """Look once. A place that does not answer is looked at again; others notice that it is away."""
        asked = self._clock.now()
        try:
            told = await self._clocks.time(self.place)
        except StoreError:
            return
        received = self._clock.now()
        came, self._came = self._came, {}
        steps = defaultdict[int, list[str]](list)
        if by := self._offset.heard(told, asked, received):
            self._clocks.stepped(self.place)
            steps[by] += (each for each in self._here(self.place) if each not in came)
        for partition, before in came.items():
            if by := before.heard(told, asked, received):
                steps[by].append(partition)
        for by, partitions in steps.items():
            if abs(by) >= abs(self.seconds()) * SECOND:
                self._largest = by, received
            log.error(
                "the clock of Redis has stepped; see the runbook, Redis' clock",
                extra={"seconds": by / SECOND, **({"node": self.place} if self.place else {})},
            )
            self._stepped(partitions, by)

    def seconds(self) -> float:
        """The largest step within the last quarter of an hour; less than 0 if back."""
        by, seen = self._largest
        return by / SECOND if self._clock.now() - seen < SHOWN else 0.0


class ClockWatch:  # see 0088
    """Looks at the clocks of all places whose topics this relay polls. `stepped` is called with each step.

    A replica that takes over and has another clock is a step, too; so is another place with another clock.
    """

    def __init__(self, places: Places, clocks: ServerClocks, clock: Clock, stepped: Stepped) -> None:
        self._lanes = Lanes(
            places, lambda place: PlaceClock(place, clocks, clock, self._at, stepped), where=places.of
        )
        self.run = self._lanes.run

    def watch(self, partition: str) -> None:
        """Look at the clock of the partition's place from now on."""
        self._lanes[partition]

    def _at(self, place: str) -> list[str]:
        return [partition for partition, lane in self._lanes.items() if lane.place == place]

    def seconds(self) -> dict[str, float]:
        """The largest step of each place, in seconds; see `PlaceClock.seconds`."""
        return {lane.place: lane.seconds() for lane in self._lanes.all}
