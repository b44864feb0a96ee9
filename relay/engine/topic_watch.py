"""The state of topics in Redis, for the metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.loop.wakeup import Wakeup
from relay.core.ports import MAX_PER_CALL, Places, TopicStore
from relay.core.timers import TopicStats
from relay.engine.clock import Clock
from relay.engine.lanes import Lanes

FRESH = 1.0
"""Seconds for which one read serves everybody."""

PATIENCE = 0.5
"""Seconds that a reader waits; after that it gets nothing, as while Redis is away."""

NAMES_FRESH = 60.0
"""Seconds after which the names of all topics are read again. This relay's own are known at once."""

MOST = MAX_PER_CALL
"""The most topics that are read, this relay's own first: that takes Redis some milliseconds."""

log = logging.getLogger(__name__)


class PlaceWatch:
    """What was read of the topics of one place: one read serves all who ask meanwhile and for 1 s after. It
    is a lane; see `Lanes`."""

    def __init__(
        self, place: str, read: Callable[[PlaceWatch], Awaitable[Sequence[TopicStats]]], clock: Clock
    ) -> None:
        self.place = place
        self._read = read
        self._clock = clock
        self._asked = Wakeup()
        self._waiting: list[Wakeup] = []
        self.seen: Sequence[TopicStats] = ()
        self.failed = False
        """Whether the latest read has."""
        self._seen_at = -FRESH

    def ask(self, answered: Wakeup) -> None:
        """Read, unless what was read is fresh; set `answered` when that is done."""
        if self._clock.now() - self._seen_at >= FRESH:
            self._waiting.append(answered)
            self._asked.set()

    def owes(self, answered: Wakeup) -> bool:
        """Whether the read is not done yet that this reader has asked for."""
        return answered in self._waiting

    def leave(self, topic: str, lane: PlaceWatch) -> bool:
        """See `Lane.leave`: nothing waits for a single topic."""
        return True

    async def run(self) -> None:
        """Read on demand until cancelled."""
        while True:
            await self._asked.wait()
            await self.step()

    async def step(self) -> None:
        """Read once."""
        try:
            self.seen, self.failed = await self._read(self), False
        except StoreError as failure:
            self.seen, self.failed = (), True
            log.debug("topics could not be looked at", extra={"reason": str(failure)})
        except Exception:  # whatever it is, it must not end the loop
            self.seen, self.failed = (), True
            log.exception("topics could not be looked at")
        self._seen_at = self._clock.now()
        waiting, self._waiting = self._waiting, []
        for answered in waiting:
            answered.set()


class TopicWatch:  # see 0034
    """Reads on demand, each place by itself, with one pipelined read.

    The read is a task of its own, so that a reader who gives up leaves no call half done.
    """

    def __init__(
        self,
        topics: TopicStore,
        places: Places,
        own: Callable[[], Iterable[str]],
        answers: Callable[[str], bool],
        clock: Clock,
        more: Callable[[TopicStats], Awaitable[TopicStats]] | None = None,
    ) -> None:
        """`own` are the topics that this relay works with; `answers` says whether a topic's place is not
        known to be away; `more` adds what the store's overview lacks."""
        self._topics = topics
        self._more = more
        self._own = own
        self._answers = answers
        self._clock = clock
        self._lanes: Lanes[PlaceWatch] = Lanes(places, lambda place: PlaceWatch(place, self._read, clock))
        self.run = self._lanes.run
        self._names: list[str] = []
        self._named_at = -NAMES_FRESH
        self._too_many = False
        self.silent: Sequence[str] = ()
        """The places that did not answer the latest look in time, or are known to be away; its topics are
        without theirs."""
        self.is_cut = False
        """Whether there are more topics than are looked at."""

    async def look(self, *, names_within: float = NAMES_FRESH) -> Sequence[TopicStats]:
        """Return the state of topics, without those of a place that does not answer soon. Names that were
        read more than `names_within` seconds ago are read again, if anything is."""
        if self._clock.now() - self._named_at >= names_within:
            self._named_at = -NAMES_FRESH
        answered, end = Wakeup(), self._clock.now() + PATIENCE
        answer = {self._lanes[topic]: self._answers(topic) for topic in ("", *self._which())}
        lanes = [lane for lane, answers in answer.items() if answers]
        for lane in lanes:
            lane.ask(answered)
        while any(lane.owes(answered) for lane in lanes) and (left := end - self._clock.now()) > 0:
            await self._clock.wait(answered, left)
        self.silent = [
            lane.place for lane in answer if lane not in lanes or lane.owes(answered) or lane.failed
        ]
        return [stats for lane in lanes if not lane.owes(answered) for stats in lane.seen]

    async def _read(self, lane: PlaceWatch) -> Sequence[TopicStats]:
        """Read the topics of a place, and first all names, where that place has them."""
        if lane is self._lanes[""] and self._clock.now() - self._named_at >= NAMES_FRESH:
            self._names = await self._topics.topics()
            self._named_at = self._clock.now()
        here = [topic for topic in self._which() if self._lanes[topic] is lane]
        return [await self._completed(stats) for stats in await self._topics.overview(here)]

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

    def _which(self) -> list[str]:
        names = list(dict.fromkeys((*sorted(self._own()), *self._names)))
        self.is_cut = len(names) > MOST
        if self.is_cut and not self._too_many:
            self._too_many = True
            log.warning(
                "there are more topics than the metrics can look at; those of other relays are left out",
                extra={"topics": len(names), "looked_at": MOST},
            )
        return names[:MOST]
