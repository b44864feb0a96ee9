"""A bench for the scripts: one topic on a real server, its clock in the test's hand, its keys in sight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, Journals
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Settled, Settlement, Verb, Verdict
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserted, Inserting
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loaded, Loading, Marks
from relay.store.codec import envelope, lease_record
from relay.store.codec.lease_record import NO_NONCE, LeaseRecord
from relay.store.journal.entries import JournalReader
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.manifest import verbs
from relay.store.server.scripts import Call, Script, source
from relay.store.server.server import Server, ServerReports
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs.bulk import pace
from tests.lua.rules import Break, replaced

if TYPE_CHECKING:
    from redis.client import PubSub

    from relay.core.timers import Claim
    from tests.servers import RunningServer

NOW = 1_767_225_600_000_000  # 2026-01-01, microseconds
LEASE = 30 * SECOND
GRACE = 60 * SECOND
N1, N2, N3 = b"1" * 16, b"2" * 16, b"3" * 16
ENVELOPE = envelope.encode(b"payload", {}, "")

SYSTEM_CLOCK = "  local t = redis.call('TIME')\n  return t[1] * 1000000 + t[2]\n"
INJECTED_CLOCK = (
    "  local held, t = redis.call('GET', KEYS[1] .. ':now'), redis.call('TIME')\n"
    "  return held and tonumber(held) or t[1] * 1000000 + t[2]\n"
)
BY_OUR_CLOCK, BY_THE_SYSTEMS = "if now_us > until_us", "if redis.call('TIME')[1] * 1000000 > until_us"
"""Until when a call may act is told by the server's own clock, whatever the test's shows."""

EXPIRY = ", 'PXAT', string.format('%.0f', math.ceil(till / 1000))"  # goes by the server's own clock
OTHERS = ("list/", "stream/")
"""Where the scripts stand that `tests/dispatch` has."""


def clocked(text: str) -> str:
    """A script that reads the time from `<first key>:now`."""
    return replaced(text, SYSTEM_CLOCK, INJECTED_CLOCK).replace(BY_OUR_CLOCK, BY_THE_SYSTEMS)


@lru_cache(maxsize=8)  # a broken set is of no use to the next test
def texts(*breaks: Break) -> Mapping[str, str]:
    """All scripts, reading the time from `<first key>:now`, with `breaks` applied."""
    found = [verb for verb in verbs() if not verb.startswith(OTHERS) or verb == "stream/redrive"]
    names = (*found, *(f"{verb}+journal" for verb in found if Script(verb).journaled))
    scripts = {name: source(name) for name in names}
    for each in breaks:
        scripts = each.apply(scripts)
    scripts = {name: clocked(text) for name, text in scripts.items()}
    for name in ("people/pause", "people/pause+journal"):
        scripts[name] = replaced(scripts[name], EXPIRY, "")
    return scripts


def score(instant: int) -> float:
    """A whole microsecond, as publishers write it."""
    return instant / 1e6


def own(instant: int) -> float:
    """The score that only Relay writes: a whole microsecond + 2^-21 s."""
    return instant / 1e6 + 2**-21


def record(state: int, score: float, *, due: float, nonce: bytes = NO_NONCE, **rest: Any) -> LeaseRecord:
    """A record; what is not given is zero, and `claims` is 1."""
    fields = {"received": 0, "suspect": 0, "approximate": 0, "attempts": 0, "claims": 1, "occurrence": N1}
    fields |= {"expires": 0.0}
    return LeaseRecord(version=2, state=state, score=score, due=due, nonce=nonce, **{**fields, **rest})


class Letter(NamedTuple):
    """A dead letter but for its id, which the server makes; `due` in unix seconds, `died` in microseconds."""

    timer_id: str
    reason: str
    attempts: int
    claims: int
    due: float
    died: int
    occurrence: bytes
    error: bytes = b""
    envelope: bytes = ENVELOPE


class State(NamedTuple):
    """All that a topic's keys hold but for the journal; ids that are not UTF-8 come as surrogate escapes."""

    timeline: dict[str, float]
    payloads: dict[str, bytes]
    leases: dict[str, LeaseRecord]
    dead: tuple[Letter, ...] = ()
    pause: int | None = None

    def of(self, timer_id: str) -> tuple[float | None, bytes | None, LeaseRecord | None]:
        """What they hold of one timer."""
        return self.timeline.get(timer_id), self.payloads.get(timer_id), self.leases.get(timer_id)


EMPTY = State({}, {}, {})


def alone(timer_id: str, at: float, lease: LeaseRecord | None = None, *, stored: bytes = ENVELOPE) -> State:
    """The state of a topic with one timer."""
    return State({timer_id: at}, {timer_id: stored}, {timer_id: lease} if lease else {})


