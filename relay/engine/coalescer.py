"""Turns many concurrent calls into few store calls: items that wait together are written together."""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup

from relay.core.errors import InvalidField, ServiceError
from relay.core.ports import MAX_PER_CALL
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock

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
"""The store calls that are under way at once: one is packed and sent while the server works on the other."""

log = logging.getLogger(__name__)


class Sliced(Protocol):
    """Many items, in a list or another form, some of which can be taken."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Self: ...


Items = TypeVar("Items", bound=Sliced)
Result = TypeVar("Result")


class _Waiter(Generic[Result]):
    """A caller that waits for the results of some items, in their order. One future serves them all: one for
    each would cost as much as the script call that stores them.

    `deadline` is the instant at which it gives them up: the end of the scope that it is in, by the loop's
    clock.
    """

    __slots__ = ("_left", "_results", "deadline", "told")

    def __init__(self, items: int) -> None:
        self.told: asyncio.Future[list[Result | ServiceError]] = asyncio.get_running_loop().create_future()
        self.deadline = anyio.current_effective_deadline()
        self._results: list[Any] = [None] * items
        self._left = items

    def tell(self, first: int, results: Sequence[Result | ServiceError]) -> None:
        """Set the results of its items from this one on."""
        self._results[first : first + len(results)] = results
        self._left -= len(results)
        if not self._left and not self.told.done():  # a future that is done belongs to a caller that has gone
            self.told.set_result(self._results)


@dataclass(slots=True)
class _Share(Generic[Items, Result]):
    """Items of one caller and topic; `first` is the place of the first one among all items of the caller."""

    caller: _Waiter[Result]
    first: int
    items: Items

    def cut(self, count: int) -> tuple[_Share[Items, Result], _Share[Items, Result]]:
        """Split into the first `count` items and the others."""
        rest = _Share(self.caller, self.first + count, self.items[count:])
        return _Share(self.caller, self.first, self.items[:count]), rest


_Batch: TypeAlias = list[_Share[Items, Result]]
"""The items of one store call."""

_Call: TypeAlias = tuple[str, set[str]]
"""A store call under way, with its topic and the names of its timers."""


class Coalescer(Generic[Items, Result]):  # see 0040
    """Gathers single calls per topic while a store call is under way, in the order in which they came.

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
    """

    def __init__(
        self,
        write: Callable[[str, Items, Sequence[float]], Awaitable[Sequence[Result | ServiceError]]],
        sizes: Callable[[Items], Iterable[int]],
        names: Callable[[Items], Iterable[str]],
        join: Callable[[Sequence[Items]], Items],
        clock: Clock,
    ) -> None:
        self._write = write
        self._sizes = sizes
        self._names = names
        self._join = join
        self._clock = clock
        self._items = self._callers = 0
        """The number of items that wait, and the number of callers that brought them."""
        self._wanted = 1
        """The number of callers that wakes the loop."""
        self._company = 1
        """The number of callers for which a store call waits."""
        self._waiting: dict[str, deque[_Share[Items, Result]]] = {}
        self._wakeup = Wakeup()
        self._under_way: list[_Call] = []
        self._ended = Wakeup()
        """Set when a call has ended, or a caller has gone."""

    async def submit(self, topic: str, items: Items) -> Result:
        """Write a single item. Raises the store's error."""
        caller: _Waiter[Result] = _Waiter(1)
        self._queue(topic).append(_Share(caller, 0, items))
        (result,) = await self._results_of(caller, 1)
        if isinstance(result, ServiceError):
            raise result
        return result

    async def submit_many(self, items: Mapping[str, Items]) -> dict[str, list[Result | ServiceError]]:
        """Write many items of any topics. Each gets a result or an error of its own."""
        ends = list(accumulate(map(len, items.values()), initial=0))
        if not ends[-1]:
            return {topic: [] for topic in items}
        caller: _Waiter[Result] = _Waiter(ends[-1])
        for (topic, some), first in zip(items.items(), ends, strict=False):
            if some:
                self._queue(topic).append(_Share(caller, first, some))
        results = await self._results_of(caller, ends[-1])
        return {topic: results[start:end] for topic, (start, end) in zip(items, pairwise(ends), strict=True)}

    def _queue(self, topic: str) -> deque[_Share[Items, Result]]:
        """Return the queue of the topic, to which something is about to be added."""
        return self._waiting.setdefault(topic, deque())

    async def _results_of(self, caller: _Waiter[Result], items: int) -> list[Result | ServiceError]:
        """Wait for the results of items that a caller has just brought."""
        self._items += items
        self._callers += 1
        if self._is_company:
            self._wakeup.set()
        try:
            return await caller.told
        except asyncio.CancelledError:
            self._ended.set()  # a call may wait only because of these items
            raise

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
        """Make one store call for each topic that has something to write."""
        for topic in list(self._waiting):
            queue = self._waiting[topic]
            batch: _Batch[Items, Result] = []
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
            self._company = 1 if queue else _next_company(self._company, came)
            await self._begin(tasks, topic, batch)

    def _next_share(
        self, queue: deque[_Share[Items, Result]], most: int, room: int
    ) -> tuple[_Share[Items, Result], int]:
        """Take shares up to a number of items and bytes, the last one perhaps in part; return them with their
        bytes."""
        share = queue.popleft()
        some = share.items if len(share.items) <= most else share.items[:most]
        fitting, weight = len(some), sum(self._sizes(some))
        if weight > room:
            sums = list(accumulate(self._sizes(some)))
            fitting = bisect_left(sums, room) + 1
            weight = sums[fitting - 1]
        if fitting < len(share.items):
            share, rest = share.cut(fitting)
            queue.appendleft(rest)
        return share, weight

    async def _begin(self, tasks: TaskGroup, topic: str, batch: _Batch[Items, Result]) -> None:
        """Write a batch as soon as there is room for it, and wait for that unless it is a crowd."""
        while True:
            # A caller that has given up must expect either outcome, and holds up nobody.
            batch = [share for share in batch if not share.caller.told.cancelled()]
            if not batch:
                return
            items = self._items_of(batch)
            call = topic, set(self._names(items))
            if len(self._under_way) < AT_ONCE and not any(_meet(call, other) for other in self._under_way):
                break
            await self._ended.wait()
        self._under_way.append(call)
        tasks.start_soon(self._call, call, batch, items)
        while len(items) < CROWD and call in self._under_way:
            await self._ended.wait()

    async def _call(self, call: _Call, batch: _Batch[Items, Result], items: Items) -> None:
        try:
            await self._flush(call[0], batch, items)
        finally:
            self._under_way.remove(call)
            self._ended.set()

    async def _flush(self, topic: str, batch: _Batch[Items, Result], items: Items) -> None:
        try:
            results = await self._write(topic, items, _deadlines(batch))
            if len(results) != len(items):
                raise RuntimeError(f"{len(results)} results for {len(items)} items")
        except ServiceError as failure:
            if len(items) > 1 and isinstance(failure, InvalidField):
                for half in _halves(batch):
                    await self._flush(topic, half, self._items_of(half))
            else:
                _fail(batch, failure)
        except Exception as failure:
            log.exception("a call to Redis failed unexpectedly", extra={"topic": topic})
            _fail(batch, ServiceError(f"unexpected error: {failure!r}"))
        else:
            told = 0
            for share in batch:
                end = told + len(share.items)
                share.caller.tell(share.first, results[told:end])
                told = end

    def _items_of(self, batch: _Batch[Items, Result]) -> Items:
        return self._join([share.items for share in batch])


def _deadlines(batch: _Batch[Items, Result]) -> Sequence[float]:
    """Until when the caller of each item waits; empty if all of them wait for as long as it takes."""
    if all(math.isinf(share.caller.deadline) for share in batch):
        return ()
    return [*chain.from_iterable(repeat(share.caller.deadline, len(share.items)) for share in batch)]


def _halves(batch: _Batch[Items, Result]) -> tuple[_Batch[Items, Result], _Batch[Items, Result]]:
    """Split a batch of several items into two parts that are not empty."""
    if len(batch) > 1:
        middle = len(batch) // 2
        return batch[:middle], batch[middle:]
    first, rest = batch[0].cut(len(batch[0].items) // 2)
    return [first], [rest]


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


def _fail(batch: _Batch[Items, Result], failure: ServiceError) -> None:
    for share in batch:
        share.caller.tell(share.first, [failure] * len(share.items))
