"""The event loop of a daemon: asyncio's own, but it wakes at the requested time."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable

FD_SETSIZE = 1024
"""The file number from which on `select` takes no file; see select(2)."""

loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
"""Makes such a loop. It is None on systems where asyncio's own is as punctual, since kqueue takes
nanoseconds."""

if hasattr(selectors, "EpollSelector"):

    class PunctualSelector(selectors.EpollSelector):
        """An `EpollSelector` whose waits are not rounded to milliseconds.

        asyncio waits for the time until its next callback, and `epoll_wait` takes whole milliseconds. Python
        rounds up, at times twice: a wait of 3.1 ms ends after 4 to 5 ms. `select` takes microseconds, for 1.4
        µs more. It can wait for an epoll instance as for any file, if its number is below 1,024. In a process
        that has more files open when it begins, waits are rounded.
        """

        def __init__(self) -> None:
            super().__init__()
            self._exact = self.fileno() < FD_SETSIZE

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """See `selectors.BaseSelector.select`."""
            if self._exact and timeout is not None and timeout > 0:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    def loop_factory() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(PunctualSelector())
