"""Writes outcomes and receipts to the store, many in one call."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat

from relay.core.errors import GivenUp, StoreUnavailable
from relay.core.instants import micros
from relay.core.outcomes import Ending, Extension, Reason, Settled, Verb, Verdict
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, SourceOf
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.leases import Lease, Leases, by_claim
from relay.engine.delivery.session import Problem, Session
from relay.engine.redis_health import RedisHealth
from relay.engine.reports.dead_letter_reports import report_deaths
from relay.telemetry.metrics.catalogue import RELEASED, SETTLED, STALE
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.spans import DeliveryTrace
from relay.telemetry.traces.tracing import Tracing

MAX_BYTES = 4 << 20
"""The approximate limit of content bytes in one call: new content, and the content of timers that die."""

RECEIPT_DELAY = 0.005  # see 0030
"""Seconds that a receipt waits for its outcome. Most handlers are done by then, so the receipt need not be
written."""

log = logging.getLogger(__name__)

REFUSED = "Redis refuses to settle; the timers will be delivered again"
"""And would again: these leases are left to run out."""

OK = Verdict.OK  # a lookup for each call is expensive: Python 3.11's enums do it in Python
PROBLEMS = {Verdict.STALE: Problem.STALE, Verdict.GONE: Problem.GONE}


class Settler:  # see 0014
    """Gathers settlements and receipts per topic while a call is under way, and writes them.

    A call has one operation per timer: the end of a lease drops the receipt that still waits, and a
    second lease on the same timer waits for the next call. While Redis is away everything stays
    here and is tried again: a token does not age, and holds until somebody else takes the timer.

    Settlements are written at once, receipts after `RECEIPT_DELAY`: the relay itself knows them, and
    only a relay that dies within that time loses that knowledge.
    """

    def __init__(
        self,
        source_of: SourceOf,
        policy: Callable[[str], TopicPolicy],
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
        tracing: Tracing,
    ) -> None:
        self._source_of = source_of
        self._policy = policy
        self._redis_health = redis_health
        self._clock = clock
        self._instruments = instruments
        self._tracing = tracing
        self._ends: dict[str, list[EndedLeases]] = {}
        self._receipts: dict[str, dict[tuple[Leases, int], Session]] = {}
        self._receipts_at = math.inf
        """When the receipts must be written, while there are any."""
        self._wakeup = Wakeup()
        self._written = Wakeup()
        self._writing = 0

    def settle(self, ends: EndedLeases) -> None:
        """End leases; their session learns for which of them that changes nothing."""
        leases, session = ends.leases, ends.session
        receipts = self._receipts.get(leases.topic)
        if receipts is not None:
            for place in ends.places:
                receipts.pop((leases, place), None)
            if not receipts:
                del self._receipts[leases.topic]
        waiting = self._ends.setdefault(leases.topic, [])
        if ends.moved_bytes <= MAX_BYTES:  # as most do
            waiting.append(ends)
        else:
            waiting.extend(ends.parts(MAX_BYTES))
        if session is not None:
            session.unwritten += len(ends.places)
            self._count_handled(ends)
        self._wakeup.set()

    def _count_handled(self, ends: EndedLeases) -> None:
        took, traces = self._clock.now() - ends.leases.sent_at, ends.leases.traces
        found = [traces[place].span_context for place in ends.places if place in traces] if traces else []
        spans = [span for span in found if span is not None]
        self._instruments.handled(ends.leases.topic, took, len(ends.places), spans)

    def receipts(self, received: Iterable[Lease], session: Session) -> None:  # see 0002
        """Record that the application received deliveries; `session` learns if a lease is lost."""
        for leases, places in by_claim(received).items():
            if not self._receipts:
                self._receipts_at = self._clock.now() + RECEIPT_DELAY
                self._wakeup.set()
            receipts = self._receipts.setdefault(leases.topic, {})
            receipts.update(dict.fromkeys(zip(repeat(leases), places), session))

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not (self._ends or self._receipts or self._writing)

    @property
    def unwritten(self) -> int:
        """The number of ends of leases that are not in Redis yet."""
        return sum(map(_count, self._ends.values())) + self._writing

    async def flush(self, session: Session | None = None) -> None:
        """Wait until all settlements, or all of the session's, are written."""
        while session.unwritten if session is not None else not self.idle:
            await self._written.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            until_receipts = self._receipts_at - self._clock.now() if self._receipts else math.inf
            if not self._ends and until_receipts > 0:
                await self._clock.wait(self._wakeup, until_receipts)
            await self.step()

    async def step(self) -> None:
        """Make one call of each kind for each topic that has something to write now."""
        topic = ""
        try:
            for topic in list(self._ends):
                await self._write_ends(topic)
            if self._clock.now() < self._receipts_at:
                return
            for topic in list(self._receipts):
                if topic in self._receipts:  # otherwise their ends overtook them
                    await self._write_receipts(topic)
        except StoreUnavailable as failure:
            self._redis_health.failed(topic, failure)
            await self._redis_health.pause(topic)

    async def _write_ends(self, topic: str) -> None:
        batch = self._take(topic)
        began = time.time_ns()
        try:
            results = await self._source_of(topic).settle(topic, batch, limits=self._policy(topic).limits)
        except StoreUnavailable as failure:
            for ends in batch:
                ends.tried |= not isinstance(failure, GivenUp)
            self._ends[topic] = batch + self._ends.get(topic, [])
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._redis_health.refused(REFUSED, failure, topic=topic, count=_count(batch))
            self._trace(topic, batch, [OK] * _count(batch), began, error=type(failure).__name__)
        else:
            self._redis_health.worked(topic)
            self._report(topic, batch, results)
            self._trace(topic, batch, results, began)
        finally:
            self._writing = 0
        for ends in batch:
            if ends.session is not None:
                ends.session.unwritten -= len(ends.places)
        self._written.set()

    def _take(self, topic: str) -> list[EndedLeases]:
        """Take as many ends as fit into a call, in their order. Those of a timer that is among them already
        wait for the next call."""
        waiting = self._ends.pop(topic)
        taken: list[EndedLeases] = []
        left: list[EndedLeases] = []
        names: set[str] = set()
        count = size = 0
        for at, ends in enumerate(waiting):
            count, size = count + len(ends.places), size + ends.moved_bytes
            if taken and (count > MAX_PER_CALL or size > MAX_BYTES):
                left += waiting[at:]
                break
            (taken if names.isdisjoint(ends.timer_ids) else left).append(ends)
            names.update(ends.timer_ids)
        if left:
            self._ends[topic] = left
        self._writing = _count(taken)
        return taken

    def _report(self, topic: str, batch: list[EndedLeases], results: list[Settled]) -> None:
        counts: Counter[str] = Counter()
        deaths: list[tuple[str, str]] = []
        for ends in batch:
            counts[ends.ending.verb.value] += len(ends.places)
        stale = 0
        for n, (ends, place) in enumerate(_places(batch) if results.count(OK) < len(results) else ()):
            result = results[n]
            if isinstance(result, Reason):
                deaths.append((ends.leases[place].timer_id, result.value))
            # After a try whose reply was lost, "gone" or "stale" may be the effect of that try.
            elif result is not OK and not ends.tried:
                stale += 1
                counts[ends.ending.verb.value] -= 1
                if ends.session is not None:
                    ends.session.complain(ends.leases.tokens[place], PROBLEMS[result])
        for outcome, count in counts.items():
            if outcome == Verb.RELEASE.value:
                self._instruments.count(RELEASED, topic, n=count)
            else:
                self._instruments.count(SETTLED, topic, outcome, n=count)
        self._instruments.count(STALE, topic, n=stale)
        report_deaths(topic, deaths, self._instruments)

    def _trace(
        self, topic: str, batch: list[EndedLeases], results: Sequence[Settled], began: int, error: str = ""
    ) -> None:
        if not any(ends.leases.traces for ends in batch):
            return
        traced: list[tuple[DeliveryTrace, Ending, Settled]] = [
            (trace, ends.ending, OK if ends.tried else result)
            for (ends, place), result in zip(_places(batch), results, strict=True)
            if (trace := ends.leases.traces.get(place)) is not None
        ]
        if traced:
            self._tracing.settled(topic, began, traced, count=len(results), error=error)

    async def _write_receipts(self, topic: str) -> None:
        receipts = self._receipts[topic]
        batch: dict[str, tuple[Lease, Session]] = {}
        for (leases, place), session in islice(receipts.items(), MAX_PER_CALL):
            batch.setdefault(leases.timers.timer_ids[place], (leases[place], session))
        for lease, _ in batch.values():
            del receipts[lease]
        if not receipts:
            del self._receipts[topic]
        policy = self._policy(topic)
        extensions = [
            Extension(timer_id=name, nonce=lease.nonce, received=True) for name, (lease, _) in batch.items()
        ]
        # A receipt is written as a renewal, which must not prolong a lease if renewing is off.
        lease_time = micros(policy.lease_ttl) if policy.renew else 0
        self._writing = len(batch)
        try:
            verdicts = await self._source_of(topic).extend(topic, extensions, lease=lease_time)
        except StoreUnavailable:
            kept = self._receipts.setdefault(topic, {})
            # A settlement that came meanwhile makes the receipt unnecessary.
            kept.update(
                (lease, session) for lease, session in batch.values() if lease.token in session.leases
            )
            if not kept:
                del self._receipts[topic]
                self._written.set()  # that may have been all: those who wait look once `_writing` is 0
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._redis_health.refused(REFUSED, failure, topic=topic, count=len(batch))
        else:
            self._redis_health.worked(topic)
            for (lease, session), verdict in zip(batch.values(), verdicts, strict=True):
                if verdict is not Verdict.OK:
                    session.lose(lease.token, PROBLEMS[verdict])
        finally:
            self._writing = 0
        self._written.set()


def _count(some: Iterable[EndedLeases]) -> int:
    """The number of leases."""
    return sum(len(ends.places) for ends in some)


def _places(batch: Iterable[EndedLeases]) -> Iterator[tuple[EndedLeases, int]]:
    """All ends one by one, in the order of the answer."""
    return ((ends, place) for ends in batch for place in ends.places)
