"""Takes outcomes and receipts on their way to the store, where many are written in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat

from relay.core.loop.wakeup import Wakeup
from relay.core.policy import TopicPolicy
from relay.core.ports import Places, SourceOf
from relay.engine.clock import Clock
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.leases import Lease, by_claim
from relay.engine.delivery.session import Session
from relay.engine.delivery.settler_lane import MAX_BYTES, SettlerLane, SettlingParts
from relay.engine.delivery.shown_rates import ShownRates
from relay.engine.lanes import Lanes
from relay.engine.redis_health import RedisHealth
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.tracing import Tracing

RECEIPT_DELAY = 0.005  # see 0030
"""Seconds that a receipt waits for its outcome. Most handlers are done by then, so the receipt need not be
written."""


class Settler:  # see 0014
    """Gathers settlements and receipts per partition while a call is under way, and writes them. Partitions
    of one place wait for each other, and for no others.

    A call has one operation per timer: the end of a lease drops the receipt that still waits, and a
    second lease on the same timer waits for the next call. While Redis is away everything stays
    here and is tried again: a token does not age, and holds until somebody else takes the timer.

    Settlements are written at once, receipts after `RECEIPT_DELAY`: the relay itself knows them, and
    only a relay that dies within that time loses that knowledge.
    """

    def __init__(
        self,
        source_of: SourceOf,
        places: Places,
        policy: Callable[[str], TopicPolicy],
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
        tracing: Tracing,
    ) -> None:
        self._clock = clock
        self._instruments = instruments
        self._written = Wakeup()
        parts = SettlingParts(source_of, policy, redis_health, clock, instruments, tracing, self._written)
        self._lanes: Lanes[SettlerLane] = Lanes(places, lambda place: SettlerLane(place, parts, self._lanes))
        self.run = self._lanes.run
        self.rates = ShownRates()

    def settle(self, ends: EndedLeases) -> None:
        """End leases; their session learns for which of them that changes nothing."""
        leases, session = ends.leases, ends.session
        partition = leases.partition
        lane = self._lanes[partition]
        receipts = lane.receipts.get(partition)
        if receipts is not None:
            for place in ends.places:
                receipts.pop((leases, place), None)
            if not receipts:
                del lane.receipts[partition]
        waiting = lane.ends.setdefault(partition, [])
        if ends.moved_bytes <= MAX_BYTES:  # as most do
            waiting.append(ends)
        else:
            waiting.extend(ends.parts(MAX_BYTES))
        if session is not None:
            session.unwritten += len(ends.places)
            self._count_handled(ends)
        lane.wakeup.set()

    def _count_handled(self, ends: EndedLeases) -> None:
        now, sent_at, traces = self._clock.now(), ends.leases.sent_at, ends.leases.traces
        self.rates.ended(ends.leases.topic, len(ends.places), sent_at, now)
        found = [traces[place].span_context for place in ends.places if place in traces] if traces else []
        spans = [span for span in found if span is not None]
        self._instruments.handled(ends.leases.topic, now - sent_at, len(ends.places), spans)

    def receipts(self, received: Iterable[Lease], session: Session) -> None:  # see 0002
        """Record that the application received deliveries; `session` learns if a lease is lost."""
        for leases, places in by_claim(received).items():
            lane = self._lanes[leases.partition]
            if not lane.receipts:
                lane.receipts_at = self._clock.now() + RECEIPT_DELAY
                lane.wakeup.set()
            receipts = lane.receipts.setdefault(leases.partition, {})
            receipts.update(dict.fromkeys(zip(repeat(leases), places), session))

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return all(lane.idle for lane in self._lanes.all)

    @property
    def unwritten(self) -> int:
        """The number of ends of leases that are not in Redis yet."""
        return sum(lane.unwritten for lane in self._lanes.all)

    async def flush(self, session: Session | None = None) -> None:
        """Wait until all settlements, or all of the session's, are written."""
        while session.unwritten if session is not None else not self.idle:
            await self._written.wait()