class Bench:
    """One topic. `raw` is a plain client, `store` what is tested."""

    def __init__(self, server: RunningServer, topic: str, *breaks: Break) -> None:
        self.topic = topic
        self.keys = KeyNames().of(topic)
        self.timeline, self.payloads, self.leases, self.dead, self.pause, self.journal = self.keys
        self.keep, self.trimmed = 0, 0
        self.unheard: list[str] = []
        self.marks = KeyNames().key("marks", topic)
        own_pace = KeyNames(topics=f"{KeyNames().topics}:{topic}")
        self.pace = own_pace.pace
        self.server = server
        self.raw = server.client()
        self.texts = texts(*breaks)
        self.journals = Journals(lambda _: self.keep, self._trimmed)
        self.redis = self.connect(server.url)
        self.store = RedisStore(self.redis, park_grace=GRACE)
        self.topics = RedisTopics(self.redis)
        self.blocking = BlockingServer(server.url, journals=self.journals, texts=self.texts)
        self.bulk, self.loading = BulkStore(self.blocking), Loading(self.blocking)
        self.paced = BlockingServer(server.url, own_pace, texts=self.texts)
        self.now = NOW

    def connect(self, url: str) -> Server:
        """The server, as this user."""
        return Server(
            url,
            connections=4,
            timeout=60.0,
            journals=self.journals,
            reports=ServerReports(refused_hint=self.unheard.append),
            texts=self.texts,
        )

    @property
    def now(self) -> int:
        """The server's clock (microseconds)."""
        return self._now

    @now.setter
    def now(self, instant: int) -> None:
        self._now = instant
        self.raw.set(f"{self.timeline}:now", instant)
        self.raw.set(f"{self.marks}:now", instant)
        self.raw.set(f"{self.pace}:now", instant)

    def _trimmed(self, topic: str, count: int) -> None:
        assert topic == self.topic
        self.trimmed += count

    async def batches(self) -> list[JournalBatch]:
        """The topic's whole journal."""
        return await JournalReader(self.redis).read(self.topic, count=1000)

    def open(self, plan: str = "1", driver: str = "d", *, epoch: str = "e", store: str = "s") -> Marks:
        """Open marks for a sweep's plan."""
        told = self.loading.open(
            self.topic, plan, driver, lock=15 * SECOND, ttl=3600, epoch=epoch, store=store
        )
        assert isinstance(told, str), told
        return Marks(self.topic, told, plan)

    def load(
        self, marks: Marks, *timer_ids: str, batch: int = 0, due: int | None = None, version: int = 10
    ) -> Loaded:
        """Load them as one batch; what that came to."""
        due = self.now + SECOND if due is None else due
        before = self.loading.done
        size = len(timer_ids)
        rows = LoadRows(batch, timer_ids, [due] * size, [ENVELOPE] * size, [version])
        self.loading.load(marks, PackedRows.of(rows))
        self.loading.flush()
        return Loaded(*(new - old for new, old in zip(self.loading.done, before, strict=True)))

    def insert(
        self, *timer_ids: str, run: str = "r", due: int | None = None, spare: bool = False
    ) -> Inserted:
        """Insert them as one batch of a run; what became of them."""
        due = self.now + SECOND if due is None else due
        rows = LoadRows(0, timer_ids, [due] * len(timer_ids), [ENVELOPE] * len(timer_ids), [])
        return self.insert_rows(rows, run=run, spare=spare)

    def insert_rows(self, rows: LoadRows, *, run: str = "r", spare: bool = False) -> Inserted:
        """The same for any rows."""
        inserting = Inserting(self.bulk, run, spare=spare)
        inserting.insert(self.topic, PackedRows.of(rows))
        inserting.flush()
        return inserting.done

    def ledger(self, run: str = "r") -> str:
        """The key of a run's ledger."""
        return KeyNames().key("ledger", self.topic, run=run)

    def retire(self, *timer_ids: str, version: int = 20) -> int:
        """Retire them for a write of that version; how many lived."""
        self.loading.may_retire(self.topic, version, "w")
        return self.loading.retire(self.topic, version, "w", timer_ids)

    def turn(self, lasts: int) -> int:
        """Take a turn of so many microseconds; in how many it begins."""
        return int(self.paced.call(pace(lasts)))

    async def close(self) -> None:
        self.bulk.close()
        self.paced.close()
        await self.redis.aclose()
        self.raw.close()

    def put(
        self,
        timer_id: str | bytes,
        at: float,
        lease: LeaseRecord | None = None,
        *,
        stored: bytes | None = ENVELOPE,
    ) -> None:
        """Write a timer as a publisher does, and a record where one is given."""
        self.raw.zadd(self.timeline, {cast("str", timer_id): at})
        if stored is not None:
            self.put_payload(timer_id, stored)
        if lease is not None:
            self.put_record(timer_id, lease_record._RECORD.pack(*lease))

    def put_payload(self, timer_id: str | bytes, stored: bytes = ENVELOPE) -> None:
        self.raw.hset(self.payloads, cast("str", timer_id), cast("str", stored))

    def put_record(self, timer_id: str | bytes, raw: bytes) -> None:
        self.raw.hset(self.leases, cast("str", timer_id), cast("str", raw))

    def put_letter(self, letter: Letter, name: str = "*") -> str:
        """Write a dead letter; answers its id."""
        fields = {key: _written(value) for key, value in letter._asdict().items()}
        return cast("bytes", self.raw.xadd(self.dead, cast("Any", fields), id=name)).decode()

    def state(self) -> State:
        timeline = cast("list[tuple[bytes, float]]", self.raw.zrange(self.timeline, 0, -1, withscores=True))
        payloads = cast("dict[bytes, bytes]", self.raw.hgetall(self.payloads))
        leases = cast("dict[bytes, bytes]", self.raw.hgetall(self.leases))
        till = cast("bytes | None", self.raw.get(self.pause))
        return State(
            {_text(timer_id): at for timer_id, at in timeline},
            {_text(timer_id): stored for timer_id, stored in payloads.items()},
            {_text(timer_id): lease_record.read(raw) for timer_id, raw in leases.items()},
            tuple(_letter(fields) for _, fields in self.entries()),
            None if till is None else int(till),
        )

    def entries(self) -> list[tuple[str, dict[bytes, bytes]]]:
        """The dead letters as they are stored, the oldest first; there is no stream without any."""
        found = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.raw.xrange(self.dead))
        assert found or not self.raw.exists(self.dead), "an empty stream was left behind"
        return [(name.decode(), fields) for name, fields in found]

    def dead_ids(self) -> list[str]:
        return [name for name, _ in self.entries()]

    async def run(self, verb: str, *args: bytes | str | int) -> Any:
        """The script's reply as it comes."""
        return await self.redis.call(Call(verb, self.topic, args))

    async def claim(
        self,
        nonce: bytes = N1,
        *,
        limit: int = 100,
        lease: int = LEASE,
        max_bytes: int = 1 << 20,
        limits: Limits = NO_LIMITS,
    ) -> Claim:
        return await self.store.claim(
            self.topic,
            ClaimRequest(limit=limit, lease=lease, nonce=nonce, max_bytes=max_bytes, limits=limits),
        )

    async def claimed(self, nonce: bytes = N1, **options: Any) -> list[str]:
        """The ids that a claim takes."""
        return [timer.timer_id for timer in (await self.claim(nonce, **options)).timers]

    async def settle(
        self, timer_id: str, nonce: bytes, verb: Verb, *, limits: Limits = NO_LIMITS, **options: Any
    ) -> Settled:
        settlement = Settlement(timer_id, nonce, verb, **options)
        (settled,) = await self.store.settle(self.topic, [settlement], limits=limits)
        return settled

    async def extend(
        self, timer_id: str, nonce: bytes, *, received: bool = False, lease: int = LEASE
    ) -> Verdict:
        extension = Extension(timer_id, nonce, received)
        (verdict,) = await self.store.extend(self.topic, [extension], lease=lease)
        return verdict

    @contextmanager
    def full(self) -> Iterator[None]:
        """Redis is at its maxmemory within."""
        self.raw.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.raw.config_set("maxmemory", 0)

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Nobody may publish within."""
        self.raw.execute_command("ACL", "SETUSER", "default", "-publish")
        try:
            yield
        finally:
            self.raw.execute_command("ACL", "SETUSER", "default", "+publish")

    @contextmanager
    def listening(self) -> Iterator[Ear]:
        """Hear the topic's wake hints."""
        with self.raw.pubsub() as pubsub:
            yield Ear(self, pubsub)


