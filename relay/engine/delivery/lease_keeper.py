"""Renews leases while their deliveries are alive, and gives up deliveries that fell silent."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from relay.core.errors import StoreUnavailable
from relay.core.instants import micros
from relay.core.loop.wakeup import Wakeup
from relay.core.outcomes import Extension, Verdict
from relay.core.partitions import place_of
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, Places, SourceOf
from relay.engine.clock import Clock
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import GRACE, Session
from relay.engine.delivery.settler_lane import PROBLEMS
from relay.engine.lanes import Lanes
from relay.engine.redis_health import RedisHealth
from relay.telemetry.metrics.catalogue import SILENT
from relay.telemetry.metrics.instruments import Instruments

log = logging.getLogger(__name__)

LONGEST_TICK = 1.0

_Held: TypeAlias = tuple[Session, Lease]


class Renewals:
    """Renews leases of the partitions of one place; a lane of the keeper's, see `Lanes`."""

    def __init__(
        self,
        place: str,
        source_of: SourceOf,
        policy: Callable[[str], TopicPolicy],
        redis_health: RedisHealth,
        clock: Clock,
        urgent: set[bytes],
        over: Callable[[], None],
    ) -> None:
        """`urgent` are the keeper's tokens to be renewed now; `over` is called after a round that others
        waited for, and when the lane ends."""
        self.place = place
        self._source_of = source_of
        self._policy = policy
        self._redis_health = redis_health
        self._clock = clock
        self._urgent = urgent
        self._over = over
        self._due: dict[str, list[_Held]] = {}
        self._wakeup = Wakeup()
        self.awaited = False
        """Whether leases are to be renewed that the round under way does not have."""

    @property
    def busy(self) -> bool:
        """Whether a round is under way, which takes as long as its calls."""
        return bool(self._due)

    def begin(self, due: dict[str, list[_Held]]) -> None:
        """Renew these, by partition; only while it is not busy."""
        self._due = due
        self._wakeup.set()

    def leave(self, partition: str, lane: Renewals) -> bool:
        """See `Lane.leave`. The keeper finds the leases again, and a lease that is renewed twice is
        none the worse."""
        return True

    async def run(self) -> None:
        """Renew until cancelled. What was under way then is due still, at another place."""
        try:
            while True:
                await self._wakeup.wait()
                await self.step()
        finally:
            self._over()

    async def step(self) -> None:
        """Make one round. What fails is found again by the keeper's next look."""
        for partition, held in self._due.items():
            health = self._redis_health.of(partition)
            try:
                await self._renew(partition, held)
            except StoreUnavailable as failure:
                self._redis_health.failed(partition, failure, health)
                if not failure.partition:
                    break
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
                self._redis_health.refused("Redis refuses to renew", failure, topic=place_of(partition))
            else:
                health.worked()
        self._due = {}
        if self.awaited:
            self.awaited = False
            self._over()

    async def _renew(self, partition: str, leases: list[_Held]) -> None:
        ttl = self._policy(partition).lease_ttl
        for start in range(0, len(leases), MAX_PER_CALL):
            part = leases[start : start + MAX_PER_CALL]
            extensions = [
                Extension(timer_id=lease.timer_id, nonce=lease.nonce, received=lease.received)
                for _, lease in part
            ]
            asked = {lease.token for _, lease in part} & self._urgent
            self._urgent -= asked
            sent = self._clock.now()
            try:
                verdicts = await self._source_of(partition).extend(partition, extensions, lease=micros(ttl))
            except (StoreUnavailable, asyncio.CancelledError):
                self._urgent |= asked
                raise
            for (session, lease), verdict in zip(part, verdicts, strict=True):
                if verdict is not Verdict.OK:
                    session.lose(lease.token, PROBLEMS[verdict])
                elif (
                    now := session.leases.get(lease.token)
                ) is not None:  # otherwise it ended during the call
                    now.deadline = max(now.deadline, sent + ttl)


