"""What a scene waits for, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Broken(Exception):
    """The client has broken a rule; the message says how."""


class Unasked(Exception):
    """The scene is about something that the client does not ask for, and may leave out."""


class Observed:
    """Something whose changes can be waited for.

    `wrong` has what was found against the rules that hold in every scene; the first of them ends every wait.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.wrong: list[str] = []
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Note that something has changed: whoever waits looks again."""
        self._changed.set()

    def object_to(self, found: str) -> None:
        """Note that a rule is broken."""
        self.wrong.append(found)
        self.changed()

    def check(self) -> None:
        """Raises `Broken` if a rule is broken by now."""
        if self.wrong:
            raise Broken(self.wrong[0])

    async def until(self, ask: Callable[[], T | None], what: str, *, patience: float | None = None) -> T:
        """Wait until the answer is true, and return it. Raises `Broken` after `patience` seconds."""
        seconds = patience or self.patience
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    self.check()
                    if answer := ask():
                        return answer
                    await self._changed.wait()
        except TimeoutError:
            raise Broken(f"not within {seconds:g} s: {what}") from None
