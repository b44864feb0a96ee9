"""Registers the topics that exist, so that nobody has to search Redis for them."""

from __future__ import annotations

import logging

from relay.core.errors import StoreError
from relay.core.loop.wakeup import Wakeup
from relay.core.ports import TopicStore
from relay.engine.clock import Clock

RETRY = 5.0
"""Seconds after which a failed try is repeated."""

log = logging.getLogger(__name__)


class TopicRegistry:
    """Registers each topic once in the life of a relay, beside the calls and without delaying them."""

    def __init__(self, topics: TopicStore, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._known: set[str] = set()
        self._fresh: list[str] = []
        self._wakeup = Wakeup()

    def note(self, topic: str) -> None:
        """Note a topic."""
        if topic not in self._known:
            self._known.add(topic)
            self._fresh.append(topic)
            self._wakeup.set()

    def known(self) -> set[str]:
        """The topics that this relay has worked with."""
        return self._known

    async def run(self) -> None:
        """Register until cancelled."""
        while True:
            await self._wakeup.wait()
            while self._fresh:
                await self.step()

    async def step(self) -> None:
        """Register one topic. A failure is tried again later."""
        try:
            await self._topics.register(self._fresh[0])
        except StoreError as failure:
            log.debug("a topic could not be registered", extra={"reason": str(failure)})
            await self._clock.sleep(RETRY)
        else:
            self._fresh.pop(0)
