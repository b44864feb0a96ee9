"""An event that resets itself."""

from __future__ import annotations

import asyncio


class Wakeup:
    """An event whose `set` ends the current wait, or the next one if there is none."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """End a wait."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until `set`; an earlier `set` counts."""
        event = self._event
        await event.wait()
        if self._event is event:  # another waiter may have reset it already
            self._event = asyncio.Event()
