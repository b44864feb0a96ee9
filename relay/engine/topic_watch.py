"""The state of topics in Redis, for the metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.ports import MAX_PER_CALL, TopicStore
from relay.core.timers import TopicStats
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock

FRESH = 1.0
"""Seconds for which one read serves everybody."""

PATIENCE = 0.5
"""Seconds that a reader waits; after that it gets nothing, as while Redis is away."""

NAMES_FRESH = 60.0
"""Seconds after which the names of all topics are read again. This relay's own are known at once."""

MOST = MAX_PER_CALL
"""The most topics that are read, this relay's own first: that takes Redis some milliseconds."""

log = logging.getLogger(__name__)


class TopicWatch:  # see 0034
    """Reads on demand: one pipelined read serves all who ask meanwhile and for 1 s after.

    The read is a task of its own, so that a reader who gives up leaves no call half done.
    """

    def __init__(
        self,
        topics: TopicStore,
        own: Callable[[], Iterable[str]],
        clock: Clock,
        more: Callable[[TopicStats], Awaitable[TopicStats]] | None = None,
    ) -> None:
        self._topics = topics
        self._more = more
        self._own = own
        self._clock = clock
        self._asked = Wakeup()
        self._waiting: list[Wakeup] = []
        self._seen: Sequence[TopicStats] = ()
        self._seen_at = -FRESH
        self._names: list[str] = []
        self._named_at = -NAMES_FRESH
        self._too_many = False

    async def look(self) -> Sequence[TopicStats]:
        """Return the state of topics; empty if Redis does not answer soon."""
        if self._clock.now() - self._seen_at >= FRESH:
            answered = Wakeup()
            self._waiting.append(answered)
            self._asked.set()
            await self._clock.wait(answered, PATIENCE)
            if answered in self._waiting:
                self._waiting.remove(answered)
                return ()
        return self._seen

    async def run(self) -> None:
        """Read on demand until cancelled."""
        while True:
            await self._asked.wait()
            await self.step()

    async def step(self) -> None:
        """Read once."""
        try:
            seen: Sequence[TopicStats] = await self._topics.overview(await self._which())
            self._seen = [await self._completed(stats) for stats in seen]
        except StoreError as failure:
            self._seen = ()
            log.debug("topics could not be looked at", extra={"reason": str(failure)})
        except Exception:  # whatever it is, it must not end the loop
            self._seen = ()
            log.exception("topics could not be looked at")
        self._seen_at = self._clock.now()
        waiting, self._waiting = self._waiting, []
        for answered in waiting:
            answered.set()

    async def _completed(self, stats: TopicStats) -> TopicStats:
        """Add the state of the topic's list or stream, unless Redis refuses that: the rest is valid without
        it."""
        try:
            return stats if self._more is None else await self._more(stats)
        except StoreUnavailable:
            raise
        except StoreError as failure:
            log.debug("a topic could not be looked at", extra={"topic": stats.topic, "reason": str(failure)})
            return stats

    async def _which(self) -> list[str]:
        if self._clock.now() - self._named_at >= NAMES_FRESH:
            self._names = await self._topics.topics()
            self._named_at = self._clock.now()
        names = list(dict.fromkeys((*sorted(self._own()), *self._names)))
        if len(names) > MOST and not self._too_many:
            self._too_many = True
            log.warning(
                "there are more topics than the metrics can look at; those of other relays are left out",
                extra={"topics": len(names), "looked_at": MOST},
            )
        return names[:MOST]
