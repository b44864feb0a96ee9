"""The sweep: timers that rest in the cold store and fall due soon go to Redis, once.

Its steps are plan → stage → load → finalise, topic by topic. Each step leaves something that a later sweep
finds: marks in Redis, a plan, staged rows, batches in the ledger, the note that it is done. So a sweep may be
killed anywhere, and the next one goes on there. Decision 0054 says why only this order of steps loses
nothing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from relay.core.errors import InvalidField, OtherLayout, ServiceError
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.pipeline.cold import guarded_load, plans, staging
from relay.pipeline.cold.plans import SWEEP, Plan, Plans, Staged
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.store import BATCH
from relay.store.bulk.sweeping import HeldMarks, Loaded, Loading, Marks, StalePlan

LOCK = 15 * SECOND
"""Microseconds for which a driver owns a topic's marks; it renews them three times in that time."""

MARKS_TTL = 86_400
"""Seconds after which the marks of a sweep that nobody has run again are removed."""

SILENT = 900 * SECOND
"""The shortest time in microseconds after its beginning for which an unsettled write is left to its
writer."""


ABANDONED = 5
"""The most plans of one run that may lose their marks."""


class SweepBusy(ServiceError):
    """Another sweep of this topic is under way, or one over another store was never finished."""


class SweepLost(ServiceError):
    """This sweep has lost its topic to another sweep, which goes on with it."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How to sweep. Times are in microseconds. A `horizon` of None means everything. `wait` is the number of
    seconds to wait for another sweep's marks. `take_over` gives up a plan of another store that nobody has
    finished."""

    horizon: int | None
    batch: int = BATCH
    rate: float | None = None
    wait: float = 20.0
    lock: int = LOCK
    marks_ttl: int = MARKS_TTL
    silent: int = SILENT
    take_over: bool = False  # see 0060


@dataclass(frozen=True, slots=True)
class Swept:
    """The counts of a topic's rows."""

    planned: int = 0
    staged: int = 0
    loaded: int = 0
    live: int = 0
    marked: int = 0
    batches: int = 0
    again: int = 0
    abandoned: int = 0
    finished: int = 0
    """The writes that their writers had left unfinished."""

    def plus(self, other: Swept) -> Swept:
        """Add two counts."""
        mine, theirs = asdict(self), asdict(other)
        return Swept(**{name: mine[name] + theirs[name] for name in mine})


