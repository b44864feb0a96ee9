"""Writes outcomes and receipts to the store, many in one call."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from relay.core.errors import StoreUnavailable
from relay.core.instants import micros
from relay.core.outcomes import Acknowledged, Extension, Reason, Settled, Settlement, Verb, Verdict
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, SourceOf
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
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

PROBLEMS = {Verdict.STALE: Problem.STALE, Verdict.GONE: Problem.GONE}


class _End(NamedTuple):
    """The end of a lease: a settlement, or an ACK if there is none. `session` learns if it changes
    nothing."""

    settlement: Settlement | None
    session: Session | None

    @property
    def verb(self) -> Verb:
        """The verb under which it counts."""
        return Verb.ACK if self.settlement is None else self.settlement.verb


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
        self._ends: dict[str, dict[Lease, _End]] = {}
        self._tried: set[Lease] = set()
        """The ends that an earlier try may have written already."""
        self._receipts: dict[str, dict[Lease, Session]] = {}
        self._receipts_at = math.inf
        """When the receipts must be written, while there are any."""
        self._wakeup = Wakeup()
        self._written = Wakeup()
        self._writing = 0

    def settle(self, lease: Lease, settlement: Settlement, session: Session | None = None) -> None:
        """End a lease; `session` learns if that changes nothing."""
        self._gather([lease], _End(settlement, session))

    def acknowledge(self, leases: Sequence[Lease], session: Session) -> None:
        """End leases by an ACK; `session` learns for which leases that changes nothing."""
        self._gather(leases, _End(None, session))

    def _gather(self, ended: Sequence[Lease], end: _End) -> None:
        for leases, some in by_claim(ended):
            receipts = self._receipts.get(leases.topic)
            if receipts is not None:
                for lease in some:
                    receipts.pop(lease, None)
                if not receipts:
                    del self._receipts[leases.topic]
            self._ends.setdefault(leases.topic, {}).update(dict.fromkeys(some, end))
            if end.session is not None:
                end.session.unwritten += len(some)
                self._count_handled(leases, some)
        if ended:
            self._wakeup.set()

    def _count_handled(self, leases: Leases, ended: Sequence[Lease]) -> None:
        took = self._clock.now() - leases.sent_at
        traces = leases.traces
        spans = [span for _, place in ended if place in traces and (span := traces[place].span_context)]
        self._instruments.handled(leases.topic, took, len(ended), spans)

    def receipts(self, received: Iterable[Lease], session: Session) -> None:  # see 0002
        """Record that the application received deliveries; `session` learns if a lease is lost."""
        for leases, some in by_claim(received):
            if not self._receipts:
                self._receipts_at = self._clock.now() + RECEIPT_DELAY
                self._wakeup.set()
            self._receipts.setdefault(leases.topic, {}).update(dict.fromkeys(some, session))

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not (self._ends or self._receipts or self._writing)

    @property
    def unwritten(self) -> int:
        """The number of ends of leases that are not in Redis yet."""
        return sum(map(len, self._ends.values())) + self._writing

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
        try:
            for topic in list(self._ends):
                await self._write_ends(topic)
            if self._clock.now() < self._receipts_at:
                return
            for topic in list(self._receipts):
                if topic in self._receipts:  # otherwise their ends overtook them
                    await self._write_receipts(topic)
        except StoreUnavailable as failure:
            self._redis_health.failed(failure)
            await self._redis_health.pause()

    async def _write_ends(self, topic: str) -> None:
        batch = self._take(topic)
        began = time.time_ns()
        try:
            results = await self._source_of(topic).settle(
                topic,
                [end.settlement for end in batch.values() if end.settlement is not None],
                acknowledged=_acknowledged(batch),
                limits=self._policy(topic).limits,
            )
        except StoreUnavailable:
            self._tried.update(batch)
            self._ends[topic] = batch | self._ends.get(topic, {})
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._redis_health.refused(REFUSED, failure, topic=topic, count=len(batch))
            self._trace(topic, batch, [Verdict.OK] * len(batch), began, error=type(failure).__name__)
        else:
            self._redis_health.worked()
            self._report(topic, batch, results)
            self._trace(topic, batch, results, began)
        finally:
            self._writing = 0
        self._tried.difference_update(batch)
        for end in batch.values():
            if end.session is not None:
                end.session.unwritten -= 1
        self._written.set()

    def _take(self, topic: str) -> dict[Lease, _End]:
        """Take as many ends as fit into a call, each timer once, in the order of the answer: ACKs come
        last."""
        ends = self._ends[topic]
        batch: dict[str, tuple[Lease, _End]] = {}
        size = 0
        for lease, end in islice(ends.items(), MAX_PER_CALL):
            if end.settlement is not None:
                size += _moved_bytes(lease, end.settlement)
                if batch and size > MAX_BYTES:
                    break
            leases, place = lease
            batch.setdefault(leases.timers.timer_ids[place], (lease, end))
        taken = {lease: end for lease, end in batch.values() if end.settlement is not None}
        taken.update(item for item in batch.values() if item[1].settlement is None)
        for lease in taken:
            del ends[lease]
        if not ends:
            del self._ends[topic]
        self._writing = len(taken)
        return taken

    def _report(self, topic: str, batch: dict[Lease, _End], results: list[Settled]) -> None:
        counts: Counter[Verb] = Counter()
        acknowledged = 0
        deaths: list[tuple[str, str]] = []
        ok = Verdict.OK
        for (lease, end), result in zip(batch.items(), results, strict=True):
            if result is ok and end.settlement is None:  # these are by far the most
                acknowledged += 1
                continue
            # After a try whose reply was lost, "gone" or "stale" may be the effect of that try.
            if result is ok or lease in self._tried or isinstance(result, Reason):
                counts[end.verb] += 1
            elif end.session is not None:
                end.session.complain(lease.token, PROBLEMS[result])
            if isinstance(result, Reason):
                deaths.append((lease.timer_id, result.value))
        counts[Verb.ACK] += acknowledged
        for outcome, count in counts.items():
            if outcome is Verb.RELEASE:
                self._instruments.count(RELEASED, topic, n=count)
            else:
                self._instruments.count(SETTLED, topic, outcome.value, n=count)
        self._instruments.count(STALE, topic, n=len(batch) - counts.total())
        report_deaths(topic, deaths, self._instruments)

    def _trace(
        self, topic: str, batch: dict[Lease, _End], results: Sequence[Settled], began: int, error: str = ""
    ) -> None:
        ends: list[tuple[DeliveryTrace, Settlement, Settled]] = [
            (
                trace,
                end.settlement or Settlement(lease.timer_id, lease.nonce, Verb.ACK),
                Verdict.OK if lease in self._tried else result,
            )
            for (lease, end), result in zip(batch.items(), results, strict=True)
            if (trace := lease.leases.traces.get(lease.place))
            is not None  # inlined, since hardly any has one
        ]
        if ends:
            self._tracing.settled(topic, began, ends, count=len(batch), error=error)

    async def _write_receipts(self, topic: str) -> None:
        receipts = self._receipts[topic]
        batch: dict[str, tuple[Lease, Session]] = {}
        for lease, session in islice(receipts.items(), MAX_PER_CALL):
            batch.setdefault(lease.timer_id, (lease, session))
        for lease, _ in batch.values():
            del receipts[lease]
        if not receipts:
            del self._receipts[topic]
        policy = self._policy(topic)
        extensions = [Extension(name, lease.nonce, received=True) for name, (lease, _) in batch.items()]
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
            self._redis_health.worked()
            for (lease, session), verdict in zip(batch.values(), verdicts, strict=True):
                if verdict is not Verdict.OK:
                    session.lose(lease.token, PROBLEMS[verdict])
        finally:
            self._writing = 0
        self._written.set()


def _acknowledged(batch: Mapping[Lease, _End]) -> list[Acknowledged]:
    proven = [
        (leases.nonces[place], leases.timers.timer_ids[place])
        for (leases, place), end in batch.items()
        if end.settlement is None
    ]
    return [
        Acknowledged(nonce, [name for _, name in alike]) for nonce, alike in groupby(proven, itemgetter(0))
    ]


def _moved_bytes(lease: Lease, settlement: Settlement) -> int:
    """Return the bytes of content that may have to move for an end that is not an ACK: only Redis knows
    whether a NACK or a RELEASE is a death."""
    if settlement.verb is Verb.RESCHEDULE:
        return len(settlement.again.payload) if settlement.again and settlement.new_content else 0
    return lease.size
