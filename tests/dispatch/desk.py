"""One topic with a list or a stream on a real server, with its clock in the test's hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from relay.core.dispatch import Dispatch, ListPolicy, StreamPolicy
from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, Journals
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Settled, Settlement, Verb, Verdict
from relay.core.policy import RetryPolicy, TopicPolicy
from relay.core.timers import Claim, ClaimedTimer, NewTimer
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.journal.entries import JournalReader
from relay.store.keys import KeyNames
from relay.store.server.manifest import verbs
from relay.store.server.scripts import Script, source
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.lua.bench import EXPIRY, NOW, OTHERS, clocked
from tests.lua.rules import Break, replaced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relay.core.dispatch import Promotion, Tidied
    from tests.servers import RunningServer

N1, N2 = b"1" * 16, b"2" * 16
LEASE = 30 * SECOND
LIST = TopicPolicy(dispatch=Dispatch.LIST)
BILLING = TopicPolicy(dispatch=Dispatch.STREAM, stream=StreamPolicy("billing"))


@lru_cache(maxsize=16)
def texts(*breaks: Break) -> Mapping[str, str]:
    """The scripts that come here, reading the time from `<timeline>:now`, with `breaks` applied to what
    promotes, and to what groups do."""
    rooms = ("timeline/", "people/", "list/", "stream/")
    found = [verb for verb in verbs() if verb.startswith(rooms)]
    names = (*found, *(f"{verb}+journal" for verb in found if Script(verb).journaled))
    scripts = {name: source(name) for name in names}
    own = {name: text for name, text in scripts.items() if name.startswith(OTHERS) and "redrive" not in name}
    for each in breaks:
        own = each.apply(own)
    moved = {name: clocked(text) for name, text in (scripts | own).items()}
    for name in ("people/pause", "people/pause+journal"):
        moved[name] = replaced(moved[name], EXPIRY, "")
    return moved


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


class Desk:
    """`raw` is a plain client; `policy` may be changed at any time."""

    def __init__(self, server: RunningServer, topic: str, policy: TopicPolicy, *breaks: Break) -> None:
        self.topic, self.policy, self.keep = topic, policy, 0
        self.keys = KeyNames()
        self.timeline, self.payloads, self.leases, self.dead, self.pause, self.journal = self.keys.of(topic)
        self.ready, self.processing, self.taken, self.marks = (
            self.keys.key(name, topic) for name in ("ready", "processing", "taken", "marks")
        )
        self.raw = server.client()
        self.texts = texts(*breaks)
        self.redis = self.connect(server.url)
        self.store, self.topics = RedisStore(self.redis), RedisTopics(self.redis)
        self.promotions = RedisPromotions(self.redis, lambda _: self.policy)
        self.server = server
        self.at(NOW)

    def connect(self, url: str) -> Server:
        """The server, as this user."""
        journals = Journals(lambda _: self.keep)
        return Server(url, connections=4, timeout=60.0, journals=journals, texts=self.texts)

    def reader(self, consumer: str = "one", group: str = "billing", **policy: Any) -> Reader:
        """A relay of a group of the topic's stream."""
        return Reader(self, consumer, StreamPolicy(group, **policy))

    @property
    def stream(self) -> str:
        return f"{self.keys.stream}:{self.topic}"

    def keys_of(self, group: str = "billing") -> tuple[str, str]:
        """The retries of a group, and what is known of its entries."""
        key = self.keys.key
        return key("retries", self.topic, group=group), key("group", self.topic, group=group)

    def at(self, instant: int) -> None:
        """Set the server's clock (microseconds)."""
        self.raw.set(f"{self.timeline}:now", instant)

    async def close(self) -> None:
        await self.redis.aclose()
        self.raw.close()

    async def put(self, timer_id: str, due: int = NOW, payload: bytes = b"x", **options: Any) -> None:
        await self.store.schedule(self.topic, [NewTimer(timer_id, payload, due, **options)])

    async def promote(self, nonce: bytes = N1, *, limit: int = 500) -> Promotion:
        return await self.promotions.promote(self.topic, limit=limit, nonce=nonce)

    async def tidy(self) -> Tidied:
        return await self.promotions.tidy(self.topic)

    def entries(self) -> list[Entry]:
        """The ready list, what a worker takes next first."""
        return [read(raw) for raw in cast("list[bytes]", self.raw.lrange(self.ready, 0, -1))[::-1]]

    def left(self) -> tuple[int, int, int]:
        """How many entries timeline, payloads and leases have."""
        return (
            self.raw.zcard(self.timeline),
            self.raw.hlen(self.payloads),
            self.raw.hlen(self.leases),
        )

    async def batches(self) -> list[JournalBatch]:
        return await JournalReader(self.redis).read(self.topic, count=1000)

    async def records(self) -> list[JournalRecord]:
        return [record for batch in await self.batches() for record in batch.records]

    def patience(self, seconds: float, *, attempts: int = 25) -> None:
        """How long an entry may be in the processing list, and how often."""
        self.policy = replace(
            self.policy, ready=ListPolicy(seconds), retry=RetryPolicy(max_attempts=attempts)
        )

    def later(self, seconds: float) -> None:
        self.at(NOW + round(seconds * SECOND))


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
        self._nonces = 0

    async def claim(self, *, limit: int = 100, limits: Limits = NO_LIMITS, max_bytes: int = 1 << 20) -> Claim:
        """The round over what is pending always goes on."""
        self.seconds += 10.0
        self._nonces += 1
        nonce = self._nonces.to_bytes(16, "big")
        return await self.source.claim(
            self.desk.topic,
            ClaimRequest(limit=limit, lease=LEASE, nonce=nonce, max_bytes=max_bytes, limits=limits),
        )

    async def take(self, **options: Any) -> list[ClaimedTimer]:
        return list((await self.claim(**options)).timers)

    async def names(self, **options: Any) -> list[str]:
        return [timer.timer_id for timer in await self.take(**options)]

    async def one(self, **options: Any) -> ClaimedTimer:
        (timer,) = await self.take(**options)
        return timer

    async def settle(
        self, timer: ClaimedTimer, verb: Verb = Verb.ACK, *, limits: Limits = NO_LIMITS, **options: Any
    ) -> Settled:
        settlement = Settlement(timer.timer_id, timer.proof, verb, **options)
        (settled,) = await self.source.settle(self.desk.topic, [settlement], limits=limits)
        return settled

    async def extend(self, timer: ClaimedTimer, *, received: bool = False) -> Verdict:
        extension = Extension(timer.timer_id, timer.proof, received)
        (verdict,) = await self.source.extend(self.desk.topic, [extension], lease=LEASE)
        return verdict

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

    def traces(self) -> tuple[int, int]:
        """What the group keeps of its own: retries, and what is known of entries."""
        retries, known = self.desk.keys_of(self.group)
        return self.desk.raw.zcard(retries), self.desk.raw.hlen(known)
