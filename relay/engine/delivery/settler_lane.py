"""What waits to be settled for the partitions of one place, and the calls that write it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from relay.core.errors import GivenUp, StoreUnavailable
from relay.core.instants import micros
from relay.core.loop.wakeup import Wakeup
from relay.core.outcomes import Ending, Extension, Reason, Settled, Verb, Verdict
from relay.core.partitions import place_of, topic_of
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, SourceOf
from relay.engine.clock import Clock
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.leases import Lease, Leases
from relay.engine.delivery.session import Problem, Session
from relay.engine.lanes import Lanes
from relay.engine.redis_health import RedisHealth
from relay.engine.reports.dead_letter_reports import report_deaths
from relay.telemetry.metrics.catalogue import RELEASED, SETTLED, STALE
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.spans import DeliveryTrace
from relay.telemetry.traces.tracing import Tracing

MAX_BYTES = 4 << 20
"""The approximate limit of content bytes in one call: new content, and the content of timers that die."""

ELSEWHERE = 0.2
"""Seconds to wait where timers have moved to a place that is away."""

REFUSED = "Redis refuses to settle; the timers will be delivered again"
"""And would again: these leases are left to run out."""

OK = Verdict.OK  # a lookup for each call is expensive: Python 3.11's enums do it in Python
PROBLEMS = {Verdict.STALE: Problem.STALE, Verdict.GONE: Problem.GONE}


@dataclass(frozen=True, slots=True)
class SettlingParts:
    """What all lanes share. `written` is set when something was written."""

    source_of: SourceOf
    policy: Callable[[str], TopicPolicy]
    redis_health: RedisHealth
    clock: Clock
    instruments: Instruments
    tracing: Tracing
    written: Wakeup


class SettlerLane:
    """Writes what is settled of the partitions of one place. See `Settler`, and `Lanes`."""

    def __init__(self, place: str, parts: SettlingParts, lanes: Lanes[SettlerLane]) -> None:
        self.place = place
        self._source_of = parts.source_of
        self._policy = parts.policy
        self._redis_health = parts.redis_health
        self._clock = parts.clock
        self._instruments = parts.instruments
        self._tracing = parts.tracing
        self._written = parts.written
        self._lanes = lanes
        self.ends: dict[str, list[EndedLeases]] = {}
        self.receipts: dict[str, dict[tuple[Leases, int], Session]] = {}
        self.receipts_at = math.inf
        """When the receipts must be written, while there are any."""
        self.wakeup = Wakeup()
        """To be set when there is something to write."""
        self._partition = ""
        """That of the call that is under way."""
        self._writing = 0

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not (self.ends or self.receipts or self._writing)

    @property
    def unwritten(self) -> int:
        """The number of ends of leases that are not in Redis yet."""
        return sum(map(_count, self.ends.values())) + self._writing

    def leave(self, partition: str, lane: SettlerLane) -> bool:
        """See `Lane.leave`. What a call under way can't write comes back here first, to stand before what
        came later."""
        if partition == self._partition:
            return False
        if partition in self.ends:
            lane.ends[partition] = self.ends.pop(partition)
        if partition in self.receipts:
            others_at = lane.receipts_at if lane.receipts else math.inf
            lane.receipts_at = min(self.receipts_at, others_at)
            lane.receipts[partition] = self.receipts.pop(partition)
        lane.wakeup.set()
        return True

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            until_receipts = self.receipts_at - self._clock.now() if self.receipts else math.inf
            if not self.ends and until_receipts > 0:
                await self._clock.wait(self.wakeup, until_receipts)
            await self.step()

    async def step(self) -> None:
        """Make one call of each kind for each partition that has something to write now."""
        partition, elsewhere = "", False
        try:
            for partition in list(self.ends):
                if partition in self.ends:  # otherwise it has left
                    elsewhere |= not await self._did(self._write_ends, partition)
            if self._clock.now() >= self.receipts_at:
                for partition in list(self.receipts):
                    if partition in self.receipts:  # otherwise their ends overtook them, or it has left
                        elsewhere |= not await self._did(self._write_receipts, partition)
        except StoreUnavailable:
            # A partition that has left may have a new place that is away, too. Nobody waits for that here.
            if self._lanes[partition] is self:
                await self._redis_health.pause(partition)
        else:
            if elsewhere:
                await self._clock.sleep(ELSEWHERE)

    @staticmethod
    async def _did(write: Callable[[str], Awaitable[None]], partition: str) -> bool:
        """Write, and return whether that worked. It fails for timers that have moved to a place that is away,
        for which others don't wait. Raises `StoreUnavailable` if this lane's place is."""
        try:
            await write(partition)
        except StoreUnavailable as failure:
            if not failure.partition:
                raise
            return False
        return True

    async def _write_ends(self, partition: str) -> None:
        batch = self._take(partition)
        health = self._redis_health.of(partition)
        began = time.time_ns()
        try:
            results = await self._source_of(partition).settle(
                partition, batch, limits=self._policy(partition).limits
            )
        except StoreUnavailable as failure:
            self._redis_health.failed(partition, failure, health)
            for ends in batch:
                ends.tried |= not isinstance(failure, GivenUp)
            self.ends[partition] = batch + self.ends.get(partition, [])
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._redis_health.refused(REFUSED, failure, topic=place_of(partition), count=_count(batch))
            self._trace(topic_of(partition), batch, [OK] * _count(batch), began, error=type(failure).__name__)
        else:
            health.worked()
            self._report(topic_of(partition), batch, results)
            self._trace(topic_of(partition), batch, results, began)
        finally:
            self._end_call()
        for ends in batch:
            if ends.session is not None:
                ends.session.unwritten -= len(ends.places)
        self._written.set()

    def _take(self, partition: str) -> list[EndedLeases]:
        """Take as many ends as fit into a call, in their order. Those of a timer that is among them already
        wait for the next call."""
        waiting = self.ends.pop(partition)
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
            self.ends[partition] = left
        self._partition, self._writing = partition, _count(taken)
        return taken

    def _end_call(self) -> None:
        self._partition, self._writing = "", 0
        self._lanes.call_ended()

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

    async def _write_receipts(self, partition: str) -> None:
        receipts = self.receipts[partition]
        batch: dict[str, tuple[Lease, Session]] = {}
        for (leases, place), session in islice(receipts.items(), MAX_PER_CALL):
            batch.setdefault(leases.timers.timer_ids[place], (leases[place], session))
        for lease, _ in batch.values():
            del receipts[lease]
        if not receipts:
            del self.receipts[partition]
        policy = self._policy(partition)
        extensions = [
            Extension(timer_id=name, nonce=lease.nonce, received=True) for name, (lease, _) in batch.items()
        ]
        # A receipt is written as a renewal, which must not prolong a lease if renewing is off.
        lease_time = micros(policy.lease_ttl) if policy.renew else 0
        self._partition, self._writing = partition, len(batch)
        health = self._redis_health.of(partition)
        try:
            verdicts = await self._source_of(partition).extend(partition, extensions, lease=lease_time)
        except StoreUnavailable as failure:
            self._redis_health.failed(partition, failure, health)
            kept = self.receipts.setdefault(partition, {})
            # A settlement that came meanwhile makes the receipt unnecessary.
            kept.update(
                (lease, session) for lease, session in batch.values() if lease.token in session.leases
            )
            if not kept:
                del self.receipts[partition]
                self._written.set()  # that may have been all: those who wait look once `_writing` is 0
            raise
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._redis_health.refused(REFUSED, failure, topic=place_of(partition), count=len(batch))
        else:
            health.worked()
            for (lease, session), verdict in zip(batch.values(), verdicts, strict=True):
                if verdict is not Verdict.OK:
                    session.lose(lease.token, PROBLEMS[verdict])
        finally:
            self._end_call()
        self._written.set()


def _count(some: Iterable[EndedLeases]) -> int:
    """The number of leases."""
    return sum(len(ends.places) for ends in some)


def _places(batch: Iterable[EndedLeases]) -> Iterator[tuple[EndedLeases, int]]:
    """All ends one by one, in the order of the answer."""
    return ((ends, place) for ends in batch for place in ends.places)
