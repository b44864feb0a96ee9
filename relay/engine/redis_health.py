"""Tracks whether Redis answers: one view of each place for all loops, one log line per change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeVar

import anyio

from relay.core.errors import DurabilityMissed, GivenUp, StoreError, StoreUnavailable
from relay.core.loop.wakeup import Wakeup
from relay.core.pacing import FailureBackoff, Jitter
from relay.core.ports import Places
from relay.engine.clock import Clock
from relay.engine.lanes import Lanes
from relay.telemetry.metrics.catalogue import STORE_ERRORS
from relay.telemetry.metrics.instruments import Instruments

T = TypeVar("T")

REFUSED_WAIT = 5.0
"""Seconds to wait after Redis refused a call, such as for a key of the wrong type."""

PING_AFTER = 5.0
"""Seconds without an answer from a place after which it is pinged."""

log = logging.getLogger(__name__)


class PlaceHealth:
    """Whether one place answers, as calls and pings tell. It is a lane; see `Lanes`.

    While the place is away only pings are sent to it, less and less often. A ping that is answered lets the
    loops try again. The place is back once a loop's call works, or once a second ping works with no failed
    call in between: a replica answers pings and refuses everything else.
    """

    def __init__(
        self, place: str, places: Places, clock: Clock, instruments: Instruments, jitter: Jitter
    ) -> None:
        self.place = place
        self._places = places
        self._clock = clock
        self._instruments = instruments
        self._backoff = FailureBackoff(jitter)
        self.last_word = clock.now()
        """When the place last answered, by the engine's clock."""
        self._wait = 0.0
        self._refuted = False
        self._alarm = Wakeup()
        self.trouble: str | None = None
        self._late = False
        """Whether the last word was of a call that came too late."""
        self.tries = 0
        """How often the loops were let try again."""
        self.news = anyio.Event()
        """Set, and replaced, when `tries` has grown, and when a topic has left."""
        self._forgotten = False
        self._about = {"node": place} if place else {}

    def worked(self) -> None:
        """Note that a call was answered."""
        self.last_word = self._clock.now()
        self._late = False
        if self.trouble is not None:
            log.warning("Redis is back", extra=self._about)
            self.trouble = None
            self._backoff.worked()
            self._let_retry()

    def failed(self, failure: StoreError) -> None:
        """Note that a call was not answered. One that was given up has had its time elsewhere: with a relay
        that stood still, or on its way. It does not say that the place is away."""
        if isinstance(failure, GivenUp):
            self._came_late(failure)
            return
        self._refuted = True
        self._away(failure)
        self._alarm.set()

    def _came_late(self, failure: GivenUp) -> None:
        self._instruments.count(STORE_ERRORS, type(failure).__name__)
        if not self._late:
            log.warning(
                "a call was too late for Redis, and had no effect; trying again",
                extra={**self._about, "reason": str(failure)},
            )
            self._late = True

    def _away(self, failure: StoreError) -> None:
        self._instruments.count(STORE_ERRORS, type(failure).__name__)
        if self._forgotten:
            return
        if self.trouble is None:
            log.error(
                "Redis is away; trying again until it is back", extra={**self._about, "reason": str(failure)}
            )
            self._wait = self._backoff.failed()
        self.trouble = str(failure)

    def forget(self) -> None:
        """Note that no topic is here any more: what still fails here is not logged."""
        self._forgotten = True
        if self.trouble is not None:
            log.warning("no topic is at the node any more that was away", extra=self._about)

    def leave(self, topic: str, lane: PlaceHealth) -> bool:
        """Let those who wait on behalf of the topic look where it is now."""
        self._tell()
        return True

    def _let_retry(self) -> None:
        self.tries += 1
        self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Ping if it is time, otherwise wait until it may be."""
        if self.trouble is None:
            quiet = self._clock.now() - self.last_word
            if quiet < PING_AFTER:
                await self._clock.wait(self._alarm, PING_AFTER - quiet)
                return
        else:
            await self._clock.sleep(self._wait)
        try:
            await self._places.ping(self.place)
        except StoreUnavailable as failure:
            self._away(failure)
            self._wait = self._backoff.failed()
        except StoreError:
            self._answered()  # a refusal, for instance for a missing permission, is a sign of life
        else:
            self._answered()

    def _answered(self) -> None:
        if self._refuted:
            self._refuted = False
            self._wait = self._backoff.failed()
            self._let_retry()
        else:
            self.worked()


class RedisHealth:
    """Learns from every loop how its calls went, and pings each place while nobody else talks to it.

    It knows the places of the topics that were named to it, and the one of what belongs to no topic.
    """

    def __init__(
        self, places: Places, clock: Clock, instruments: Instruments, jitter: Jitter = random
    ) -> None:
        self._clock = clock
        self._instruments = instruments
        self._views: Lanes[PlaceHealth] = Lanes(
            places,
            lambda place: PlaceHealth(place, places, clock, instruments, jitter),
            PlaceHealth.forget,
            where=places.of,
        )
        self.run = self._views.run
        self._views[""]  # of what belongs to no topic: there is always something to ping

    def of(self, topic: str) -> PlaceHealth:
        """The view of the topic's place. Ask for it before a call: when that has failed, the topic may have
        another place."""
        return self._views[topic]

    async def noted(self, topic: str, call: Awaitable[T]) -> T:
        """Make a producer's call about the topic, and note whether Redis answered. Returns the call's answer,
        or raises its error."""
        health = self.of(topic)
        try:
            answer = await call
        except GivenUp:
            raise  # it came too late for its caller, which says nothing of Redis
        except DurabilityMissed as failure:  # Redis has answered, and others find out whether it still does
            self._instruments.count(STORE_ERRORS, type(failure).__name__)
            raise
        except StoreUnavailable as failure:
            self.failed(topic, failure, health)
            raise
        health.worked()
        return answer

    def failed(self, topic: str, failure: StoreUnavailable, asked: PlaceHealth) -> None:
        """Note that a call about the topic was not answered. `asked` is the topic's view before it; away is
        the node that the call was sent on to, if the topic is there by now."""
        view = self.of(failure.partition or topic)
        if not failure.partition and view.place != failure.place:
            view = asked  # also where a slot is on its way: nobody would be waited for otherwise
        view.failed(failure)

    def refused(self, sentence: str, failure: Exception, *, said: bool = False, **about: object) -> None:
        """Count what Redis refuses, and would refuse again; log it unless it was `said` already."""
        self._instruments.count(STORE_ERRORS, type(failure).__name__)
        if not said:
            log.error(
                sentence,
                extra={**about, "reason": str(failure)},
                exc_info=None if isinstance(failure, StoreError) else failure,
            )

    async def insist(self, topic: str, call: Callable[[], Awaitable[T]], sentence: str) -> T:
        """Make a call about the topic again and again until it is answered; return the answer. The log says
        once, by the sentence, that Redis refuses it."""
        said = False
        while True:
            try:
                return await self.noted(topic, call())
            except StoreUnavailable:
                await self.pause(topic)
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
                self.refused(sentence, failure, said=said, topic=topic)
                said = True
                await self._clock.sleep(REFUSED_WAIT)

    async def pause(self, topic: str) -> None:
        """Wait until a further try makes sense, after a call about the topic was not answered. A topic that
        has another place by now is tried there at once."""
        view = self._views[topic]
        tries = view.tries
        while view.trouble is not None and view.tries == tries and self._views[topic] is view:
            await view.news.wait()

    def answers(self, topic: str) -> bool:
        """Whether the place of the topic is not known to be away."""
        return self._views[topic].trouble is None

    @property
    def views(self) -> list[PlaceHealth]:
        """The places that this relay knows of."""
        return self._views.all

    @property
    def trouble(self) -> str | None:
        """Why no place answers; None while one does."""
        troubles = [view.trouble for view in self.views]
        told = [trouble for trouble in troubles if trouble is not None]
        return "; ".join(dict.fromkeys(told)) if len(told) == len(troubles) else None
