"""The sweep: timers that rest in the cold store and fall due soon go to Redis, once.

Its steps are plan → stage → load → finalise, for all topics together. Each step leaves something that a later
sweep finds: marks in Redis, a plan, staged rows, batches in the ledger, the note that it is done. So a sweep
may be killed anywhere, and the next one goes on there. Decision 0054 says why only this order of steps loses
nothing, decision 0104 how a plan says what it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from relay.core.errors import ServiceError
from relay.core.instants import SECOND
from relay.pipeline.cold import guarded_load, staging
from relay.pipeline.cold.guarded_load import LoadEnd
from relay.pipeline.cold.intents import due
from relay.pipeline.cold.plans import Plan, Share, Staged
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore, State
from relay.pipeline.cold.sweep_options import SweepOptions, Swept
from relay.pipeline.cold.table import FAILURES, TableGone
from relay.pipeline.cold.taken import EVER, Reach
from relay.pipeline.cold.topic_marks import Lock, Opened, TopicMarks
from relay.pipeline.rows.sealing import NOT_SEALED, is_plain, sealed_topics
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.cold_counts import TellsColdCounts
from relay.store.bulk.sweeping import Marks

HOUR = 3600 * SECOND

ABANDONED = 5
"""The most plans of one run that may lose a topic's marks."""


class SweepLost(ServiceError):
    """This sweep has lost its plan to another sweep, which has finished it; or Redis keeps losing marks."""


class TopicRefused(ServiceError):
    """Redis refused a topic's timers."""


@dataclass(frozen=True, slots=True)
class Look:
    """What rests and is due: a state of the store, how far we looked, and by topic how many rows, and the
    oldest version."""

    state: State
    reach: Reach
    rows: Mapping[str, tuple[int, int]]


