"""Writes outcomes and receipts back, many in one call."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import micros
from relay.core.outcomes import Extension, Reason, Settled, Settlement, Verb, Verdict
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, LeaseSource
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.engine.deaths import report_deaths
from relay.engine.lease import Lease
from relay.engine.link import Link
from relay.engine.session import Problem, Session
from relay.telemetry.instruments import Instruments
from relay.telemetry.spans import DeliveryTrace
from relay.telemetry.traces import Tracing

MAX_BYTES = 4 << 20
"""At most about so many bytes of content go through one call: new content, and that of timers which die."""

RECEIPT_DELAY = 0.005
"""Seconds that a receipt waits for its outcome. Most handlers are done by then, so it need not be written."""

log = logging.getLogger(__name__)

PROBLEMS = {Verdict.STALE: Problem.STALE, Verdict.GONE: Problem.GONE}


@dataclass(slots=True)
class _Waiting:
    """A settlement to be written. `tried`: an earlier try may have been written already."""

    lease: Lease
    settlement: Settlement
    session: Session | None
    tried: bool = False


class Settler:
    """Gathers settlements and receipts per topic while a call is under way, and writes them.

    One operation per timer and call: an end of a lease drops the receipt that still waits, and a
    second lease on the same timer waits for the next call. While Redis is away everything stays
    here and is tried again: a token does not age, it holds until somebody else takes the timer.

    Settlements are written at once, receipts after `RECEIPT_DELAY`: the relay itself knows of them, and
    only one that dies within that time takes the knowledge along.
    """

    def __init__(
        self,
        store: LeaseSource,
        policy: Callable[[str], TopicPolicy],
        link: Link,
        clock: Clock,
        instruments: Instruments,
        tracing: Tracing,
    ) -> None:
        self._store = store
        self._policy = policy
        self._link = link
        self._clock = clock
        self._instruments = instruments
        self._tracing = tracing
        self._ends: dict[str, dict[bytes, _Waiting]] = {}
        self._receipts: dict[str, dict[bytes, tuple[Lease, Session]]] = {}
        self._receipts_at = math.inf
        """When the receipts are to be written, while there are any."""
        self._wakeup = Wakeup()
        self._written = Wakeup()
        self._writing = 0

    def settle(self, lease: Lease, settlement: Settlement, session: Session | None = None) -> None:
        """End a lease; `session` hears of it if that changes nothing."""
        self._gather([_Waiting(lease, settlement, session)], session)

    def acknowledge(self, leases: Sequence[Lease], session: Session) -> None:
        """End leases by an ACK; `session` hears of those for which that changes nothing."""
        ack = Verb.ACK
        self._gather(
            [
                _Waiting(lease, Settlement(lease.timer.timer_id, lease.nonce, ack), session)
                for lease in leases
            ],
            session,
        )

    def _gather(self, ends: Sequence[_Waiting], session: Session | None) -> None:
        if not ends:
            return
        for waiting in ends:
            lease = waiting.lease
            receipts = self._receipts.get(lease.topic)
            if receipts is not None:
                receipts.pop(lease.token, None)
                if not receipts:
                    del self._receipts[lease.topic]
            self._ends.setdefault(lease.topic, {})[lease.token] = waiting
        if session is not None:
            session.unwritten += len(ends)
        self._wakeup.set()

    def receipts(self, leases: Iterable[Lease], session: Session) -> None:
        """Write down that the application received deliveries; `session` hears if a lease is lost."""
        for lease in leases:
            if not self._receipts:
                self._receipts_at = self._clock.now() + RECEIPT_DELAY
                self._wakeup.set()
            self._receipts.setdefault(lease.topic, {})[lease.token] = (lease, session)

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not (self._ends or self._receipts or self._writing)

    @property
    def unwritten(self) -> int:
        """How many ends of leases are not in Redis yet."""
        return sum(map(len, self._ends.values())) + self._writing

    async def flush(self, session: Session | None = None) -> None:
        """Until all of the session's settlements, or simply all, are written."""
        while session.unwritten if session is not None else not self.idle:
            await self._written.wait()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            until_receipts = self._receipts_at - self._clock.now() if self._receipts else math.inf
            if not self._ends and until_receipts > 0:
                await self._clock.wait(self._wakeup, until_receipts)
            await self.step()

    async def step(self) -> None:
        """One call of each kind for each topic that has something to write by now."""
        try:
            for topic in list(self._ends):
                await self._write_ends(topic)
            if self._clock.now() < self._receipts_at:
                return
            for topic in list(self._receipts):
                if topic in self._receipts:  # else they were overtaken meanwhile
                    await self._write_receipts(topic)
        except StoreUnavailable as failure:
            self._link.failed(failure)
            await self._link.pause()

    async def _write_ends(self, topic: str) -> None:
        batch = self._take(topic)
        began = time.time_ns()
        try:
            results = await self._store.settle(
                topic, [waiting.settlement for waiting in batch], limits=self._policy(topic).limits
            )
        except StoreUnavailable:
            for waiting in batch:
                waiting.tried = True
            ends = self._ends.setdefault(topic, {})
            self._ends[topic] = {waiting.lease.token: waiting for waiting in batch} | ends
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._drop(topic, len(batch), failure)
            self._trace(topic, batch, [Verdict.OK] * len(batch), began, error=type(failure).__name__)
        else:
            self._link.worked()
            self._report(topic, batch, results)
            self._trace(topic, batch, results, began)
        finally:
            self._writing = 0
        for waiting in batch:
            if waiting.session is not None:
                waiting.session.unwritten -= 1
        self._written.set()

    def _take(self, topic: str) -> list[_Waiting]:
        """Up to a call's worth, each timer once."""
        ends = self._ends[topic]
        batch: dict[str, _Waiting] = {}
        size, ack = 0, Verb.ACK
        for waiting in islice(ends.values(), MAX_PER_CALL):
            settlement = waiting.settlement
            if settlement.verb is not ack:
                size += _moved_bytes(waiting)
                if batch and size > MAX_BYTES:
                    break
            batch.setdefault(settlement.timer_id, waiting)
        for waiting in batch.values():
            del ends[waiting.lease.token]
        if not ends:
            del self._ends[topic]
        self._writing = len(batch)
        return list(batch.values())

    def _report(self, topic: str, batch: list[_Waiting], results: list[Settled]) -> None:
        counts: Counter[Verb] = Counter()
        acknowledged = 0
        deaths: list[tuple[str, str]] = []
        ok, ack = Verdict.OK, Verb.ACK
        self._count_handled(topic, batch)
        for waiting, result in zip(batch, results, strict=True):
            if result is ok and waiting.settlement.verb is ack:  # by far the most
                acknowledged += 1
                continue
            # After a try whose reply was lost, "gone" or "stale" may be its own doing.
            if result is ok or waiting.tried or isinstance(result, Reason):
                counts[waiting.settlement.verb] += 1
            elif waiting.session is not None:
                waiting.session.complain(waiting.lease.token, PROBLEMS[result])
            if isinstance(result, Reason):
                deaths.append((waiting.settlement.timer_id, result.value))
        counts[ack] += acknowledged
        for outcome, count in counts.items():
            self._instruments.settled(topic, outcome.value, count)
        self._instruments.stale(topic, len(batch) - counts.total())
        report_deaths(topic, deaths, self._instruments)

    def _count_handled(self, topic: str, batch: list[_Waiting]) -> None:
        leases = [lease for waiting in batch if (lease := waiting.lease).ended_at]
        self._instruments.handled(
            topic,
            [lease.ended_at - lease.sent_at for lease in leases],
            [
                (lease.ended_at - lease.sent_at, span)
                for lease in leases
                if lease.trace is not None and (span := lease.trace.span_context)
            ],
        )

    def _trace(
        self, topic: str, batch: list[_Waiting], results: Sequence[Settled], began: int, error: str = ""
    ) -> None:
        ends: list[tuple[DeliveryTrace, Settlement, Settled]] = [
            (waiting.lease.trace, waiting.settlement, Verdict.OK if waiting.tried else result)
            for waiting, result in zip(batch, results, strict=True)
            if waiting.lease.trace is not None
        ]
        if ends:
            self._tracing.settled(topic, began, ends, count=len(batch), error=error)

    async def _write_receipts(self, topic: str) -> None:
        receipts = self._receipts[topic]
        batch: dict[str, tuple[Lease, Session]] = {}
        for lease, session in islice(receipts.values(), MAX_PER_CALL):
            batch.setdefault(lease.timer.timer_id, (lease, session))
        for lease, _ in batch.values():
            del receipts[lease.token]
        if not receipts:
            del self._receipts[topic]
        policy = self._policy(topic)
        extensions = [Extension(name, lease.nonce, received=True) for name, (lease, _) in batch.items()]
        # A receipt is written as a renewal, which must not give a lease more time than it has
        # where renewing is off.
        lease_time = micros(policy.lease_ttl) if policy.renew else 0
        self._writing = len(batch)
        try:
            verdicts = await self._store.extend(topic, extensions, lease=lease_time)
        except StoreUnavailable:
            kept = self._receipts.setdefault(topic, {})
            # A settlement that came meanwhile makes a receipt needless.
            kept.update(
                (entry[0].token, entry) for entry in batch.values() if entry[0].token in entry[1].leases
            )
            if not kept:
                del self._receipts[topic]
                self._written.set()  # that may have been all, and who waits for it looks once `_writing` is 0
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._drop(topic, len(batch), failure)
        else:
            self._link.worked()
            for (lease, session), verdict in zip(batch.values(), verdicts, strict=True):
                if verdict is not Verdict.OK and lease.token in session.leases:
                    session.lose(lease, PROBLEMS[verdict])
        finally:
            self._writing = 0
        self._written.set()

    def _drop(self, topic: str, count: int, failure: Exception) -> None:
        """Redis refuses, and would again: leave these leases to run out, and the timers to come again."""
        self._instruments.store_error(type(failure).__name__)
        log.error(
            "Redis refuses to settle; the timers will be delivered again",
            extra={"topic": topic, "count": count, "reason": str(failure)},
            exc_info=None if isinstance(failure, StoreError) else failure,
        )


def _moved_bytes(waiting: _Waiting) -> int:
    """Content that may have to move for it, if it is no ACK: whether a NACK or a RELEASE is a death, Redis
    alone knows."""
    settlement = waiting.settlement
    if settlement.verb is Verb.RESCHEDULE:
        return len(settlement.again.payload) if settlement.again and settlement.new_content else 0
    return waiting.lease.size
