"""Decides which application gets which timer: sessions by topic, capacity, and whose turn it is to claim."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import random

from relay.core.outcomes import Ending, Reason, Verb, spent
from relay.core.pacing import Jitter
from relay.core.policy import TopicPolicy
from relay.core.timers import Claim
from relay.engine.clock import Clock
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.leases import Lease, Leases
from relay.engine.delivery.session import Session
from relay.engine.delivery.settler import Settler
from relay.engine.delivery.turns import Turns
from relay.engine.delivery.unopened import UnopenedTimers
from relay.telemetry.metrics.catalogue import CLAIMED, DELIVERED, RETRIED, UNDELIVERABLE
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.tracing import Tracing

log = logging.getLogger(__name__)


class Dispatcher:
    """Hands claimed timers to sessions, and takes back the deliveries that a session leaves behind."""

    def __init__(
        self,
        settler: Settler,
        policy: Callable[[str], TopicPolicy],
        clock: Clock,
        instruments: Instruments,
        tracing: Tracing,
        jitter: Jitter = random,
    ) -> None:
        self._settler = settler
        self._policy = policy
        self._jitter = jitter
        self._clock = clock
        self._instruments = instruments
        self._tracing = tracing
        self._sessions: dict[str, list[Session]] = {}
        self._claimants: dict[str, Turns] = {}
        self._unopened = UnopenedTimers(settler, instruments, clock, jitter)
        self._turn = 0
        self.claiming = 0
        """The number of claims that are under way."""
        self.capacity_changed: Callable[[str], None] = lambda _: None

    def attach(self, session: Session) -> list[str]:
        """Deliver to the session from now on; return the topics that had no session before."""
        fresh = [topic for topic in session.topics if topic not in self._sessions]
        for topic in fresh:
            self._sessions[topic], self._claimants[topic] = [], Turns()
        for topic in session.topics:
            self._sessions[topic].append(session)
        session.changed, session.sending = self._changed, self._sending
        self._changed(session)
        return fresh

    def detach(self, session: Session, *, broken: bool) -> list[str]:
        """Release at once what the session holds; return the topics that have no session any more.

        `broken` means that the stream ended without a word, so a timer that was in flight may have ended it.
        """
        idle = []
        for topic in session.topics:
            sessions = self._sessions.get(topic, [])
            if session in sessions:
                sessions.remove(session)
                if not sessions:
                    del self._sessions[topic], self._claimants[topic]
                    idle.append(topic)
        self.release(session.close(), broken=broken)
        return idle

    def drain(self, session: Session, *, say: bool) -> None:
        """Send nothing more to the session, and release at once what has not been sent."""
        self.release(session.drain(say=say))

    def resize(self, session: Session, capacity: int) -> None:
        """Let the session hold `size` deliveries; with 0, release at once what has not been sent."""
        self.release(session.resize(capacity))
        self._changed(session)

    def sessions(self) -> set[Session]:
        """Return all sessions."""
        return {session for sessions in self._sessions.values() for session in sessions}

    def leases(self) -> Iterable[tuple[Session, Lease]]:
        """Return all deliveries in flight."""
        for session in self.sessions():
            for lease in list(session.leases.values()):
                yield session, lease

    def room(self, topic: str) -> tuple[int, int]:
        """Return how many deliveries of the topic its sessions can take, and how many places they have in
        all."""
        free = places = 0
        for session in self._sessions.get(topic, ()):
            free += max(session.free, 0)
            places += session.places
        return free, places

    def behind(self, topic: str) -> float:
        """For how many seconds timers of the topic are to be left to other relays, since they may have a key
        that is missing here."""
        return self._unopened.behind(topic)

    def keys_changed(self) -> None:
        """Leave no timers to other relays any more, until a key is missing again."""
        self._unopened.keys_changed()

    def claimants(self, topic: str) -> Turns:
        """Return whose turn it is to claim timers of the topic, which has a session: its partitions share
        the room."""
        return self._claimants[topic]

    @contextmanager
    def reserved(self, topic: str, limit: int) -> Iterator[int]:
        """Keep places for a claim while it is under way; yields their number, at most `limit`.

        A session may take several topics, whose pollers would otherwise claim for the same places.
        """
        kept: list[tuple[Session, int]] = []
        for session in self._sessions.get(topic, ()):
            places = min(session.free, limit)
            if places > 0:
                session.reserved += places
                limit -= places
                kept.append((session, places))
        self.claiming += 1
        try:
            yield sum(places for _, places in kept)
        finally:
            self.claiming -= 1
            for session, places in kept:
                session.reserved -= places
                # It was this topic's turn. The pollers of the others may wait for these places.
                session.turns.remove(topic)
                session.turns.append(topic)
                self._changed(session)

    def deliver(
        self, partition: str, claim: Claim, nonce: bytes, *, sent: float, began: int, policy: TopicPolicy
    ) -> None:
        """Hand out timers of a partition that were claimed under `nonce`. The call that brought them was sent
        at `sent` (engine's clock), which is `began` (`time.time_ns`).

        Leases are counted from then, so that the relay never believes in one for longer than the
        server does.

        Sessions may have gone or filled up while the claim was under way: timers that find no place are
        released without an attempt.
        """
        here = self._clock.now()
        # The server read its clock at some time between; the middle halves the error.
        epoch = (sent + here) / 2 - claim.now / 1e6
        leases = Leases.of(
            partition,
            claim.timers,
            nonce,
            deadline_time=claim.deadline,
            deadline=sent + (claim.deadline - claim.now) / 1e6,
            silent_until=here + policy.lifetime,
            epoch=epoch,
        )
        topic = leases.topic
        leases.traces = self._tracing.claimed(topic, claim, began)
        unreadable = [place for place, readable in enumerate(claim.timers.readable) if not readable]
        for place in unreadable:
            self._bury(leases[place])
        closed = [place for place, why in enumerate(claim.timers.unopened) if why and place not in unreadable]
        if closed:
            self._unopened.take(leases, closed, claim)
        for part in leases.without(sorted(unreadable + closed)):
            placed = self._place(topic, part)
            self.release(part[placed:])
        self._instruments.count(CLAIMED, topic, n=len(claim.timers))

    def _sending(self, leases: Leases) -> None:
        """Note that these deliveries go out."""
        topic, attempts, sent_at = leases.topic, leases.timers.attempts, leases.sent_at
        self._instruments.count(DELIVERED, topic, n=len(leases))
        self._instruments.count(RETRIED, topic, n=len(leases) - attempts.count(1))
        self._instruments.lateness(
            topic,
            [
                sent_at - due
                for due, attempt, approximate in zip(
                    leases.dues, attempts, leases.timers.approximate, strict=True
                )
                if attempt == 1 and not approximate
            ],
        )

    def _place(self, topic: str, leases: Leases) -> int:
        """Spread leases over the sessions with room, in even shares; return how many found a place."""
        open_sessions: list[Session] = []
        placed = 0
        while placed < len(leases):
            # A second round is for shares that a session with little room could not take.
            open_sessions = open_sessions or [s for s in self._sessions.get(topic, ()) if s.free > 0]
            if not open_sessions:
                break
            self._turn += 1
            share = -(-(len(leases) - placed) // len(open_sessions))
            session = open_sessions.pop(self._turn % len(open_sessions))
            count = min(share, session.free)  # it may have fallen since: places are lost by time, too
            if count > 0:
                session.offer(leases[placed : placed + count])
                placed += count
        return placed

    def release(
        self, released: Iterable[Lease], *, broken: bool = False, alone: bool = False, began: bool = True
    ) -> None:
        """Give leases back: their timers are due again at once, or after a wait if that was an attempt.

        `broken` means that what was sent may have broken the application's connection; see `Ending`. With
        `alone` each goes alone the next time. `began` is false if the application could not even be called.
        """
        alike: dict[tuple[Leases, int | None], list[int]] = {}
        for lease in released:
            leases, place = lease
            if leases.received[place] and lease.last:
                ending = spent("the delivery ended without an outcome")
                self._settler.settle(EndedLeases.of(leases, [place], ending))
                continue
            wait = self.wait(lease) if leases.received[place] else None
            alike.setdefault((leases, wait), []).append(place)
        for (leases, wait), places in alike.items():
            ending = Ending(
                Verb.RELEASE,
                retry_after=wait,
                received=wait is not None,
                broken=broken and leases.sent,
                suspect=alone,
                unsent=not (leases.sent and began),
            )
            self._settler.settle(EndedLeases.of(leases, places, ending))

    def wait(self, lease: Lease) -> int:
        """Return the microseconds until a timer whose delivery has failed is delivered again."""
        handler = lease.leases.handler
        backoff = handler.backoff if handler is not None else None
        return (backoff or self._policy(lease.topic).retry).delay(lease.attempt, self._jitter())

    def _bury(self, lease: Lease) -> None:
        """Reject a timer whose id is not UTF-8, since no application can be given its name: it is dead."""
        log.error(
            "timer can't be delivered: its id is not UTF-8; schedule it under another id",
            extra={"topic": lease.topic, "timer_id": ascii(lease.timer.timer_id)},
        )
        self._instruments.count(UNDELIVERABLE, lease.topic)
        rejected = Ending(Verb.REJECT, reason=Reason.UNREADABLE, error="the id is not UTF-8")
        self._settler.settle(EndedLeases.of(lease.leases, [lease.place], rejected))

    def _changed(self, session: Session) -> None:
        for topic in session.turns:
            self.capacity_changed(topic)