class Sweep:  # see 0054
    """One topic's sweep by one driver. `step` is called with each step as it begins."""

    def __init__(
        self,
        spark: SparkSession,
        cold: ColdStore,
        target: Target,
        topic: str,
        options: SweepOptions,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._spark, self._cold, self._target, self._topic = spark, cold, target, topic
        self._options, self._step = options, step
        self._plans = Plans(cold.files, topic)
        self._driver = secrets.token_hex(8)
        self._abandoned = self._finished = 0

    def run(self) -> Swept:
        """Sweep, or finish what another sweep has begun and then sweep. Raises `SweepBusy`, `SweepLost`,
        `StoreError`, and Spark's errors. Whatever it raises, it can be run again."""
        total = Swept()
        while True:
            self._step("plan")
            number = self._plans.following()
            resumed = self._plans.plan(number) is not None
            marks = self._open(number)
            with self._keeping(marks):
                swept = self._take(number, marks, resumed)
            if swept is not None:
                total = total.plus(swept)
            if swept is not None and not resumed:
                return total.plus(Swept(abandoned=self._abandoned, finished=self._finished))

    def _take(self, number: int, marks: Marks, resumed: bool) -> Swept | None:
        """Take one plan from here to its end. Returns None if it was over, or had no rows, or was begun by
        somebody else. Raises `SweepLost`."""
        plan = self._plans.plan(number)
        if self._plans.done(number) is not None:
            return None
        if plan is None:
            self._finish_writes()
            plan = plans.make(
                self._cold,
                self._plans,
                number,
                marks.epoch,
                self._until(),
                self._options.batch,
                marks.layout.text,
            )
            if not plan.inputs:
                self._close(marks)
                return Swept()
            if not self._plans.begin(plan):
                return None
        if plan.kind != SWEEP:
            self._plans.abandon(number)  # it is a compaction that was killed, or that has to yield
            return None
        if plan.epoch != marks.epoch:  # of another layout, too: marks that stood kept moves away
            self._abandon(number)
            return None
        self._step("stage")
        staged = self._plans.staged(number)
        if staged is not None and not staging.is_there(self._cold, staged):
            self._abandon(number)
            return None
        staged = staged or staging.stage(self._cold, self._plans, plan)
        self._step("load")
        try:
            loaded = guarded_load.load(
                self._spark,
                self._cold.files,
                self._target,
                marks,
                staged,
                rate=self._options.rate,
                again=resumed,
            )
        except StalePlan:
            if self._plans.done(number) is not None:
                raise SweepLost(f"another sweep has finished plan {number} of {self._topic!r}") from None
            self._abandon(number)
            return None
        self._step("finalise")
        self._plans.end(plan, loaded._asdict())
        self._close(marks)
        self._cold.files.remove(staged.folder)
        return _swept(plan, staged, loaded)

    def _until(self) -> int | None:
        horizon = self._options.horizon
        return None if horizon is None else now(self._target, self._topic) + horizon

    def _abandon(self, number: int) -> None:
        """Replace a plan. If its staged rows are gone, the next plan keeps its marks, and brings back nothing
        that ended. If its marks are gone, what it has read may be old: timers that it loaded live, or were
        delivered without a mark, and may be delivered again. Raises `SweepBusy`."""
        if self._abandoned >= ABANDONED:
            raise SweepLost(
                f"Redis keeps losing the marks of {self._topic!r}; does it evict or restart without its data?"
            )
        self._abandoned += self._plans.abandon(number)

    def _finish_writes(self) -> None:
        """Retire what silent writers have not retired, so that their rows may be taken."""
        writes = self._cold.writes()
        settled = {write.manifest for write in self._cold.settled(writes)}
        latest = now(self._target) - self._options.silent
        for write in writes:
            if write.manifest not in settled and self._topic in write.topics and write.began <= latest:
                retire(self._cold, self._target, write)
                self._finished += 1

    # -------------------------------------------------------------------------- marks

    def _open(self, number: int) -> Marks:
        deadline = time.monotonic() + self._options.wait
        while True:
            told = self._opened(number, max(deadline - time.monotonic(), 0.0))
            if isinstance(told, Marks):
                return told
            if not told.micros:
                raise SweepBusy(
                    f"a sweep of {self._topic!r} over {told.place} was not finished (plan {told.plan}): run "
                    "that one again first, or, if nobody ever will, this one with --take-over"
                )
            if time.monotonic() + told.micros / SECOND > deadline:
                raise SweepBusy(
                    f"another sweep of {self._topic!r} is under way, over {told.place}; run this one later"
                )
            time.sleep(told.micros / SECOND)

    def _opened(self, number: int, patience: float) -> Marks | HeldMarks:
        """Open the marks of all partitions, or return those that another has. Raises `SweepBusy` for a topic
        that moves."""
        with self._target.open() as store:
            loading = Loading(store.server)
            while True:
                try:
                    layout = store.layouts.at_rest(self._topic, patience)
                except InvalidField as moves:
                    raise SweepBusy(f"{moves.field}: {moves.problem}") from None
                try:
                    return self._open_all(loading, layout, str(number))
                except OtherLayout as told:
                    store.layouts.learn(self._topic, told.layout)

    def _open_all(self, loading: Loading, layout: Layout, plan: str) -> Marks | HeldMarks:
        """The first partition's marks keep others away, and moves. They come first."""
        epochs: list[str] = []
        for partition in layout.partitions:
            told = loading.open(
                partition,
                plan,
                self._driver,
                lock=self._options.lock,
                ttl=self._options.marks_ttl,
                epoch=secrets.token_hex(8),
                store=self._cold.name,
                place=self._cold.place,
                take_over=self._options.take_over,
            )
            if isinstance(told, HeldMarks):
                return told
            epochs.append(told)
        return Marks(layout, " ".join(epochs), plan)

    def _close(self, marks: Marks) -> None:
        with self._target.open() as store, suppress(OtherLayout):  # then they are not this plan's
            Loading(store.server).close(marks.layout, marks.plan, self._driver)

    @contextmanager
    def _keeping(self, marks: Marks) -> Generator[None, None, None]:
        """Keep the marks within the block. A failure breaks nothing: a load notices lost marks by itself."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(self._options.lock / SECOND / 3):
                try:
                    with self._target.open() as store:
                        Loading(store.server).keep(
                            marks.layout,
                            marks.plan,
                            self._driver,
                            lock=self._options.lock,
                            ttl=self._options.marks_ttl,
                        )
                except ServiceError:
                    continue

        thread = threading.Thread(target=keep, name="marks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def now(target: Target, topic: str = "") -> int:
    """Return the microseconds since 1970 by the clock of Redis. See `BlockingServer.now`."""
    with target.open() as store:
        return store.now(topic)


def _swept(plan: Plan, staged: Staged, loaded: Loaded) -> Swept:
    return Swept(
        planned=plan.rows,
        staged=staged.rows,
        loaded=loaded.loaded,
        live=loaded.live,
        marked=loaded.marked,
        batches=loaded.batches,
        again=loaded.again,
    )
