"""The event loop of a daemon: asyncio's own, but that it wakes when it was asked to."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable

FD_SETSIZE = 1024
"""The number from which on `select` takes no file, see select(2)."""

loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
"""Makes such a loop; None where asyncio's own is as punctual, since its system takes nanoseconds (kqueue)."""

if hasattr(selectors, "EpollSelector"):

    class PunctualSelector(selectors.EpollSelector):
        """An `EpollSelector` whose waits are not rounded to milliseconds.

        asyncio asks it for the time until its next callback, and `epoll_wait` takes whole milliseconds, up to
        which Python rounds, and at times twice: what should wake in 3.1 ms wakes after 4 to 5. `select` takes
        microseconds, for 1.4 µs more. It can wait for an epoll instance as for any file, if its number is
        below 1,024: of a process that has more open as it begins, waits are rounded.
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
