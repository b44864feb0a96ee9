"""Turns many concurrent calls into few store calls: items that wait together are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Generic

from relay.core.errors import ServiceError, TooMany
from relay.core.ports import Places
from relay.engine.clock import Clock
from relay.engine.coalescing.batch import CallerShare, Items, Result, Waiter
from relay.engine.coalescing.lane import AT_ONCE, CoalescerLane, Writing
from relay.engine.lanes import Lanes


class Coalescer(Generic[Items, Result]):  # see 0040
    """Gathers single calls per topic while a store call is under way, in the order in which they came. Topics
    of one place wait for each other, and for no others.

    `write(topic, items, deadlines)` returns one result or error per item; `deadlines` has the instant at
    which the caller of each gives it up, and is empty if none ever does. `names` the timers that items are
    about, `sizes` the bytes of each, and `join` puts several sequences of items into one. If a call fails,
    all of its callers get the error. But a call of many items that is refused for one of them is repeated in
    halves, so that bad input of one caller does not affect others.

    A call of many items doesn't hold up the next one. This has a race: a request names a timer twice, in two
    store calls; on two connections the later one may come first, and the earlier intent would stand. So a
    call waits for those under way that name one of its timers.

    The callers that share a call have given it different times, and it ends with the last of them. This has a
    race: the call is held up, one caller gives its item up, and asks for something else; then the call comes,
    and undoes that. So an item whose caller has gone is left out while it waits here, and goes with its
    caller's deadline, after which Redis refuses it.

    Where store calls take long although the store is quick, as those do that wait for a disk, `at_once` says
    how many may be under way. None waits for another then: one may begin every `PACE` seconds. `most` is the
    number of items that may wait for a store call; 0 means any number.
    """

    def __init__(
        self,
        write: Callable[[str, Items, Sequence[float]], Awaitable[Sequence[Result | ServiceError]]],
        sizes: Callable[[Items], Iterable[int]],
        names: Callable[[Items], Iterable[str]],
        join: Callable[[Sequence[Items]], Items],
        clock: Clock,
        places: Places,
        *,
        at_once: int = AT_ONCE,
        most: int = 0,
    ) -> None:
        writing = Writing(write, sizes, names, join, at_once)
        self._most = most
        self._lanes: Lanes[CoalescerLane[Items, Result]] = Lanes(
            places, lambda place: CoalescerLane(place, writing, self._lanes, clock)
        )
        self.run = self._lanes.run

    @property
    def waiting(self) -> int:
        """The number of items that wait for a store call."""
        return sum(lane.waiting for lane in self._lanes.all)

    def _refusal(self) -> TooMany | None:
        """Why nothing more is taken; None if it is."""
        if not self._most or self.waiting < self._most:
            return None
        return TooMany(f"{self._most} timers wait already until Redis takes them; try again later")

    async def submit(self, topic: str, items: Items) -> Result:
        """Write a single item. Raises the store's error, or `TooMany`."""
        if (refusal := self._refusal()) is not None:
            raise refusal
        caller: Waiter[Result] = Waiter(1)
        lane = self._lanes[topic]
        lane.add(topic, CallerShare(caller, 0, items))
        lane.wake()
        try:
            (result,) = await caller.told
        except asyncio.CancelledError:
            self._lanes[topic].gone()
            raise
        if isinstance(result, ServiceError):
            raise result
        return result

    async def submit_many(self, items: Mapping[str, Items]) -> dict[str, list[Result | ServiceError]]:
        """Write many items of any topics. Each gets a result or an error of its own."""
        if (refusal := self._refusal()) is not None:
            return {topic: [refusal] * len(some) for topic, some in items.items()}
        ends = list(accumulate(map(len, items.values()), initial=0))
        if not ends[-1]:
            return {topic: [] for topic in items}
        caller: Waiter[Result] = Waiter(ends[-1])
        brought = {topic: some for topic, some in items.items() if some}
        first = 0
        for topic, some in brought.items():
            self._lanes[topic].add(topic, CallerShare(caller, first, some))
            first += len(some)
        for lane in dict.fromkeys(self._lanes[topic] for topic in brought):
            lane.wake()
        try:
            results = await caller.told
        except asyncio.CancelledError:
            for lane in dict.fromkeys(self._lanes[topic] for topic in brought):
                lane.gone()
            raise
        return {topic: results[start:end] for topic, (start, end) in zip(items, pairwise(ends), strict=True)}
