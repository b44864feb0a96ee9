"""What a sweep does in Redis: a topic's marks, the guarded load, and what a write to the cold store retires.

The scripts `bulk/marks`, `bulk/guarded_load`, `bulk/retire` say what they promise and which races they close.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from relay.core.errors import StoreRefused
from relay.core.partitions import Layout
from relay.store.bulk.columns_call import PackedRows, UnderWay, version_text
from relay.store.server.blocking import BlockingServer
from relay.store.verbs import bulk

RETIRING = 7 * 86_400
"""Seconds for which Redis remembers who retires. A job that comes later asks again."""


class StalePlan(StoreRefused):
    """The marks under which the plan was made are gone, or another plan has them, so what it has read is
    old."""


class Fenced(StoreRefused):
    """A sweep has finished this write in its writer's place."""


class HeldMarks(NamedTuple):
    """Marks that another has: its plan, where that one's cold store lies, and for how many microseconds it
    keeps them. 0: a plan of another store that nobody keeps, and that is not done."""

    micros: int
    plan: str
    place: str


class Marks(NamedTuple):
    """What a load has to show: the plan, and the epochs of the marks in all partitions, with blanks between
    them.

    `staging` goes before the batches' numbers in the ledger: plans of a store that was copied have the same
    numbers, and may find what a sweep of this one has left that was killed.
    """

    layout: Layout
    epoch: str
    plan: str
    staging: str = ""

    def of(self, number: int) -> tuple[str, str]:
        """The name of a partition, and the epoch of its marks."""
        return self.layout.partitions[number], self.epoch.split(" ")[number]

    def name_of(self, batch: int | str) -> str:
        """A batch, or a part of one, as the ledger has it."""
        return f"{self.staging}:{batch}" if self.staging else str(batch)


