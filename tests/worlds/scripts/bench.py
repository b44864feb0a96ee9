"""A bench for the scripts: one topic on a real server, its clock in the test's hand, its keys in sight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Self, cast

from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, Journals
from relay.core.partitions import Layout, layout_of, topic_of
from relay.core.timers import REPLACE, OnConflict
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserted, Inserting
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loaded, Loading, Marks
from relay.store.codec import lease_record
from relay.store.codec.lease_record import LeaseRecord
from relay.store.journal.entries import JournalReader
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import Call
from relay.store.server.server import Server, ServerReports
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs.bulk import pace
from tests.worlds.scripts.asking import NOW, Scheduling
from tests.worlds.scripts.rules import Break
from tests.worlds.scripts.states import ENVELOPE, Letter, State, letter_of, packed, text_of_id, written
from tests.worlds.scripts.texts import texts

if TYPE_CHECKING:
    from redis.client import PubSub

    from tests.servers import RunningServer

LIMIT = b"debounced "
GRACE = 60 * SECOND


class Bench(Scheduling):
    """One topic. `raw` is a plain client, `store` what is tested; `breaks` are of the scripts in `broken`."""

    store: RedisStore
    broken: tuple[str, ...] = (
        "timeline/",
        "people/",
        "bulk/",
        "layout/",
        "move/",
        "recur/",
        "stream/redrive",
    )

    def __init__(self, server: RunningServer, topic: str, *breaks: Break) -> None:
        self._name_keys(topic)
        self.keep, self.trimmed = 0, 0
        self.unheard: list[str] = []
        own_pace = KeyNames(topics=f"{KeyNames().topics}:{topic}")
        self.pace = own_pace.pace
        self.server = server
        self.raw = server.client()
        self.texts = texts(self.broken, *breaks)
        self.journals = Journals(lambda _: self.keep, self._trimmed)
        self.redis = self.connect(server.url)
        super().__init__(RedisStore(self.redis, park_grace=GRACE), topic)
        self.topics = RedisTopics(self.redis)
        self.blocking = BlockingServer(server.url, journals=self.journals, texts=self.texts)
        self.bulk, self.loading = BulkStore(self.blocking), Loading(self.blocking)
        self.paced = BlockingServer(server.url, own_pace, texts=self.texts)
        self.now = NOW

    def _name_keys(self, topic: str) -> None:
        self.keys = KeyNames().of(topic)
        self.timeline, self.payloads, self.leases, self.dead, self.pause, self.journal = self.keys
        self.marks, self.relays = KeyNames().key("marks", topic), KeyNames().key("relays", topic)

    def at(self, partition: str) -> Self:
        """The same bench with a partition of the topic before it, such as `3 2 8 16`."""
        there = copy(self)
        there.topic = f"{topic_of(self.topic)}#{partition}"
        there._name_keys(there.topic)
        there.now = self.now
        return there

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
        clocks = (self.timeline, self.leases, self.relays, self.pace)
        self.raw.mset({f"{key}:now": instant for key in clocks})

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
        return Marks(layout_of(self.topic), told, plan)

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
        self, *timer_ids: str, run: str = "r", due: int | None = None, on_conflict: OnConflict = REPLACE
    ) -> Inserted:
        """Insert them as one batch of a run; what became of them."""
        due = self.now + SECOND if due is None else due
        rows = LoadRows(0, timer_ids, [due] * len(timer_ids), [ENVELOPE] * len(timer_ids), [])
        return self.insert_rows(rows, run=run, on_conflict=on_conflict)

    def insert_rows(self, rows: LoadRows, *, run: str = "r", on_conflict: OnConflict = REPLACE) -> Inserted:
        """The same for any rows."""
        inserting = Inserting(self.bulk, run, on_conflict=on_conflict)
        inserting.insert(self.topic, PackedRows.of(rows))
        inserting.flush()
        return inserting.done

    def replace(self, *timer_ids: str, due: int | None = None) -> None:
        """Write them as one batch of a load without a run."""
        due = self.now + SECOND if due is None else due
        self.replace_rows(LoadRows(0, timer_ids, [due] * len(timer_ids), [ENVELOPE] * len(timer_ids), []))

    def replace_rows(self, rows: LoadRows) -> None:
        """The same for any rows."""
        self.bulk.replace(self.topic, PackedRows.of(rows))
        self.bulk.flush()

    def ledger(self, run: str = "r") -> str:
        """The key of a run's ledger."""
        return KeyNames().key("ledger", self.topic, run=run)

    def retire(self, *timer_ids: str, version: int = 20) -> int:
        """Retire them for a write of that version; how many lived."""
        self.loading.may_retire(Layout(self.topic), version, "w")
        return self.loading.retire(self.topic, version, "w", timer_ids)

    def turn(self, lasts: int) -> int:
        """Take a turn of so many microseconds; in how many it begins."""
        return int(self.paced.call(pace(lasts)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.bulk.close()
        self.paced.close()
        await self.redis.aclose()
        self.raw.close()

    def put(
        self,
        timer_id: str | bytes,
        at: float,
        lease: LeaseRecord | str | None = None,
        *,
        stored: bytes | None = ENVELOPE,
    ) -> None:
        """Write a timer as a publisher does, and a record where one is given."""
        self.raw.zadd(self.timeline, {cast("str", timer_id): at})
        if stored is not None:
            self.put_payload(timer_id, stored)
        if lease is not None:
            self.put_record(timer_id, packed(lease))

    def put_payload(self, timer_id: str | bytes, stored: bytes = ENVELOPE) -> None:
        self.raw.hset(self.payloads, cast("str", timer_id), cast("str", stored))

    def put_record(self, timer_id: str | bytes, raw: bytes) -> None:
        self.raw.hset(self.leases, cast("str", timer_id), cast("str", raw))

    def put_letter(self, letter: Letter, name: str = "*") -> str:
        """Write a dead letter; answers its id."""
        fields = {key: written(value) for key, value in letter._asdict().items()}
        return cast("bytes", self.raw.xadd(self.dead, cast("Any", fields), id=name)).decode()

    def state(self) -> State:
        timeline = cast("list[tuple[bytes, float]]", self.raw.zrange(self.timeline, 0, -1, withscores=True))
        payloads = cast("dict[bytes, bytes]", self.raw.hgetall(self.payloads))
        leases = cast("dict[bytes, bytes]", self.raw.hgetall(self.leases))
        records = {timer_id: raw for timer_id, raw in leases.items() if not raw.startswith(LIMIT)}
        till = cast("bytes | None", self.raw.get(self.pause))
        return State(
            {text_of_id(timer_id): at for timer_id, at in timeline},
            {text_of_id(timer_id): stored for timer_id, stored in payloads.items()},
            {text_of_id(timer_id): lease_record.read(raw) for timer_id, raw in records.items()},
            tuple(letter_of(fields) for _, fields in self.stored_letters()),
            None if till is None else int(till),
            {text_of_id(timer_id): raw.decode() for timer_id, raw in leases.items() if raw.startswith(LIMIT)},
        )

    def stored_letters(self) -> list[tuple[str, dict[bytes, bytes]]]:
        """The dead letters as they are stored, the oldest first; there is no stream without any."""
        found = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.raw.xrange(self.dead))
        assert found or not self.raw.exists(self.dead), "an empty stream was left behind"
        return [(name.decode(), fields) for name, fields in found]

    def dead_ids(self) -> list[str]:
        return [name for name, _ in self.stored_letters()]

    async def run(self, verb: str, *args: bytes | str | int) -> Any:
        """The script's reply as it comes."""
        return await self.redis.call(Call(verb, self.topic, args))

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