class LeaseKeeper:
    """Renews each lease when a third of it is over, while its delivery is not silent.

    A delivery is silent if neither a settlement nor an EXTEND came within `delivery_timeout`. Its
    lease then runs out in Redis, and its place in the session becomes free.

    The keeper looks at all leases, and calls nobody: each place has `Renewals` of its own.
    """

    def __init__(
        self,
        source_of: SourceOf,
        places: Places,
        dispatcher: Dispatcher,
        policy: Callable[[str], TopicPolicy],
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._dispatcher = dispatcher
        self._policy = policy
        self._clock = clock
        self._instruments = instruments
        self._urgent: set[bytes] = set()
        """The tokens of leases to be renewed now."""
        self._wakeup = Wakeup()
        self._lanes = Lanes(
            places,
            lambda place: Renewals(
                place, source_of, policy, redis_health, clock, self._urgent, self._wakeup.set
            ),
        )
        self.renew = self._lanes.run
        """Makes the calls until cancelled."""
        self.last_tick = clock.now()

    def wake(self) -> None:
        """Note that other topics are served, whose leases may be shorter than the current tick."""
        self._wakeup.set()

    def extend(self, lease: Lease) -> None:
        """Note that the application is still at work: renew now, and let `delivery_timeout` start over."""
        lease.received = True
        lifetime, handler = self._policy(lease.topic).lifetime, lease.leases.handler
        if handler is not None and handler.timeout:
            lifetime = min(lifetime, handler.timeout + GRACE)
        lease.silent_until = self._clock.now() + lifetime
        self._urgent.add(lease.token)
        self._wakeup.set()

    async def run(self) -> None:
        """Look at the leases until cancelled."""
        while True:
            await self._clock.wait(self._wakeup, self._tick())
            self.step()

    def _tick(self) -> float:
        """Return a sixth of the shortest lease, so that each lease has two chances to be renewed in time."""
        ttls = [self._policy(topic).lease_ttl for s in self._dispatcher.sessions() for topic in s.topics]
        return min([LONGEST_TICK, *(ttl / 6 for ttl in ttls)])

    def step(self) -> None:
        """Check every lease once."""
        self.last_tick = self._clock.now()
        due: dict[str, dict[str | bytes, _Held]] = {}
        over: dict[Session, list[Lease]] = {}
        wanted: set[bytes] = set()
        for session, lease in self._dispatcher.leases():
            if lease.lost or self.last_tick >= lease.silent_until:
                if self.last_tick >= lease.deadline or (lease.received and lease.last and not lease.lost):
                    over.setdefault(session, []).append(lease)
            elif lease.token in self._urgent or self._aged(lease):
                wanted.add(lease.token)
                # A call takes one operation per timer; a second lease on it waits for the next step. A stream
                # may hold an id more than once, and each entry has a proof of its own.
                held = due.setdefault(lease.partition, {})
                held.setdefault(lease.proof or lease.timer_id, (session, lease))
        self._urgent &= wanted
        for session, leases in over.items():
            self._give_up(session, leases)
        for session in self._dispatcher.sessions():
            session.tidy()
        self._begin(due)

    def _begin(self, due: dict[str, dict[str | bytes, _Held]]) -> None:
        """Let what is due be renewed, but where a round is under way still: it is due at the next look, too,
        and that comes when the round is over."""
        rounds: dict[Renewals, dict[str, list[_Held]]] = {}
        for partition, held in due.items():
            rounds.setdefault(self._lanes[partition], {})[partition] = list(held.values())
        for lane, held_there in rounds.items():
            if lane.busy:
                lane.awaited = True
            else:
                lane.begin(held_there)

    def _give_up(self, session: Session, leases: list[Lease]) -> None:
        silent: Counter[str] = Counter()
        # While the lease holds, the last attempt can still be the timer's end.
        last = [each for each in leases if each.last and each.received and self.last_tick < each.deadline]
        self._dispatcher.release(last)
        for lease in leases:
            if lease.trace is not None:
                lease.trace.end("lost" if lease.lost else "silent")
            if not lease.lost:
                silent[lease.topic] += 1
        session.give_up([lease.token for lease in leases])
        for topic, count in silent.items():
            self._instruments.count(SILENT, topic, n=count)
            log.warning(
                "deliveries given up: no outcome within delivery_timeout",
                extra={"topic": topic, "count": count},
            )

    def _aged(self, lease: Lease) -> bool:
        policy = self._policy(lease.topic)
        return policy.renew and lease.deadline - self.last_tick < policy.lease_ttl * 2 / 3
