"""The store calls for the topics of one place, with what waits for them."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeAlias

import anyio
from anyio.abc import TaskGroup

from relay.core.errors import InvalidField, ServiceError
from relay.core.loop.wakeup import Wakeup
from relay.core.ports import MAX_PER_CALL
from relay.core.trust.principals import caller
from relay.engine.clock import Clock
from relay.engine.coalescing.batch import (
    Batch,
    CallerShare,
    Items,
    Result,
    deadlines,
    fail,
    halves,
    principal,
)
from relay.engine.lanes import Lanes

MAX_BYTES = 4 << 20
"""The approximate limit of bytes in one store call, so that none holds the server up for long."""

LINGER = 0.003
"""The most seconds that a store call waits for company, after a call that had company. Then a dozen of a
hundred producers share a call, instead of one or two, which takes two thirds of the CPU. A lone producer
never waits."""

LINGER_EACH = 0.0003
"""Seconds for each caller that is awaited: for a few callers a longer wait would not pay."""

CROWD = 100
"""This many items are company enough, however few callers brought them. While they are written, the next ones
may go out."""

AT_ONCE = 2
"""The store calls to a place that are under way at once: one is packed and sent while the server works on the
other."""

PACE = 0.002
"""Seconds between two store calls that don't wait for each other, so that callers share them all the same."""

log = logging.getLogger(__name__)

_Call: TypeAlias = tuple[str, set[str]]
"""A store call under way, with its topic and the names of its timers."""


@dataclass(frozen=True, slots=True)
class Writing(Generic[Items, Result]):
    """How items are written; see `Coalescer`."""

    write: Callable[[str, Items, Sequence[float]], Awaitable[Sequence[Result | ServiceError]]]
    sizes: Callable[[Items], Iterable[int]]
    names: Callable[[Items], Iterable[str]]
    join: Callable[[Sequence[Items]], Items]
    at_once: int = AT_ONCE


