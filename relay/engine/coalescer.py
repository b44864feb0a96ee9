"""Many concurrent calls, few store calls: what waits together is written together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup

from relay.core.errors import InvalidField, RelayError
from relay.core.ports import MAX_PER_CALL
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock

MAX_BYTES = 4 << 20
"""At most about so many bytes go into one store call, so that none holds the server up for long."""

LINGER = 0.003
"""Seconds that a store call waits at most for company, after one that had some. Of a hundred producers
a dozen then share a call, and not one or two, for two thirds of the CPU; one that is alone never waits."""

LINGER_EACH = 0.0003
"""Seconds for each caller that is waited for: for a few it would not be worth much more."""

CROWD = 100
"""So many items are company enough, however few callers brought them; and while they are written, the next
ones set out."""

AT_ONCE = 2
"""Store calls that are under way together: one is packed and sent while the server is at the other."""

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Caller(Generic[Result]):
    """Who waits for the results of some items, in their order. One future serves them all: one for each
    would cost as much as the script call that stores them."""

    __slots__ = ("_left", "_results", "told")

    def __init__(self, items: int) -> None:
        self.told: asyncio.Future[list[Result | RelayError]] = asyncio.get_running_loop().create_future()
        self._results: list[Any] = [None] * items
        self._left = items

    def tell(self, index: int, result: Result | RelayError) -> None:
        """What became of an item."""
        self._results[index] = result
        self._left -= 1
        if not self._left and not self.told.done():  # else it has gone
            self.told.set_result(self._results)


_Entry: TypeAlias = tuple[Item, _Caller[Result], int]
"""What is to be written, who waits for it, and its place among that caller's items."""

_Call: TypeAlias = tuple[str, set[str]]
"""A store call under way: its topic, and the names of its timers."""


class Coalescer(Generic[Item, Result]):
    """Gathers single calls per topic while a store call is under way, in the order in which they came.

    `write(topic, items)` answers one result per item, `name` tells which timer an item is about, and `size`
    how many bytes it has. If a call fails, all of its callers get the error, except that a call of many items
    that is refused for one of them is repeated in halves, so that bad input of one caller harms no other.

    A call of a crowd of items doesn't hold up the next one. The race: a request names a timer twice, in two
    store calls; on two connections the later one may come first, and the earlier intent would stand. So a
    call waits for those under way that name one of its timers.
    """

    def __init__(
        self,
        write: Callable[[str, Sequence[Item]], Awaitable[Sequence[Result]]],
        size: Callable[[Item], int],
        name: Callable[[Item], str],
        clock: Clock,
    ) -> None:
        self._write = write
        self._size = size
        self._name = name
        self._clock = clock
        self._items = self._callers = 0
        """How many items wait, and how many callers brought them."""
        self._wanted = 1
        """So many callers waken the loop."""
        self._company = 1
        """For so many callers a store call waits."""
        self._waiting: dict[str, deque[_Entry[Item, Result]]] = {}
        self._wakeup = Wakeup()
        self._under_way: list[_Call] = []
        self._ended = Wakeup()

    async def submit(self, topic: str, item: Item) -> Result:
        """Write one item; raises what the store raised."""
        (result,) = await self.submit_many([(topic, item)])
        if isinstance(result, RelayError):
            raise result
        return result

    async def submit_many(self, items: Sequence[tuple[str, Item]]) -> list[Result | RelayError]:
        """Write many items of any topics; each has a result or an error of its own."""
        if not items:
            return []
        caller: _Caller[Result] = _Caller(len(items))
        for index, (topic, item) in enumerate(items):
            queue = self._waiting.get(topic)
            if queue is None:
                queue = self._waiting[topic] = deque()
            queue.append((item, caller, index))
        self._items += len(items)
        self._callers += 1
        if self._is_company:
            self._wakeup.set()
        return await caller.told

    @property
    def _is_company(self) -> bool:
        """Whether as many wait as are wanted. One always is: the rest of a batch has no caller any more."""
        enough = self._callers >= self._wanted or self._items >= CROWD
        return enough or self._wanted == 1

    async def run(self) -> None:
        """Write for ever."""
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting:
                    await self._wakeup.wait()
                await self._company_comes()
                await self._step(tasks)

    async def _company_comes(self) -> None:
        """Until as many wait as are wanted, or it takes them too long."""
        end = self._clock.now() + min(LINGER, LINGER_EACH * self._company)
        self._wanted = self._company
        while not self._is_company and (left := end - self._clock.now()) > 0:
            await self._clock.wait(self._wakeup, left)
        self._wanted = 1

    async def _step(self, tasks: TaskGroup) -> None:
        """One store call for each topic that has something to write."""
        for topic in list(self._waiting):
            queue = self._waiting[topic]
            batch: list[_Entry[Item, Result]] = []
            size = came = 0
            while queue and len(batch) < MAX_PER_CALL and size < MAX_BYTES:
                entry = queue.popleft()
                item, _, index = entry
                self._items -= 1
                self._callers -= index == 0
                size += self._size(item)
                came += index == 0
                batch.append(entry)
            if not queue:
                del self._waiting[topic]
            self._company = 1 if queue else _next_company(self._company, came)
            await self._begin(tasks, topic, batch)

    async def _begin(self, tasks: TaskGroup, topic: str, batch: list[_Entry[Item, Result]]) -> None:
        """Write a batch as soon as there is room for it, and wait for that unless it is a crowd."""
        while True:
            # Who has given up has to expect either, and keeps nobody waiting.
            batch = [entry for entry in batch if not entry[1].told.cancelled()]
            if not batch:
                return
            call = topic, {self._name(entry[0]) for entry in batch}
            if len(self._under_way) < AT_ONCE and not any(_meet(call, other) for other in self._under_way):
                break
            await self._ended.wait()
        self._under_way.append(call)
        tasks.start_soon(self._call, call, batch)
        while len(batch) < CROWD and call in self._under_way:
            await self._ended.wait()

    async def _call(self, call: _Call, batch: list[_Entry[Item, Result]]) -> None:
        try:
            await self._flush(call[0], batch)
        finally:
            self._under_way.remove(call)
            self._ended.set()

    async def _flush(self, topic: str, batch: list[_Entry[Item, Result]]) -> None:
        try:
            results = await self._write(topic, [entry[0] for entry in batch])
        except RelayError as failure:
            if len(batch) > 1 and isinstance(failure, InvalidField):
                middle = len(batch) // 2
                await self._flush(topic, batch[:middle])
                await self._flush(topic, batch[middle:])
            else:
                _fail(batch, failure)
        except Exception as failure:
            log.exception("a call to Redis failed unexpectedly", extra={"topic": topic})
            _fail(batch, RelayError(f"unexpected error: {failure!r}"))
        else:
            for (_, caller, index), result in zip(batch, results, strict=True):
                caller.tell(index, result)


def _next_company(wanted: int, came: int) -> int:
    """How many callers to wait for next: one more than came, as long as so many come in time; else fewer, so
    that of a few producers who all wait already not every call waits for one more. Who came alone is
    alone."""
    if came < wanted:
        return max(came * 3 // 4, 1)
    return 1 if came <= 1 else min(came + 1, CROWD)


def _meet(call: _Call, other: _Call) -> bool:
    """Whether both are about the same timer."""
    return call[0] == other[0] and not call[1].isdisjoint(other[1])


def _fail(batch: Sequence[_Entry[Item, Result]], failure: RelayError) -> None:
    for _, caller, index in batch:
        caller.tell(index, failure)
