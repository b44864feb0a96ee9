"""What callers bring, and the batches that go to the store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from relay.core.errors import ServiceError
from relay.core.loop.call_ends import call_deadline
from relay.core.trust.principals import ANONYMOUS, Principal, caller


class Sliced(Protocol):
    """Many items, in a list or another form, some of which can be taken."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Self: ...


Items = TypeVar("Items", bound=Sliced)
Result = TypeVar("Result")


class Waiter(Generic[Result]):
    """A caller that waits for the results of some items, in their order. One future serves them all: one for
    each would cost as much as the script call that stores them.

    `deadline` is the instant at which it gives them up, in seconds by `time.monotonic`; `principal` is who it
    is.
    """

    __slots__ = ("_left", "_results", "deadline", "principal", "told")

    def __init__(self, items: int) -> None:
        self.told: asyncio.Future[list[Result | ServiceError]] = asyncio.get_running_loop().create_future()
        self.deadline = call_deadline()
        self.principal = caller.get()
        self._results: list[Any] = [None] * items
        self._left = items

    def tell(self, first: int, results: Sequence[Result | ServiceError]) -> None:
        """Set the results of its items from this one on."""
        self._results[first : first + len(results)] = results
        self._left -= len(results)
        if not self._left and not self.told.done():  # a future that is done belongs to a caller that has gone
            self.told.set_result(self._results)


@dataclass(slots=True)
class CallerShare(Generic[Items, Result]):
    """Items of one caller and topic; `first` is the place of the first one among all items of the caller."""

    caller: Waiter[Result]
    first: int
    items: Items

    def cut(self, count: int) -> tuple[CallerShare[Items, Result], CallerShare[Items, Result]]:
        """Split into the first `count` items and the others."""
        rest = CallerShare(self.caller, self.first + count, self.items[count:])
        return CallerShare(self.caller, self.first, self.items[:count]), rest


Batch: TypeAlias = list[CallerShare[Items, Result]]
"""The items of one store call."""


def deadlines(batch: Batch[Items, Result]) -> Sequence[float]:
    """Until when the caller of each item waits; empty if all of them wait for as long as it takes."""
    if all(math.isinf(share.caller.deadline) for share in batch):
        return ()
    return [*chain.from_iterable(repeat(share.caller.deadline, len(share.items)) for share in batch)]


def principal(batch: Batch[Items, Result]) -> Principal:
    """The principal of all callers of a batch; `ANONYMOUS` if there are several."""
    found = {share.caller.principal for share in batch}
    return found.pop() if len(found) == 1 else ANONYMOUS


def halves(batch: Batch[Items, Result]) -> tuple[Batch[Items, Result], Batch[Items, Result]]:
    """Split a batch of several items into two parts that are not empty."""
    if len(batch) > 1:
        middle = len(batch) // 2
        return batch[:middle], batch[middle:]
    first, rest = batch[0].cut(len(batch[0].items) // 2)
    return [first], [rest]


def fail(batch: Batch[Items, Result], failure: ServiceError) -> None:
    """Tell all callers of a batch that it has failed."""
    for share in batch:
        share.caller.tell(share.first, [failure] * len(share.items))
