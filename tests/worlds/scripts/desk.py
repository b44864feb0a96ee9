"""One topic with a list or a stream on a real server, with its clock in the test's hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from relay.core.dispatch import Dispatch, ListPolicy, StreamPolicy
from relay.core.instants import SECOND
from relay.core.journal import JournalRecord
from relay.core.outcomes import ClaimRequest, Settled, Verb, Verdict
from relay.core.policy import RetryPolicy, TopicPolicy
from relay.core.timers import Claim, ClaimedTimer
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.keys import KeyNames
from relay.store.server.manifest import verbs
from tests.keyspace import left
from tests.worlds.scripts.asking import LEASE, N1, NOW, Leasing
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from relay.core.dispatch import Promotion, Tidied
    from tests.servers import RunningServer

LIST = TopicPolicy(dispatch=Dispatch.LIST)
BILLING = TopicPolicy(dispatch=Dispatch.STREAM, stream=StreamPolicy("billing"))


class Entry(NamedTuple):
    """An entry of a ready list, as a worker in any language reads it."""

    head: dict[str, Any]
    payload: bytes

    @property
    def timer_id(self) -> str:
        return str(self.head["timer_id"])


def read(raw: bytes) -> Entry:
    head, _, payload = raw.partition(b"\n")
    return Entry(json.loads(head), payload)


class Desk(Bench):
    """`policy` may be changed at any time."""

    broken = tuple(
        verb for verb in verbs() if verb.startswith(("list/", "stream/")) and verb != "stream/redrive"
    )

    def __init__(self, server: RunningServer, topic: str, policy: TopicPolicy, *breaks: Break) -> None:
        super().__init__(server, topic, *breaks)
        self.policy = policy
        self.ready, self.processing, self.taken = (
            KeyNames().key(name, topic) for name in ("ready", "processing", "taken")
        )
        self.promotions = RedisPromotions(self.redis, lambda _: self.policy)

    def reader(self, consumer: str = "one", group: str = "billing", **policy: Any) -> Reader:
        """A relay of a group of the topic's stream."""
        return Reader(self, consumer, StreamPolicy(group, **policy))

    @property
    def stream(self) -> str:
        return f"{KeyNames().stream}:{self.topic}"

    def keys_of(self, group: str = "billing") -> tuple[str, str]:
        """The retries of a group, and what is known of its entries."""
        key = KeyNames().key
        return key("retries", self.topic, group=group), key("group", self.topic, group=group)

    async def promote(self, nonce: bytes = N1, *, limit: int = 500) -> Promotion:
        return await self.promotions.promote(self.topic, limit=limit, nonce=nonce)

    async def tidy(self) -> Tidied:
        return await self.promotions.tidy(self.topic)

    def entries(self) -> list[Entry]:
        """The ready list, what a worker takes next first."""
        return [read(raw) for raw in cast("list[bytes]", self.raw.lrange(self.ready, 0, -1))[::-1]]

    def left(self) -> tuple[int, int, int]:
        """How many entries timeline, payloads and leases have."""
        return left(self.raw, self.topic)

    async def records(self) -> list[JournalRecord]:
        return [record for batch in await self.batches() for record in batch.records]

    def patience(self, seconds: float, *, attempts: int = 25) -> None:
        """How long an entry may be in the processing list, and how often."""
        self.policy = replace(
            self.policy, ready=ListPolicy(seconds), retry=RetryPolicy(max_attempts=attempts)
        )

    def later(self, seconds: float) -> None:
        self.now = NOW + round(seconds * SECOND)


class Reader:
    """One relay's view of a group. `seconds` is its monotonic clock."""

    def __init__(self, desk: Desk, consumer: str, stream: StreamPolicy) -> None:
        self.desk, self.consumer, self.group, self.seconds = desk, consumer, stream.group, 0.0
        self.policy = replace(BILLING, stream=stream)
        self.source = RedisGroups(
            desk.redis,
            lambda _: self.policy,
            consumer=consumer,
            monotonic=lambda: self.seconds,
        )
        self._leasing = Leasing(self.source, desk.topic)
        self._nonces = 0

    async def claim(self, **options: Any) -> Claim:
        """The round over what is pending always goes on."""
        self.seconds += 10.0
        self._nonces += 1
        return await self._leasing.claim(self._nonces.to_bytes(16, "big"), **options)

    async def find(self, *, back: int = 0) -> Claim:
        """Return what a claim holds, as if its reply had been lost; `back`: how many claims came after it."""
        nonce = (self._nonces - back).to_bytes(16, "big")
        request = ClaimRequest(limit=100, lease=LEASE, nonce=nonce, max_bytes=1 << 20)
        return await self.source.claimed(self.desk.topic, request, since=NOW, until=NOW)

    async def take(self, **options: Any) -> list[ClaimedTimer]:
        return list((await self.claim(**options)).timers)

    async def names(self, **options: Any) -> list[str]:
        return [timer.timer_id for timer in await self.take(**options)]

    async def one(self, **options: Any) -> ClaimedTimer:
        (timer,) = await self.take(**options)
        return timer

    async def settle(self, timer: ClaimedTimer, verb: Verb = Verb.ACK, **options: Any) -> Settled:
        return await self._leasing.settle(timer.timer_id, timer.proof, verb, **options)

    async def extend(self, timer: ClaimedTimer, *, received: bool = False) -> Verdict:
        return await self._leasing.extend(timer.timer_id, timer.proof, received=received)

    def pending(self) -> list[tuple[str, int]]:
        """Each pending entry's consumer, and how often it was delivered."""
        found = self.desk.raw.xpending_range(self.desk.stream, self.group, "-", "+", 1000)
        return [(each["consumer"].decode(), each["times_delivered"]) for each in cast("list[Any]", found)]

    def idle(self, seconds: float) -> None:
        """Let all that is pending have lain idle for so long."""
        found = self.desk.raw.xpending_range(self.desk.stream, self.group, "-", "+", 1000)
        for each in cast("list[Any]", found):
            self.desk.raw.xclaim(
                *(self.desk.stream, self.group, each["consumer"].decode(), 0, [each["message_id"]]),
                idle=round(seconds * 1000),
                justid=True,
            )

    def latest(self) -> str:
        """The key of its latest claim."""
        return KeyNames().key("latest", self.desk.topic, group=self.group, consumer=self.consumer)

    def traces(self) -> tuple[int, int]:
        """What the group keeps of its own: retries, and what is known of entries."""
        retries, known = self.desk.keys_of(self.group)
        return self.desk.raw.zcard(retries), self.desk.raw.hlen(known)
