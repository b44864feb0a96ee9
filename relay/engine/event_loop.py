"""The event loop of a daemon: asyncio's own, but it wakes at the requested time, and knows when it stood
still."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections import deque
from collections.abc import Callable
from time import monotonic

FD_SETSIZE = 1024
"""The file number from which on `select` takes no file; see select(2)."""

TICK = 0.1
"""The most seconds that a loop waits without a look at the clock. A wait ends early if something comes, so a
stall within it would be taken for part of it. Ten looks a second cost less than 0.1 % of a CPU."""

LEAST_STALL = 0.01
"""Seconds of a stall that is worth remembering."""

REMEMBERED = 2.0
"""Seconds for which a stall counts after its end. What came during the stall is read within that time, since
gRPC reads in threads of its own."""


class Stalls:  # see 0079
    """The times for which a loop stood still: its process was stopped, its machine was paused, or had no CPU
    for it.

    A call that came meanwhile has waited for as long in a socket, and nobody knows since when.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        """`now` is a monotonic clock, in seconds."""
        self._now = now
        self._stalls: deque[tuple[float, float]] = deque()
        """When each ended, and how many seconds it took."""

    def note(self, seconds: float) -> None:
        """The loop has just stood still, for this many seconds at most."""
        if seconds >= LEAST_STALL:
            self._forget()
            self._stalls.append((self._now(), seconds))

    def longest(self) -> float:
        """The longest of the last moments, in seconds; 0 if there was none."""
        if not self._stalls:
            return 0.0  # as a rule
        self._forget()
        return max((seconds for _, seconds in self._stalls), default=0.0)

    def _forget(self) -> None:
        while self._stalls and self._stalls[0][0] < self._now() - REMEMBERED:
            self._stalls.popleft()


def recent_stall() -> float:
    """The longest recent stall of the running loop, in seconds; 0 of a loop that `loop_factory` did not
    make.

    The loop's present turn may be one, and is not noted yet. A request that was read in the turn before has
    waited for as long.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, PunctualLoop):
        return 0.0
    turn = loop.turn()
    longest = loop.stalls.longest()
    return max(longest, turn) if turn >= LEAST_STALL else longest


class PunctualSelector(selectors.DefaultSelector):
    """The system's selector, whose waits are not rounded to milliseconds, and which notes stalls.

    asyncio waits for the time until its next callback, and `epoll_wait` takes whole milliseconds. Python
    rounds up, at times twice: a wait of 3.1 ms ends after 4 to 5 ms. `select` takes microseconds, for 1.4 µs
    more. It can wait for an epoll instance as for any file, if its number is below 1,024. In a process that
    has more files open when it begins, waits are rounded. Other systems' selectors take nanoseconds.
    """

    def __init__(self, stalls: Stalls | None = None) -> None:
        super().__init__()
        self._exact = hasattr(selectors, "EpollSelector") and self.fileno() < FD_SETSIZE
        self._stalls = stalls or Stalls()
        self._left = monotonic()
        """When the loop went on with its work."""

    def turn(self) -> float:
        """For how many seconds the loop has been at work since its last wait."""
        return monotonic() - self._left

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        began = monotonic()
        if began - self._left >= LEAST_STALL:
            self._stalls.note(began - self._left)
        if timeout is not None and timeout <= 0:  # as in most turns of a loop that is at work
            self._left = began  # a stall while it looks counts for the next turn
            return self._look(0.0)
        end = None if timeout is None else began + timeout
        while True:
            span = TICK if end is None else max(min(end - began, TICK), 0.0)
            found = self._look(span)
            now = monotonic()
            if now - began - span >= LEAST_STALL:  # it may have begun with the wait
                self._stalls.note(now - began)
            if found or (end is not None and now >= end):
                self._left = now
                return found
            began = now

    def _look(self, span: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for at most `span` seconds."""
        if self._exact and span > 0:
            select.select((self.fileno(),), (), (), span)
            span = 0
        return super().select(span)


class PunctualLoop(asyncio.SelectorEventLoop):
    """Waits by a `PunctualSelector`."""

    def __init__(self) -> None:
        self.stalls = Stalls()
        selector = PunctualSelector(self.stalls)
        self.turn = selector.turn
        super().__init__(selector)


def loop_factory() -> asyncio.AbstractEventLoop:
    """Make the loop of a daemon."""
    return PunctualLoop()
