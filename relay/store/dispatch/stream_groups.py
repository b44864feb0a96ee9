"""Deliveries from a stream, for one group of its consumers: a `LeaseSource`, in Redis.

A lease is an entry that is pending with this relay's consumer. Its proof is the entry and how often it was
delivered. The scripts in `lua/` say what they read, write and return.
"""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from struct import Struct

from relay.core.dispatch import Reclaim
from relay.core.instants import from_score, micros
from relay.core.outcomes import (
    NO_LIMITS,
    ClaimRequest,
    Extension,
    Limits,
    Settled,
    Settlement,
    Verdict,
)
from relay.core.policy import TopicPolicy
from relay.core.timers import Claim, ClaimedTimer, ClaimedTimers
from relay.store.codec import envelope
from relay.store.codec.lease_record import text_of
from relay.store.dispatch.promotions import KnownGroups, pairs
from relay.store.server.server import Server
from relay.store.timeline.read_sizes import at_once
from relay.store.timeline.redis_store import PARK_GRACE, SETTLED, VERDICTS, ending_words
from relay.store.verbs import stream as verbs
from relay.store.verbs.terms import flag

START = "0-0"

ROUND = 1.0
"""Seconds between two rounds over what is pending, at most: for that much longer than its idle time an entry
of a dead consumer lies there. A quarter of the idle time if that is less."""

STEP = 0.01
"""Seconds between two steps of a round, each over some hundreds of entries."""

_PROOF = Struct(">QQI")
FIELDS = 10
"""How many values the scripts answer for each timer; see `told` in `lua/lib/dispatch/stream_entry.lua`."""


class RedisGroups:  # see 0043
    """A `LeaseSource` of topics with a stream; `policy` is the topics'.

    `known_groups` is to be shared with `RedisPromotions`.
    `consumer` names this relay in every group: afresh in every process, so that what a process left behind is
    never taken for its successor's.
    """

    def __init__(
        self,
        server: Server,
        policy: Callable[[str], TopicPolicy],
        *,
        consumer: str = "",
        park_grace: int = PARK_GRACE,
        known_groups: KnownGroups | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._policy = policy
        self._known_groups = KnownGroups() if known_groups is None else known_groups
        self._park_grace = park_grace
        self._monotonic = monotonic
        self.consumer = consumer or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._rounds: dict[str, tuple[str, float]] = {}
        """By topic: where the round over pending entries goes on, and when (monotonic seconds)."""

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        """See `LeaseSource.claim`. One script call, which promotes what is due before."""
        policy = self._policy(topic)
        stream = policy.stream
        cursor, at = self._rounds.get(topic, (START, -math.inf))
        here = self._monotonic()
        looks = stream.reclaim is not Reclaim.OFF and here >= at
        reply = await self._server.call(
            verbs.claim(
                topic,
                self._consumer(policy),
                request,
                park_grace=self._park_grace,
                cursor=cursor if looks else "",
                reads_new=_reads(stream.reclaim),
                at_once=at_once(policy.max_payload_bytes),
                begin=self._known_groups.begin(topic, stream.group),
            )
        )
        self._known_groups.add((topic, stream.group))
        now = int(reply.now)
        look_in = None
        if looks and not reply.paused:
            cursor = reply.cursor.decode()
            at = here + (min(ROUND, request.lease / 4e6) if cursor == START else STEP)
            self._rounds[topic] = (cursor, at)
        if stream.reclaim is not Reclaim.OFF and reply.pending:
            look_in = max(at - here, 0.0)
        return Claim(
            timers=_timers(reply.timers),
            now=now,
            next=from_score(float(reply.following)) if reply.following else None,
            deadline=from_score(float(reply.deadline)),
            parked=reply.parked,
            orphans=(*(text_of(raw)[0] for raw in reply.orphans),),
            deaths=pairs(reply.deaths),
            paused_until=int(reply.paused) if reply.paused else None,
            look_at=None if look_in is None else now + micros(look_in),
            promoted=reply.promoted,
            missing=reply.missing,
        )

    async def claimed(self, topic: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        """See `LeaseSource.claimed`. One script call. It finds what this relay's latest claim has taken."""
        consumer = self._consumer(self._policy(topic))
        reply = await self._server.call(verbs.claimed(topic, consumer, request.nonce))
        now = int(reply.now)
        deadline = from_score(float(reply.deadline)) if reply.deadline else now
        return Claim(_timers(reply.timers), now=now, next=None, deadline=deadline)

    async def settle(
        self, topic: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        """See `LeaseSource.settle`. One script call. RESCHEDULE is for this group alone."""
        policy = self._policy(topic)
        args: list[bytes | str | int] = []
        for each in settlements:
            words = ending_words(each.ending)  # what goes to a stream is never sealed
            for proof in each.proofs:
                args += (*_entry(proof), *words)
        lease = micros(policy.lease_ttl)
        reply = await self._server.call(verbs.settle(topic, self._consumer(policy), lease, limits, args))
        return [SETTLED[word] for word in reply[1:]]

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `LeaseSource.extend`. One script call."""
        args: list[str | int] = []
        for extension in extensions:
            args += (*_entry(extension.nonce), flag(extension.received))
        consumer = self._consumer(self._policy(topic))
        reply = await self._server.call(verbs.extend(topic, consumer, lease, args))
        return [VERDICTS[word] for word in reply[1:]]

    def _consumer(self, policy: TopicPolicy) -> verbs.Consumer:
        return verbs.Consumer(policy.stream.group, self.consumer)


def _reads(reclaim: Reclaim) -> bool:
    return reclaim is not Reclaim.DEDICATED


def _entry(proof: bytes) -> tuple[str, int]:
    milliseconds, sequence, deliveries = _PROOF.unpack(proof)
    return f"{milliseconds}-{sequence}", deliveries


def _timers(flat: Sequence[bytes | int]) -> ClaimedTimers:
    return ClaimedTimers.of(_claimed(flat[i : i + FIELDS]) for i in range(0, len(flat), FIELDS))


def _claimed(parts: Sequence[bytes | int]) -> ClaimedTimer:
    entry, deliveries, raw_id, stored, due, occurrence, attempts, claims, suspect, approximate = parts
    assert isinstance(entry, bytes)
    assert isinstance(raw_id, bytes)
    assert isinstance(stored, bytes)
    assert isinstance(occurrence, bytes)
    milliseconds, _, sequence = entry.partition(b"-")
    timer_id, readable = text_of(raw_id)
    return ClaimedTimer(
        timer_id=timer_id,
        **envelope.decode(stored).fields(),
        due=from_score(float(due)),
        attempt=int(attempts) + 1,
        # Others write to the stream, too, and anything.
        occurrence_id=occurrence.decode(errors="backslashreplace"),
        approximate=bool(approximate),
        suspect=bool(suspect),
        readable=readable,
        claims=int(claims),
        proof=_PROOF.pack(int(milliseconds), int(sequence), int(deliveries)),
    )