class CoalescerLane(Generic[Items, Result]):
    """Gathers what is brought for the topics of a place, and writes it. See `Coalescer`, and `Lanes`."""

    def __init__(
        self,
        place: str,
        writing: Writing[Items, Result],
        lanes: Lanes[CoalescerLane[Items, Result]],
        clock: Clock,
    ) -> None:
        self.place = place
        self._writing = writing
        self._paced = writing.at_once > AT_ONCE
        """Whether store calls begin at a pace, and don't wait for each other."""
        self._lanes = lanes
        self._clock = clock
        self._items = self._callers = 0
        """The number of items that wait, and the number of callers that brought the first of theirs."""
        self._wanted = 1
        """The number of callers that wakes the loop."""
        self._company = 1
        """The number of callers for which a store call waits."""
        self._waiting: dict[str, deque[CallerShare[Items, Result]]] = {}
        self._wakeup = Wakeup()
        self._in_hand = ""
        """The topic of the batch that waits until it can be written."""
        self._under_way: list[_Call] = []
        self._ended = Wakeup()
        """Set when a call has ended, or a caller has gone."""

    @property
    def waiting(self) -> int:
        """The number of items that wait."""
        return self._items

    def add(self, topic: str, share: CallerShare[Items, Result]) -> None:
        """Queue what a caller has brought; `wake` tells the loop of it."""
        self._waiting.setdefault(topic, deque()).append(share)
        self._items += len(share.items)
        self._callers += share.first == 0

    def wake(self) -> None:
        """Note that what a caller has brought is complete."""
        if self._is_company:
            self._wakeup.set()

    def gone(self) -> None:
        """Note that a caller has given up: a call may wait only because of its items."""
        self._ended.set()

    def leave(self, topic: str, lane: CoalescerLane[Items, Result]) -> bool:
        """See `Lane.leave`.

        This has a race: a request names a timer, and its call is under way to the topic's old place; the next
        request names it, too, and goes to the new place. If the store then sends the earlier call on, that
        comes last, and the earlier intent would stand. So a topic stays while a call or a batch of it is
        here.
        """
        if topic == self._in_hand or any(topic == call[0] for call in self._under_way):
            return False
        for share in self._waiting.pop(topic, ()):
            self._items -= len(share.items)
            self._callers -= share.first == 0
            lane.add(topic, share)
        lane.wake()
        return True

    @property
    def _is_company(self) -> bool:
        """Whether as many callers wait as are wanted. One is enough if the rest of a batch has no caller any
        more."""
        enough = self._callers >= self._wanted or self._items >= CROWD
        return enough or self._wanted == 1

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting:
                    await self._wakeup.wait()
                await self._company_comes()
                await self._step(tasks)

    async def _company_comes(self) -> None:
        """Wait until as many callers wait as are wanted, or until it takes too long."""
        end = self._clock.now() + min(LINGER, LINGER_EACH * self._company)
        self._wanted = self._company
        while not self._is_company and (left := end - self._clock.now()) > 0:
            await self._clock.wait(self._wakeup, left)
        self._wanted = 1

    async def _step(self, tasks: TaskGroup) -> None:
        """Make one store call for each topic that has something to write, and wait for those of less than a
        crowd: what comes meanwhile finds company."""
        awaited: list[_Call] = []
        for topic in list(self._waiting):
            if topic not in self._waiting:  # it has left
                continue
            queue = self._waiting[topic]
            batch: Batch[Items, Result] = []
            count = size = came = 0
            while queue and count < MAX_PER_CALL and size < MAX_BYTES:
                share, weight = self._next_share(queue, MAX_PER_CALL - count, MAX_BYTES - size)
                batch.append(share)
                count += len(share.items)
                size += weight
                came += share.first == 0
            self._items -= count
            self._callers -= came
            if not queue:
                del self._waiting[topic]
            self._company = 1 if queue or self._paced else _next_company(self._company, came)
            self._in_hand = topic
            call = await self._begin(tasks, topic, batch)
            self._in_hand = ""
            self._lanes.call_ended()
            if call is not None:
                awaited.append(call)
        if self._paced and awaited:
            await self._clock.sleep(PACE)
            return
        while any(call in self._under_way for call in awaited):
            await self._ended.wait()

    def _next_share(
        self, queue: deque[CallerShare[Items, Result]], most: int, room: int
    ) -> tuple[CallerShare[Items, Result], int]:
        """Take shares up to a number of items and bytes, the last one perhaps in part; return them with their
        bytes."""
        share = queue.popleft()
        some = share.items if len(share.items) <= most else share.items[:most]
        sizes = self._writing.sizes
        fitting, weight = len(some), sum(sizes(some))
        if weight > room:
            sums = list(accumulate(sizes(some)))
            fitting = bisect_left(sums, room) + 1
            weight = sums[fitting - 1]
        if fitting < len(share.items):
            share, rest = share.cut(fitting)
            queue.appendleft(rest)
        return share, weight

    async def _begin(self, tasks: TaskGroup, topic: str, batch: Batch[Items, Result]) -> _Call | None:
        """Begin to write a batch as soon as there is room for the call. Return the call, or None if it has a
        crowd, or if all callers have gone."""
        while True:
            # A caller that has given up must expect either outcome, and holds up nobody.
            batch = [share for share in batch if not share.caller.told.cancelled()]
            if not batch:
                return None
            items = self._items_of(batch)
            call = topic, set(self._writing.names(items))
            if len(self._under_way) < self._writing.at_once and not any(
                _meet(call, other) for other in self._under_way
            ):
                break
            await self._ended.wait()
        self._under_way.append(call)
        tasks.start_soon(self._call, call, batch, items)
        return call if len(items) < CROWD else None

    async def _call(self, call: _Call, batch: Batch[Items, Result], items: Items) -> None:
        try:
            await self._flush(call[0], batch, items)
        finally:
            self._under_way.remove(call)
            self._ended.set()
            self._lanes.call_ended()

    async def _flush(self, topic: str, batch: Batch[Items, Result], items: Items) -> None:
        caller.set(principal(batch))  # for this call, which is a task of its own: the journal says who asked
        try:
            results = await self._writing.write(topic, items, deadlines(batch))
            if len(results) != len(items):
                raise RuntimeError(f"{len(results)} results for {len(items)} items")
        except ServiceError as failure:
            if len(items) > 1 and isinstance(failure, InvalidField):
                for half in halves(batch):
                    await self._flush(topic, half, self._items_of(half))
            else:
                fail(batch, failure)
        except Exception as failure:
            log.exception("a call to Redis failed unexpectedly", extra={"topic": topic})
            fail(batch, ServiceError(f"unexpected error: {failure!r}"))
        else:
            told = 0
            for share in batch:
                end = told + len(share.items)
                share.caller.tell(share.first, results[told:end])
                told = end

    def _items_of(self, batch: Batch[Items, Result]) -> Items:
        return self._writing.join([share.items for share in batch])


def _next_company(wanted: int, came: int) -> int:
    """Return for how many callers to wait next: one more than came, while that many come in time; otherwise
    fewer, so that a few producers who all wait already don't wait for one more each time. A caller that came
    alone stays alone."""
    if came < wanted:
        return max(came * 3 // 4, 1)
    return 1 if came <= 1 else min(came + 1, CROWD)


def _meet(call: _Call, other: _Call) -> bool:
    """Whether both name the same timer."""
    return call[0] == other[0] and not call[1].isdisjoint(other[1])
