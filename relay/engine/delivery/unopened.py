"""What becomes of claimed timers whose sealed content does not open."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relay.core.instants import SECOND
from relay.core.outcomes import Ending, Reason, Verb
from relay.core.pacing import Jitter
from relay.core.timers import Claim
from relay.engine.clock import Clock
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.leases import Leases
from relay.engine.delivery.settler import Settler
from relay.engine.reports.throttled_log import ThrottledLog
from relay.telemetry.metrics.catalogue import PARKED, UNDELIVERABLE
from relay.telemetry.metrics.instruments import Instruments

SHORTEST, LONGEST = SECOND, 60 * SECOND
"""How long a timer is put aside at least and at most whose key is missing, in microseconds: as long as it is
overdue by then, so that many of them take little of the time of others."""

BEHIND = 1.0
"""Seconds for which a relay that lacks a key leaves the topic's timers to others when they are due. One that
has the key claims them by then."""

REMEMBERED = 2 * LONGEST / SECOND
"""Seconds for which it does, after the last timer that did not open: until then, those that were put aside
have come again."""

INTERVAL = 60.0
"""Seconds between two log lines for a topic and a key."""

log = logging.getLogger(__name__)


class UnopenedTimers:  # see 0112
    """Puts aside those whose key is missing, without an attempt, and buries those that somebody has changed,
    or whose subject was forgotten.

    Another relay may have the key, and this one may get it: nothing is lost by waiting. What was sealed for
    another timer, or is changed, never opens; nor does what was sealed for a subject that was forgotten.

    Two relays that wake for the same timers, of which one lacks the key, have a race: whenever that one is
    quicker, it puts them aside for longer. So from the first such timer on it stays `behind` in the topic.
    """

    def __init__(self, settler: Settler, instruments: Instruments, clock: Clock, jitter: Jitter) -> None:
        self._settler = settler
        self._instruments = instruments
        self._jitter = jitter
        self._clock = clock
        self._missed: dict[str, float] = {}
        """When a key was missing last, by topic."""
        self._throttled = ThrottledLog(clock, INTERVAL)

    def behind(self, topic: str) -> float:
        """For how many seconds to leave a topic's timers to other relays."""
        missed = self._missed.get(topic)
        if missed is None:
            return 0.0
        if self._clock.now() < missed + REMEMBERED:
            return BEHIND
        del self._missed[topic]
        return 0.0

    def keys_changed(self) -> None:
        """Take this relay for one that has all keys, until a timer says otherwise. What a claim has brought
        is read and taken (`take`) in one go, so no timer from before the change says it afterwards."""
        self._missed.clear()

    def take(self, leases: Leases, places: Sequence[int], claim: Claim) -> None:
        """End the leases at these places, whose contents do not open."""
        topic, timers = leases.topic, claim.timers
        missing: dict[str, list[int]] = {}
        forgotten: list[int] = []
        for place in places:
            why = timers.unopened[place]
            if why is not None and why.forgotten:
                forgotten.append(place)
                continue
            if why is not None and not why.tampered:
                missing.setdefault(why.key_id, []).append(place)
                continue
            log.error(
                "timer can't be delivered: its content was sealed for another timer, or somebody changed it",
                extra={"topic": topic, "timer_id": ascii(timers.timer_ids[place])},
            )
            self._instruments.count(UNDELIVERABLE, topic)
            rejected = Ending(Verb.REJECT, reason=Reason.UNREADABLE, error=f"the content is {why}")
            self._settler.settle(EndedLeases.of(leases, [place], rejected))
        if forgotten:
            over = Ending(Verb.REJECT, reason=Reason.FORGOTTEN, error="its subject was forgotten")
            self._settler.settle(EndedLeases.of(leases, forgotten, over))
        if missing:
            self._missed[topic] = self._clock.now()
        for key_id, those in missing.items():
            self._instruments.count(PARKED, topic, n=len(those))
            if count := self._throttled.add(f"{topic} {key_id}", len(those)):
                log.error(
                    "timers are put aside: the key that they are sealed with is missing",
                    extra={"topic": topic, "key": key_id, "count": count},
                )
            for place in those:
                late = min(max(claim.now - timers.dues[place], SHORTEST), LONGEST)
                wait = late // 2 + round(late / 2 * self._jitter())
                aside = Ending(Verb.RELEASE, retry_after=wait, unsent=True)
                self._settler.settle(EndedLeases.of(leases, [place], aside))
