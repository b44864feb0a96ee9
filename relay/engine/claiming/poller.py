"""One partition's poll loop: it sleeps until a timer is due and an application has room, then claims."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio

from relay.core.errors import OpenOutcome, OtherLayout, StoreUnavailable
from relay.core.instants import micros
from relay.core.outcomes import ClaimRequest
from relay.core.pacing import HELP_AFTER
from relay.core.partitions import place_of, topic_of
from relay.core.policy import TopicPolicy
from relay.core.ports import LeaseSource
from relay.core.timers import Claim, ClaimedTimers
from relay.engine.claiming.timetable import Timetable
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.redis_health import REFUSED_WAIT, PlaceHealth, RedisHealth
from relay.engine.reports.dead_letter_reports import report_deaths
from relay.telemetry.metrics.catalogue import ORPHANS, PROMOTED
from relay.telemetry.metrics.instruments import Instruments

CLAIM_BYTES = 2 << 20
"""The most payload bytes that one claim call returns, roughly."""

GATHER = 0.002
"""The shortest time in seconds between two claims while more is due than there is room for, unless there is
room for a whole batch, or a quarter of all places are free. Places that become free meanwhile share one
claim."""

CALL_AGAIN = 1.0
"""Seconds between two calls for help of a poller that is to claim and has no room."""

log = logging.getLogger(__name__)


class LostClaim(NamedTuple):
    """A claim whose reply was lost. If it ran, then between `since` and `until` (microseconds, by the
    server's clock)."""

    request: ClaimRequest
    since: int
    until: int


class Poller:
    """Claims a partition's due timers for as long as the dispatcher has room for those of the topic."""

    def __init__(
        self,
        partition: str,
        policy: TopicPolicy,
        timetable: Timetable,
        source: LeaseSource,
        dispatcher: Dispatcher,
        redis_health: RedisHealth,
        instruments: Instruments,
        nonce: Callable[[], bytes],
    ) -> None:
        self._partition = partition
        self._topic = topic_of(partition)
        self._policy = policy
        self._source = source
        self._dispatcher = dispatcher
        self._redis_health = redis_health
        self._clock = timetable.clock
        self._instruments = instruments
        self._nonce = nonce
        self._timetable = timetable
        self._turns = dispatcher.claimants(self._topic)
        self._gather_until = 0.0
        """The time until which a claim waits for more room."""
        self._call_for_help: Callable[[int], None] | None = None
        self._called_at = -math.inf
        self._calls = 0
        """How often it has called since it had room last."""
        self._refused = False
        self._lost: LostClaim | None = None
        """The last claim, if what it took has still to be asked for."""

    def capacity_changed(self) -> None:
        """Note that the capacity has changed, which matters to the one whose turn it is, and to those who
        gather room."""
        wakeup = self._timetable.wakeup
        if self._timetable.next <= self._clock.now() and not self._turns.behind(wakeup):
            wakeup.set()

    def due_at(self, instant: int) -> None:
        """See `Timetable.due_at`."""
        self._timetable.due_at(instant)

    def take_rank(self, rank: int, call_for_help: Callable[[int], None] | None = None) -> None:
        """Come after `rank` other relays. `call_for_help` calls one that comes later, if there is one: that
        is done where there is no room for what this one is to claim. It is told how many calls were made
        since there was room, so that another one is called each time."""
        is_new, self._call_for_help = self._call_for_help is None, call_for_help
        self._timetable.take_rank(rank)
        if is_new and call_for_help is not None:
            self._timetable.wakeup.set()  # it may have waited for room since before there were others

    def called(self, rank: int) -> None:
        """Help, if the relay of this rank is called."""
        if rank and rank == self._timetable.rank:
            self._timetable.help()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.step()

    async def find_lost(self) -> None:
        """Hand out what the last claim took, if its reply was lost: another poller does not know of it."""
        while self._lost is not None:
            await self.step()

    async def step(self) -> None:
        """Wait until it is time and there is room; claim, and hand out what was claimed. If the last claim's
        reply was lost, ask for what it took instead, and at once."""
        if self._lost is None:
            await self._until_ready()
        health = self._redis_health.of(self._partition)
        # This must not be cut short: the reply names timers that nobody else would know to be leased.
        with anyio.CancelScope(shield=True):
            failure = await (self._claim(health) if self._lost is None else self._find(self._lost))
        if isinstance(failure, StoreUnavailable):
            self._redis_health.failed(self._partition, failure, health)
            await self._redis_health.pause(self._partition)
        elif failure is None:
            health.worked()
        elif isinstance(failure, OtherLayout):
            await self._clock.sleep(REFUSED_WAIT)  # which ends soon: others take this one's stead
        else:
            self._redis_health.refused(
                "Redis refuses to claim", failure, said=self._refused, topic=place_of(self._partition)
            )
            self._refused = True
            await self._clock.sleep(REFUSED_WAIT)

    async def _until_ready(self) -> None:
        wakeup = self._timetable.wakeup
        try:
            while True:
                now = self._clock.now()
                free, places = self._dispatcher.room(self._topic)
                enough = free >= min(places / 4, self._policy.claim_batch)
                ready = self._timetable.next if enough else max(self._timetable.next, self._gather_until)
                if ready > now:
                    self._turns.leave(wakeup)
                    await self._clock.wait(wakeup, ready - now)
                elif self._turns.wait(wakeup) and free:
                    self._calls = 0
                    return
                elif self._call_for_help is None:
                    await wakeup.wait()
                elif free:  # others are ahead, and may take it
                    await self._clock.wait(wakeup, HELP_AFTER)
                else:
                    call_at = max(self._timetable.next + HELP_AFTER, self._called_at + CALL_AGAIN)
                    if call_at <= now:
                        self._called_at = now
                        self._call_for_help(self._calls)
                        self._calls += 1
                    else:
                        await self._clock.wait(wakeup, call_at - now)
        finally:
            self._turns.leave(wakeup)

    async def _claim(self, health: PlaceHealth) -> Exception | None:
        sent, began = self._timetable.begin(), time.time_ns()  # see 0015
        # A try at a place that is away may hang, and the streams' places are those of other topics, too.
        most = self._policy.claim_batch if health.trouble is None else 1
        behind = self._dispatcher.behind(self._topic)
        self._timetable.stay_behind(behind)
        with self._dispatcher.reserved(self._topic, most) as places:
            request = ClaimRequest(
                limit=places,
                lease=micros(self._policy.lease_ttl),
                nonce=self._nonce(),
                max_bytes=CLAIM_BYTES,
                limits=self._policy.limits,
                behind=micros(behind),
            )
            try:
                claim = await self._source.claim(self._partition, request)
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
                self._timetable.again()
                if isinstance(failure, OpenOutcome):
                    self._lost = LostClaim(request, failure.since, failure.until)
                return failure
        self._refused = False
        self._gather_until = sent + GATHER if len(claim.timers) == places else 0.0
        self._timetable.plan(
            now=claim.now,
            next_due=claim.next,
            taken=bool(claim.timers or claim.deaths),
            paused_until=claim.paused_until,
            look_at=claim.look_at,
            ours_from=claim.deadline,
            waited_since=_waited_since(claim.timers),
        )
        self._report(claim)
        self._deliver(claim, request, sent, began)
        return None

    async def _find(self, lost: LostClaim) -> Exception | None:  # see 0080
        """Ask for what a claim has leased whose reply was lost, and hand it out: nobody else knows its
        nonce."""
        sent, began = self._clock.now(), time.time_ns()
        try:
            # The claim's own places may have gone to another topic since. What finds none is released.
            with self._dispatcher.reserved(self._topic, lost.request.limit):
                claim = await self._source.claimed(
                    self._partition, lost.request, since=lost.since, until=lost.until
                )
        except (StoreUnavailable, OtherLayout) as failure:
            return failure
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._lost = None
            return failure
        self._lost = None
        if claim.timers:
            log.warning(
                "the reply of a claim was lost; its timers are found again",
                extra={"topic": place_of(self._partition), "count": len(claim.timers)},
            )
        self._deliver(claim, lost.request, sent, began)
        return None

    def _deliver(self, claim: Claim, request: ClaimRequest, sent: float, began: int) -> None:
        if claim.timers:
            self._dispatcher.deliver(
                self._partition, claim, request.nonce, sent=sent, began=began, policy=self._policy
            )

    def _report(self, claim: Claim) -> None:
        if claim.deaths:
            report_deaths(self._topic, claim.deaths, self._instruments)
        if claim.promoted:
            self._instruments.count(PROMOTED, self._topic, n=claim.promoted)
        if claim.missing:
            self._instruments.count(ORPHANS, self._topic, n=claim.missing)
            log.error(
                "entries are pending that are not in the stream any more: somebody has trimmed it",
                extra={"topic": self._topic, "count": claim.missing},
            )
        if claim.parked or claim.orphans:
            report_lost(self._topic, claim.parked, claim.orphans, self._instruments)


def _waited_since(timers: ClaimedTimers) -> int | None:
    """The instant at which the first of a claim's timers fell due; None if the claim brought none, or if that
    timer has fallen due again since, for another attempt."""
    if not timers or timers.attempts[0] > 1 or timers.approximate[0]:
        return None
    return timers.dues[0]


def report_lost(topic: str, parked: int, orphans: Sequence[str], instruments: Instruments) -> None:
    """Report timers whose payload is missing: some are put aside, others are removed after the grace
    period."""
    if parked:
        log.warning("timers without payload are put aside", extra={"topic": topic, "count": parked})
    if orphans:
        instruments.count(ORPHANS, topic, n=len(orphans))
        log.error(
            "timers removed whose payload has been missing",
            extra={"topic": topic, "timer_ids": [ascii(name) for name in orphans]},
        )
