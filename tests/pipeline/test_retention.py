"""What plans take, compare and forget, by the manifests alone: no Spark reads or writes rows here."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import AnalysisException

from relay.core.errors import StoreUnavailable, WrongKeyType
from relay.pipeline.cold import compaction, plans, staging
from relay.pipeline.cold.plans import COMPACTION, Plan, Plans
from relay.pipeline.cold.store import CANCELLED, VERSION_BITS, ColdStore, DataFile, Write
from relay.pipeline.cold.sweep import SweepBusy, SweepOptions, Swept
from relay.pipeline.jobs import sweep as sweep_job
from relay.pipeline.jobs.sweep import SweepJob
from relay.pipeline.spark.redis_target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Bar
    from relay.pipeline.spark.files import Files

TOPIC = "a/b %"


class Folder:
    """`Files` on a local disk, without Java."""

    def __init__(self, root: Path) -> None:
        self.path, self.root = root, str(root)

    def names(self, folder: str) -> list[str]:
        place = self.path / folder
        return sorted(each.name for each in place.iterdir()) if place.exists() else []

    def read(self, name: str) -> str | None:
        place = self.path / name
        return place.read_text() if place.exists() else None

    def publish(self, name: str, text: str) -> bool:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            return False
        place.write_text(text)
        return True

    def remove(self, name: str) -> bool:
        place = self.path / name
        there = place.exists()
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        return there

    def age(self, name: str, now: float) -> float:
        return now - (self.path / name).stat().st_mtime


class Store(ColdStore):
    """Writes and plans whose rows nobody looks at. Versions are days."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.files = cast("Files", self.folder)

    def lies(self, day: int, *hours: str, single: bool = True, settled: bool = True) -> Write:
        """A write of that day."""
        version = day << VERSION_BITS
        found = tuple(self.file(f"w{day}", hour, version, single) for hour in hours)
        write = Write(version, f"w{day}", found)
        self.files.publish(f"commits/{write.manifest}", json.dumps(asdict(write)))
        if settled:
            self.settle(write)
        return write

    def file(self, folder: str, hour: str, version: int, single: bool = True) -> DataFile:
        name = f"data/{folder}/{hour}.parquet"
        self.files.publish(name, "rows")
        return DataFile(name, TOPIC, hour, 1, version, version, single)

    @property
    def plans(self) -> Plans:
        return Plans(self.files, TOPIC)

    def plan(self, until: str) -> Plan:
        """The next sweep's, to the end of that hour."""
        made = plans.make(self, self.plans, self.plans.following(), "epoch", None, 500)
        inputs = tuple(file for file in made.inputs if file.hour <= until)
        settled = self.settled(self.writes())
        rivals = self.plans.holdings(settled).rivals(inputs)
        return Plan(made.number, TOPIC, "epoch", until, 500, inputs, rivals)

    def sweep(self, until: str) -> Plan:
        """One that loads everything; its files are all there."""
        plan = self.plan(until)
        assert self.missing(plan) == []
        self.plans.begin(plan)
        self.plans.end(plan, {})
        return plan

    def compact(self, *hours: str) -> None:
        """All that rests becomes a file an hour."""
        mine = self.plans
        holdings = mine.holdings(self.settled(self.writes()))
        resting = tuple(holdings.resting)
        plan = Plan(mine.following(), TOPIC, "", "", 0, resting, holdings.rivals(resting), COMPACTION)
        assert self.missing(plan) == []
        mine.begin(plan)
        oldest = min(file.oldest for file in resting)
        mine.end(plan, {}, [self.file(f"c{plan.number}", hour, oldest) for hour in hours])

    def missing(self, plan: Plan) -> list[str]:
        return [
            file.name for file in (*plan.inputs, *plan.rivals) if not (self.folder.path / file.name).exists()
        ]

    def rests(self) -> list[str]:
        settled = self.settled(self.writes())
        return [file.name for file in self.plans.holdings(settled).resting]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def names(files: tuple[DataFile, ...]) -> list[str]:
    return [file.name for file in files]


def test_a_write_of_many_hours(store: Store) -> None:
    """Its first hours are taken and removed; the later ones are swept all the same, without them."""
    store.lies(1, "01", "02")
    store.sweep("01")
    assert compaction.retain(store, 100, keep=0).files_removed == 1
    assert compaction.retain(store, 100, keep=0).files_removed == 0, "and is counted once"
    assert names(store.sweep("02").inputs) == ["data/w1/02.parquet"]


def test_rows_that_were_replaced_and_rest(store: Store) -> None:
    """A newer row that was swept long ago still has to hold off the one that it has replaced."""
    store.lies(1, "09")
    store.lies(2, "02")
    store.sweep("02")
    compaction.retain(store, 100, keep=0)
    plan = store.sweep("09")
    assert (names(plan.inputs), names(plan.rivals)) == (["data/w1/09.parquet"], ["data/w2/02.parquet"])
    assert compaction.retain(store, 100, keep=0).writes_removed == 2, "now nothing that is older rests"


def test_a_timer_that_a_write_has_twice(store: Store) -> None:
    """Its later row may be in the hour that was swept first."""
    store.lies(1, "01", "02", single=False)
    store.sweep("01")
    compaction.retain(store, 100, keep=0)
    assert names(store.sweep("02").rivals) == ["data/w1/01.parquet"]


