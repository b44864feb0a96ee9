"""Whose turn it is among the pollers of a topic's partitions, which share the room of its applications."""

from __future__ import annotations

from relay.core.loop.wakeup import Wakeup


class Turns:
    """The pollers that have something due and wait to claim it, each by its wakeup; the one that has waited
    longest comes first.

    This has a race: one partition is flooded, and its poller takes all room as soon as there is any; the one
    timer of another would wait until the flood is over. So who has claimed goes behind all who wait.
    """

    def __init__(self) -> None:
        self._waiting: dict[Wakeup, None] = {}

    def wait(self, poller: Wakeup) -> bool:
        """Note that a poller has something due; return whether it is its turn."""
        self._waiting.setdefault(poller)
        return next(iter(self._waiting)) is poller

    def leave(self, poller: Wakeup) -> None:
        """Note that a poller claims now, or waits no more: it is another one's turn."""
        if poller in self._waiting:
            del self._waiting[poller]
            for following in self._waiting:
                following.set()
                break

    def behind(self, poller: Wakeup) -> bool:
        """Whether a poller waits and it is another one's turn."""
        return poller in self._waiting and next(iter(self._waiting)) is not poller
