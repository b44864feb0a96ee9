"""An event that resets itself."""

from __future__ import annotations

import asyncio


class Wakeup:
    """`set` ends the current wait, or else the next one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """End a wait."""
        self._event.set()

    async def wait(self) -> None:
        """Until `set`; a `set` that came before counts."""
        event = self._event
        await event.wait()
        if self._event is event:  # another waiter may have reset it already
            self._event = asyncio.Event()