def test_a_cancel_that_is_not_settled(store: Store) -> None:
    """It was at Redis before the sweep had marks there, and is settled behind this plan: it counts."""
    store.lies(1, "01")
    store.lies(2, CANCELLED, "02", settled=False)
    plan = plans.make(store, store.plans, 1, "epoch", None, 500)
    assert names(plan.inputs) == ["data/w1/01.parquet"]
    assert names(plan.rivals) == ["data/w2/cancelled.parquet", "data/w2/02.parquet"]


def test_nothing_comes_of_a_cancel(store: Store) -> None:
    """One that rests needs nothing to be compared with."""
    store.lies(1, CANCELLED)
    store.lies(2, "02")
    assert names(store.sweep("02").rivals) == []
    assert compaction.retain(store, 100, keep=0).writes_removed == 1


def test_a_compaction_compares_once(store: Store) -> None:
    """What it made needs no comparing with what was taken before; so that goes."""
    store.lies(1, "09")
    store.lies(2, "02", CANCELLED)
    store.sweep("02")
    store.compact("09")
    assert compaction.retain(store, 100, keep=0).writes_removed == 2
    plan = store.sweep("09")
    assert (names(plan.inputs), plan.rivals) == (["data/c2/09.parquet"], ())


def test_late_writes_are_compared_with_what_was_taken(store: Store) -> None:
    """One of an older version, that was settled behind a sweep and a compaction."""
    store.lies(3, "01", "09")
    store.sweep("01")
    store.compact("09")
    store.lies(2, "02")
    assert set(names(store.plan("02").rivals)) == {
        "data/w3/01.parquet",
        "data/w3/09.parquet",
        "data/c2/09.parquet",
    }


def test_compacted_rows_outlive_their_writes(store: Store) -> None:
    """Nothing else names the topic then, and still its rows are swept, and nobody takes them for rubbish."""
    store.lies(1, "08", "09")
    store.compact("08", "09")
    assert compaction.retain(store, 100, keep=0).writes_removed == 1
    assert plans.topics(store, store.writes()) == [TOPIC]
    assert compaction.orphans(store, 0, 1 << 40) == 0
    assert names(store.sweep("09").inputs) == ["data/c1/08.parquet", "data/c1/09.parquet"]


def test_compacted_rows_that_were_swept_stay_so(store: Store) -> None:
    """While a compaction's plan is needed, so is the plan that took its rows: else they would come again."""
    store.lies(1, "01", "02")
    store.lies(9, "03")
    store.compact("01", "09")
    store.sweep("01")
    store.lies(10, "04")
    store.sweep("04")
    compaction.retain(store, 5, keep=0)
    assert store.rests() == ["data/c1/09.parquet"]
    store.sweep("09")
    store.lies(11, "09")
    store.sweep("09")
    compaction.retain(store, 100, keep=0)
    assert store.rests() == []
    assert store.plans.numbers() == [5]


@pytest.mark.parametrize("topic", ["a/b %", "定时器" * 28, "x" * 256, "/" * 256, "+", ".", "topic=a"])
def test_plans_of_any_topic(store: Store, topic: str) -> None:
    """In a folder of a name that a disk takes; it is known by it, also when nothing else names the topic."""
    mine = Plans(store.files, topic)
    assert mine.begin(Plan(1, topic, "", "", 0, (), ()))
    assert (mine.numbers(), mine.plan(1)) == ([1], Plan(1, topic, "", "", 0, (), ()))
    assert plans.topics(store, []) == [topic]
    assert len(staging.folder_of(topic)) < 255


def test_plans_of_long_topics_are_apart(store: Store) -> None:
    """Though their names begin alike."""
    for end in "ab":
        assert Plans(store.files, "/" * 255 + end).begin(Plan(1, "/" * 255 + end, "", "", 0, (), ()))
    assert plans.topics(store, []) == ["/" * 255 + "a", "/" * 255 + "b"]


@pytest.mark.parametrize("draft", [".0000000000000000001-w1.json.ff", "0000000000000000001-w1.json.ff"])
def test_drafts_of_manifests_are_none(store: Store, draft: str) -> None:
    """A writer that was killed before it gave one its name, on a local disk or on HDFS."""
    store.files.publish(f"commits/{draft}", json.dumps(asdict(Write(1, "w1", ()))))
    assert store.writes() == []
    assert store.version(1) >> VERSION_BITS == 1


class Steps:
    """A bar that nobody looks at."""

    def step(self, name: str) -> None:
        """See `Bar`."""


@pytest.mark.parametrize(
    "failure", [WrongKeyType("a list"), AnalysisException("no such file"), SweepBusy("busy")]
)
def test_a_topic_that_fails_keeps_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """The others are swept, and the summary says which was not."""
    swept = []

    def sweep(_spark: object, _bar: object, _cold: object, _job: object, topic: str) -> Swept:
        swept.append(topic)
        if topic == "a":
            raise failure
        return Swept(planned=1, staged=1, loaded=1)

    monkeypatch.setattr(sweep_job, "ColdStore", lambda *_: store)
    monkeypatch.setattr(sweep_job, "_sweep", sweep)
    monkeypatch.setattr(sweep_job, "now", lambda _: 100)
    job = SweepJob(Target("redis://localhost"), "", SweepOptions(horizon=None), topics=("a", "b"))
    summary = sweep_job.sweep(cast("SparkSession", None), cast("Bar", Steps()), job)
    assert (swept, summary.counts["loaded"], len(summary.problems)) == (["a", "b"], 1, 1)
    failure = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        sweep_job.sweep(cast("SparkSession", None), cast("Bar", Steps()), job)