class Loaded(NamedTuple):
    """The counts of batches; `again` counts those that had been loaded before."""

    batches: int = 0
    loaded: int = 0
    live: int = 0
    marked: int = 0
    again: int = 0

    def plus(self, other: Loaded) -> Loaded:
        return Loaded(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Loading:
    """What a sweep does over a server that is its own."""

    def __init__(self, server: BlockingServer) -> None:
        self._server = server
        self._under_way = UnderWay(server)
        self._ready: Layout | None = None
        self.done = Loaded()
        """What all batches came to whose replies have come."""

    # -------------------------------------------------------------------- marks
    # Each partition has its own: a script that ends a timer finds them beside it. Those of the first one also
    # keep other sweeps and moves away, so they are opened first and closed last.

    def open(
        self,
        partition: str,
        plan: str,
        driver: str,
        *,
        lock: int,
        ttl: int,
        epoch: str,
        store: str,
        place: str = "",
        take_over: bool = False,
    ) -> str | HeldMarks:
        """The marks' epoch: `epoch` if there were none, and from now on there are. Or whose they are. `lock`
        in microseconds, `ttl` in seconds; `store` is the cold store's name, `place` for people. `take_over`:
        the plan of another store that nobody keeps is given up. Raises `StoreError`; `NotOffered` if the
        server can't give the durability of what is to be loaded."""
        self._server.require(partition)
        word, *told = self._server.call(
            bulk.open_marks(
                partition,
                plan,
                driver,
                lock=lock,
                ttl=ttl * 1000,
                epoch=epoch,
                store=store,
                place=place,
                take_over=take_over,
            )
        )
        if word == b"OPEN":
            return told[0].decode()
        micros = int(told.pop(0)) if word == b"BUSY" else 0
        return HeldMarks(micros, *(each.decode() for each in told))

    def keep(self, layout: Layout, plan: str, driver: str, *, lock: int, ttl: int) -> bool:
        """Whether all are this driver's still, and for another `lock`."""
        replies = self._server.each(
            [bulk.keep_marks(name, plan, driver, lock=lock, ttl=ttl * 1000) for name in layout.partitions]
        )
        return all(word == b"OK" for word, *_ in replies)

    def close(self, layout: Layout, plan: str, driver: str) -> bool:
        """Whether all were this driver's; there are none then."""
        replies = self._server.each([bulk.close_marks(name, plan, driver) for name in layout.partitions[1:]])
        replies.append(self._server.call(bulk.close_marks(layout.partitions[0], plan, driver)))
        return all(word == b"OK" for word, *_ in replies)

    # --------------------------------------------------------------------- load

    def load(self, marks: Marks, rows: PackedRows) -> None:
        """Insert the batch once, in its partition; `flush` confirms it. Raises `StalePlan` and
        `StoreError`."""
        if marks.layout != self._ready:
            self.flush()
            self._server.look_for_journals(marks.layout.partitions)
            self._ready = marks.layout
        partition, epoch = marks.of(rows.partition)
        name = marks.name_of(rows.batch)
        call = bulk.guarded_load(partition, epoch, marks.plan, name, rows.versions, rows.expires)
        self._under_way.send(call, rows, self._count, _stale)

    def skip(self, marks: Marks, batch: int | str, number: int = 0) -> bool:
        """Whether a batch of the partition of this number was loaded before; then it counts. Raises
        `StalePlan` and `StoreError`."""
        self.flush()
        partition, own_epoch = marks.of(number)
        self._server.owe(partition)
        key, entry = self._server.keys.key("marks", partition), f"b{marks.plan}:{marks.name_of(batch)}"
        epoch, plan, done = self._server.ask("HMGET", key, "epoch", "plan", entry)
        if (epoch, plan) != (own_epoch.encode(), marks.plan.encode()):
            _stale()
        if done is None:
            return False
        self.done = self.done.plus(Loaded(1, *_ENTRY.unpack(done))._replace(again=1))
        return True

    def flush(self) -> None:
        """Wait for all that is under way. Raises `StalePlan` and `StoreError`."""
        self._under_way.flush()

    def _count(self, answer: Any) -> None:
        word, *counts = answer
        if word == b"STALE_PLAN":
            _stale()
        self.done = self.done.plus(Loaded(1, *counts)._replace(again=int(word == b"DONE")))

    # ------------------------------------------------------------------- retire

    def may_retire(self, layout: Layout, version: int, token: str) -> None:
        """Make `token` the only one that may retire for the version's rows. None may retire for older rows
        until it has asked again. Raises `StoreError`."""
        keys = [self._server.keys.key("retiring", name) for name in layout.partitions]
        own = version_text(version).encode()
        for key, names in zip(keys, self._server.ask_each([("HKEYS", key) for key in keys]), strict=True):
            older = [name for name in names if name < own]
            if older:
                self._server.ask("HDEL", key, *older)
        self._server.ask_each([("HSET", key, version_text(version), token) for key in keys])
        self._server.ask_each([("EXPIRE", key, RETIRING) for key in keys])

    def has_retired(self, layout: Layout, version: int) -> None:
        """Note that nobody needs to retire for the version's rows any more."""
        keys = [self._server.keys.key("retiring", name) for name in layout.partitions]
        self._server.ask_each([("HDEL", key, version_text(version)) for key in keys])

    def retire(self, partition: str, version: int, token: str, timer_ids: Sequence[str | bytes]) -> int:
        """Remove at most 500 timers of one partition from Redis; return how many lived. Raises `Fenced` and
        `StoreError`."""
        reply = self._server.call(bulk.retire(partition, version_text(version), token, timer_ids))
        if reply[0] == b"FENCED":
            raise Fenced("a sweep has finished this write to the cold store; nothing is left to do")
        return int(reply[1])


def _stale(*_: object) -> NoReturn:
    raise StalePlan("the marks of this plan are gone; make a new plan")


_ENTRY = Struct("<III")
"""The ledger's: loaded, live, marked."""