class Ear:
    """Hears the hints on a topic's channel."""

    def __init__(self, bench: Bench, pubsub: PubSub) -> None:
        self._bench, self._pubsub = bench, pubsub
        self._channel = KeyNames().channel(bench.topic)
        pubsub.subscribe(self._channel)
        assert pubsub.get_message(timeout=60.0) is not None  # the subscription's own confirmation

    def heard(self) -> list[float]:
        """All hints since the last look."""
        self._bench.raw.publish(self._channel, "end")  # comes after all that was published before
        hints: list[float] = []
        while True:
            message = self._pubsub.get_message(timeout=60.0)
            assert message is not None, "no message within a minute"
            if message["data"] == b"end":
                return hints
            hints.append(float(message["data"]))


def _text(timer_id: bytes) -> str:
    return timer_id.decode(errors="surrogateescape")


def _written(value: str | bytes | float) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode(errors="surrogateescape")


def _letter(fields: Mapping[bytes, bytes]) -> Letter:
    return Letter(
        timer_id=_text(fields[b"timer_id"]),
        reason=fields[b"reason"].decode(),
        attempts=int(fields[b"attempts"]),
        claims=int(fields[b"claims"]),
        due=float(fields[b"due"]),
        died=int(fields[b"died"]),
        occurrence=fields[b"occurrence"],
        error=fields[b"error"],
        envelope=fields[b"envelope"],
    )