class Sweep:  # see 0054, 0104
    """One driver's sweep, of some topics or of all. `step` is called with each step as it begins."""

    def __init__(
        self,
        spark: SparkSession,
        cold: ColdStore,
        target: Target,
        topics: Collection[str] | None,
        options: SweepOptions,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._spark, self._cold, self._target, self._topics = spark, cold, target, topics
        self._options, self._step = options, step
        self._plans = cold.plans
        lock = Lock(options.lock, options.marks_ttl, options.take_over)
        self._marks = TopicMarks(cold, target, lock)
        self._abandoned: Counter[str] = Counter()
        self._barred: set[str] = set()
        """Sealed topics of which rows rest in the clear, and for which there is no keyring."""
        self._finished = 0
        self.left_out: dict[str, ServiceError] = {}
        """The topics that were not swept, and why: they are busy, or failed."""
        self.unfinished: dict[int, str] = {}
        """Writes of silent writers that could not be finished, and why: they wait."""
        self.topics = 0
        """How many topics had anything to take."""

    def run(self) -> Swept:
        """Sweep, or finish what another sweep has begun and then sweep. A topic that is busy, or fails, is
        left out. Raises `SweepBusy` if another sweep over this store is under way, `SweepLost`, `StoreError`,
        and Spark's errors. Whatever it raises, it can be run again."""
        total, over = Swept(), False
        while not over:
            self._step("plan")
            number = self._plans.following()
            plan = self._plans.plan(number)
            if plan is None:
                swept, over = self._fresh(number)
            else:
                opened = self._opened(plan.topics, number, resumed=True)
                with self._marks.kept(opened.marks.values()):
                    swept = self._take(plan, opened, resumed=True)
            total = total.plus(swept)
        self._marks.close_all(self.left_out)
        return replace(total, finished=self._finished)

    def _fresh(self, number: int) -> tuple[Swept, bool]:
        """Make a plan and take it. Returns also whether nothing is left to do."""
        self._close_left(number - 1)
        self._finish_writes()
        look = self._without_barred(self.look())
        self.topics = max(self.topics, len(look.rows))
        opened = self._opened(look.rows, number, resumed=False)
        if not opened.marks:
            return Swept(), True
        with self._marks.kept(opened.marks.values()):
            plan = self.planned(number, look, opened)
            if plan is None:
                return Swept(), False
            swept = self._take(plan, opened, resumed=False)
        return swept, not swept.abandoned

    # ------------------------------------------------------------------------------ plan

    def look(self) -> Look:
        """Count what rests and is due."""
        state = self._cold.state()
        until = EVER
        if self._options.horizon is not None:
            until = min((now(self._target) + self._options.horizon) // HOUR * HOUR + HOUR, EVER)
        rows = due(self._cold, state, until, self._topics)
        counts = rows.groupBy("topic").agg(f.count("*").alias("rows"), f.min("version").alias("oldest"))
        found = {row["topic"]: (row["rows"], row["oldest"]) for row in counts.collect()}  # one a topic
        return Look(state, Reach(state.settled, until), found)

    def _without_barred(self, look: Look) -> Look:
        """Leave out the sealed topics that have rows in the clear, if there is no keyring to seal them."""
        rows = dict(look.rows)
        if not self._target.keyring and (sealed := sealed_topics(self._target, rows)):
            resting = due(self._cold, look.state, look.reach.until, sealed).where(is_plain(f.col("envelope")))
            for row in resting.groupBy("topic").count().collect():
                self.left_out[row["topic"]] = TopicRefused(NOT_SEALED.format(rows=row["count"]))
                self._barred.add(row["topic"])
        for topic in self._barred:
            rows.pop(topic, None)
        return replace(look, rows=rows)

    def _opened(self, topics: Collection[str], number: int, *, resumed: bool) -> Opened:
        """Open the marks of the topics that have any rows. Raises `SweepBusy` if this plan is another
        driver's."""
        opened = self._marks.open(topics, str(number), self._options.wait)
        for topic, busy in opened.refused.items():
            if resumed and busy.held == (str(number), self._cold.place):
                raise busy
            self.left_out[topic] = busy
        for topic in opened.marks:
            self.left_out.pop(topic, None)
        return opened

    def planned(self, number: int, look: Look, opened: Opened) -> Plan | None:
        """Begin a plan with what a look has found, of the topics that have marks by now; None if somebody
        else has begun one.

        What the look found does not change, but newer rows may have come: these are read under the marks, as
        all that ends from now on leaves a mark.
        """
        if not opened.marks:
            return None
        state = self._cold.state()
        known = replace(
            state.known,
            numbers={v: each for v, each in state.known.numbers.items() if each <= look.reach.settled},
            waiting=state.waiting(look.reach.settled),
        )
        shares = {
            topic: Share(marks.layout.text, marks.epoch, look.rows[topic][0])
            for topic, marks in opened.marks.items()
        }
        plan = Plan(
            number,
            shares,
            look.reach,
            self._options.batch,
            state.table,
            known,
            state.done.taken,
            every=self._topics is None,
            left=tuple(sorted({*opened.refused, *self._barred})),
            oldest=min(look.rows[topic][1] for topic in shares),
        )
        if state.done.number == number - 1 and self._plans.begin(plan):
            return plan
        return None

    def _close_left(self, number: int) -> None:
        """Close the marks of the last plan, if its driver was killed before it did."""
        done = self._plans.done(number)
        if number and done is not None and not self._plans.is_closed(number):
            self._marks.close_left(done.topics, str(number))
            self._plans.close(number)

    def _finish_writes(self) -> None:
        """Retire what silent writers have not retired, so that their rows may be taken. One that can't be
        finished, since Redis refuses a topic of it or that topic moves, holds up nothing else. If Redis is
        away, the next step says so."""
        latest = now(self._target) - self._options.silent
        for write in self._cold.state().unsettled:
            ours = self._topics is None or write.topics.keys() & set(self._topics)
            if write.began > latest or not ours or write.version in self.unfinished:
                continue
            try:
                retire(self._cold, self._target, write)
            except (ServiceError, *FAILURES) as failure:
                self.unfinished[write.version] = _first_line(failure)
            else:
                self._finished += 1

    # ------------------------------------------------------------------- stage, load, finalise

    def _take(self, plan: Plan, opened: Opened, *, resumed: bool) -> Swept:
        """Take one plan from here to its end."""
        if self._plans.done(plan.number) is not None:
            return Swept()
        # The layout is compared, too: marks that stood kept moves away.
        own = {topic: marks for topic, marks in opened.marks.items() if plan.topics[topic].is_under(marks)}
        lost = plan.topics.keys() - own.keys()
        staged = self._staged(plan) if own else None
        if staged is None:
            return self._given_up(plan)
        self._step("load")
        with self._target.open() as store:  # from here on it is not counted as resting any more
            told = TellsColdCounts(store.server, self._cold.name)
            told.take(plan.number, sorted(own), plan.reach.until)
        outcome = guarded_load.load(
            self._spark,
            self._cold.files,
            self._target,
            own,
            staged,
            rate=self._options.rate,
            again=resumed,
        )
        if outcome.stale and self._plans.done(plan.number) is not None:
            raise SweepLost(f"another sweep has finished plan {plan.number}")
        self._step("finalise")
        return self._ended(plan, staged, outcome, own, lost | outcome.stale)

    def _staged(self, plan: Plan) -> Staged | None:
        """Return what is staged of a plan, or stage it; None if that is not possible any more."""
        self._step("stage")
        staged = self._plans.staged(plan.number)
        if staged is not None:
            return staged if staging.is_there(self._cold, staged) else None
        try:
            return staging.stage(self._cold, plan, self._target)
        except TableGone:
            return None

    def _given_up(self, plan: Plan) -> Swept:
        """Give a plan up. If its staged rows are gone, the next plan keeps its marks, and brings back nothing
        that ended. Raises `SweepLost`."""
        if self._plans.abandon(plan.number):
            self._count_lost(plan.topics)
        return Swept(abandoned=len(plan.topics))

    def _ended(
        self,
        plan: Plan,
        staged: Staged,
        outcome: LoadEnd,
        own: Mapping[str, Marks],
        lost: Collection[str],
    ) -> Swept:
        """End a plan, and close the marks of what it has taken. Those of topics that failed stay, so that the
        next plan brings back nothing that ended. If a topic's marks are gone, what the plan has read may be
        old: timers that it loaded live, or were delivered without a mark, and may be delivered again."""
        self._plans.end(plan, outcome.loaded._asdict(), {*lost, *outcome.refused})
        done = self._plans.done(plan.number)
        taken = done.topics if done is not None else frozenset()
        self._marks.close(marks for topic, marks in own.items() if topic in taken)
        if taken <= own.keys():
            self._plans.close(plan.number)
        self._cold.files.remove(staged.folder)
        for topic, why in outcome.refused.items():
            self.left_out[topic] = TopicRefused(why)
        self._count_lost(lost)
        fine = plan.topics.keys() - set(lost) - outcome.refused.keys()
        loaded = outcome.loaded
        return Swept(
            planned=sum(plan.topics[topic].rows for topic in fine),
            staged=staged.rows
            if len(fine) == len(plan.topics)
            else loaded.loaded + loaded.live + loaded.marked,
            loaded=loaded.loaded,
            live=loaded.live,
            marked=loaded.marked,
            batches=loaded.batches,
            again=loaded.again,
            abandoned=len(lost),
        )

    def _count_lost(self, topics: Collection[str]) -> None:
        self._abandoned.update(list(topics))
        if self._abandoned and max(self._abandoned.values()) > ABANDONED:
            ((topic, _),) = self._abandoned.most_common(1)
            raise SweepLost(
                f"Redis keeps losing the marks of {topic!r}; does it evict or restart without its data?"
            )


def _first_line(failure: Exception) -> str:
    """What a worker raised, or else what Spark says, without a stack."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    raised = [line for line in lines if line.startswith("relay.")]
    return next(iter(raised or lines), type(failure).__name__)


def now(target: Target, topic: str = "") -> int:
    """Return the microseconds since 1970 by the clock of Redis. See `BlockingServer.now`."""
    with target.open() as store:
        return store.now(topic)
