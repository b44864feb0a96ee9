"""The journal's lake: every record exactly once, whatever dies, whoever reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from relay.core.journal import JournalRecord, RecordKind
from relay.pipeline.jobs import journal as journal_job
from relay.pipeline.jobs.journal import Journal
from relay.pipeline.journal_source import JournalSource
from relay.pipeline.lake.journal_lake import Lake, ends, hour
from relay.store.journal.scan import Mark
from relay.store.keys import KeyNames
from tests.audit.files import written
from tests.audit.forge import Forge
from tests.chaos import in_long
from tests.pipeline import doomed
from tests.pipeline.journals import count, history, long_history, put
from tests.pipeline.tables import rows_at
from tests.pipeline.test_journal_source import batches_of
from tests.worlds.relay.processes import ROOT
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from relay.core.journal import JournalBatch
    from relay.pipeline.lake.lake_state import LakeState
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {"maxRecordsPerTrigger": "40", "recordsPerPartition": "30"}


def job(tmp_path: Path, server: RunningServer | None, topics: str, **rest: Any) -> Journal:
    source = {"redis_url": server.url, "topics": topics, **SMALL} if server else {}
    return Journal(str(tmp_path / "lake"), {**source, **rest.pop("options", {})}, **rest)


def ran(spark: SparkSession, job: Journal) -> dict[str, Any]:
    return journal_job.run(spark, None, job).document()


def assert_holds(spark: SparkSession, tmp_path: Path, topic: str, journal: list[JournalBatch]) -> None:
    found = Lake(spark, str(tmp_path / "lake")).rows(topics=[topic])
    assert found.count() == count(journal)
    assert batches_of(found) == journal


def test_what_grows_is_stored_once(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Two topics, in several runs of several batches; the summary tells how much that was."""
    one, two, journal = keyspace.topic("one"), keyspace.topic("two"), long_history(range(2))
    put(valkey, one, journal[:40])
    put(valkey, two, journal[:10])
    first = ran(spark, job(tmp_path, valkey, f"{one},{two}"))
    assert first["records"] == count(journal[:40]) + count(journal[:10])
    assert first["batches"] > 1
    put(valkey, one, journal[40:])
    put(valkey, two, journal[10:])
    rest = job(tmp_path, valkey, f"{one},{two}", options={"maxRecordsPerTrigger": "1000"})
    second = ran(spark, rest)
    assert (second["batches"], second["records"]) == (1, count(journal[40:]) + count(journal[10:]))
    assert second["topics"][one] == {"entry": journal[-1].entry, "last": count(journal)}
    for topic in (one, two):
        assert_holds(spark, tmp_path, topic, journal)
    third = ran(spark, rest)
    assert (third["batches"], third["records"]) == (0, 0)


@pytest.mark.parametrize("after", [False, *in_long([True])], ids=["before it is committed", "after"])
def test_a_batch_that_breaks_off_is_stored_once(
    after: bool,
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies around the moment in which the rows become a part of the lake."""
    topic, journal = keyspace.topic(), long_history(range(2))
    put(valkey, topic, journal)
    append, calls = Lake.append, 0

    def dies(self: Lake, rows: DataFrame, state: LakeState) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2 and not after:
            raise RuntimeError("died")
        done = append(self, rows, state)
        if calls == 2:
            raise RuntimeError("died")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", dies)
        with pytest.raises(Exception, match="died"):
            ran(spark, job(tmp_path, valkey, topic))
    assert Lake(spark, str(tmp_path / "lake")).state().commits == (2 if after else 1)
    ran(spark, job(tmp_path, valkey, topic))
    assert_holds(spark, tmp_path, topic, journal)


@pytest.mark.chaos
def test_a_new_checkpoint_goes_on_where_the_lake_ends(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """The old one was lost: its batches' numbers begin anew, and nothing comes twice or is left out."""
    topic, journal = keyspace.topic(), long_history(range(2))
    put(valkey, topic, journal[:50])
    ran(spark, job(tmp_path, valkey, topic))
    shutil.rmtree(tmp_path / "lake" / journal_job.CHECKPOINT)
    put(valkey, topic, journal[50:])
    ran(spark, job(tmp_path, valkey, topic))
    assert_holds(spark, tmp_path, topic, journal)


def test_two_jobs_store_one_stream(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other has stored half of a batch that the first is about to commit: the first begins again, and
    adds what is missing."""
    topic, journal = keyspace.topic(), long_history([1])
    put(valkey, topic, journal)
    append, other = Lake.append, Lake(spark, str(tmp_path / "lake"))

    def overtaken(self: Lake, rows: DataFrame, after: LakeState) -> bool:
        monkeypatch.setattr(Lake, "append", append)
        half = some(spark, tmp_path, journal[:20], topic)
        assert append(other, half, other.state().reached(ends(half)))
        return append(self, rows, after)

    monkeypatch.setattr(Lake, "append", overtaken)
    done = ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "1000"}))
    assert (done["batches"], done["records"]) == (1, count(journal[20:]))
    assert_holds(spark, tmp_path, topic, journal)


LONG = ["/" * 90, "é" * 128, "x" * 250, "定时器" * 28, "a/b c=d"]
"""Names that no folder could have."""


@pytest.mark.chaos
def test_topics_that_no_folder_can_be_called(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """They are stored like all others, keep nobody else, and are read back alone."""
    journal = list(history(3))
    topics = [keyspace.adopt(topic) for topic in LONG]
    for topic in topics:
        put(valkey, topic, journal)
        with valkey.client() as client:
            client.sadd(KeyNames().topics, topic)
    done = ran(spark, job(tmp_path, valkey, "*", options={"maxRecordsPerTrigger": "10000"}))
    assert set(done["topics"]) >= set(topics)
    for topic in topics:
        assert_holds(spark, tmp_path, topic, journal)
    asked = (LONG[0], LONG[3])
    found = Lake(spark, str(tmp_path / "lake")).rows(topics=asked).groupBy("topic").count().collect()
    assert {row.topic for row in found} == set(asked)
    assert len({row[1] for row in found}) == 1


@pytest.mark.chaos
def test_files_and_streams_overlap(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """A file that begins before the lake and ends behind it, taken twice; then the stream comes there too."""
    topic, journal = keyspace.topic(), long_history(range(2))
    with valkey.client() as client:
        put(valkey, topic, journal[:60])
        client.execute_command("XTRIM", KeyNames().of(topic)[-1], "MINID", journal[20].entry)
        ran(spark, job(tmp_path, valkey, topic))
    file = str(written(tmp_path / "file", topic, journal[:80]))
    ran(spark, job(tmp_path, None, "", files=(file,)))
    taken = ran(spark, job(tmp_path, None, "", files=(file,)))
    assert taken["records"] == 0
    assert_holds(spark, tmp_path, topic, journal[:80])
    put(valkey, topic, journal[60:])
    ran(spark, job(tmp_path, valkey, topic))
    assert_holds(spark, tmp_path, topic, journal)


def test_a_gap_stops_the_job_or_is_counted(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Trimmed before it was stored."""
    topic, journal = keyspace.topic(), long_history([3])
    put(valkey, topic, journal[:30])
    ran(spark, job(tmp_path, valkey, topic))
    put(valkey, topic, journal[30:])
    with valkey.client() as client:
        client.execute_command("XDEL", KeyNames().of(topic)[-1], journal[30].entry)
    with pytest.raises(Exception, match="not whole"):
        ran(spark, job(tmp_path, valkey, topic))
    done = ran(spark, job(tmp_path, valkey, topic, options={"failOnDataLoss": "false"}))
    assert done["gaps"] == 1
    found = Lake(spark, str(tmp_path / "lake")).rows().where("kind = 'GAP'").collect()
    assert [(row.entry, row["count"]) for row in found] == [(journal[31].entry, len(journal[30].records))]


def test_what_is_safe_is_trimmed(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """The newest entry stays, so that Redis goes on with its number; the lake has all."""
    topic, forge = keyspace.topic(), Forge()
    for n in range(1000):
        forge.scheduled(f"t{n}")
    put(valkey, topic, forge.batches)
    large = {"maxRecordsPerTrigger": "600"}
    kept = ran(spark, job(tmp_path, valkey, topic, options=large))
    assert kept["trimmed"] == {}
    forge.scheduled("more")
    put(valkey, topic, forge.batches[-1:])
    done = ran(spark, job(tmp_path, valkey, topic, trim=True, options=large))
    with valkey.client() as client:
        left = client.xlen(KeyNames().of(topic)[-1])
    assert done["trimmed"] == {topic: 1001 - left}
    assert 1 <= left <= 100
    assert_holds(spark, tmp_path, topic, forge.batches)


@pytest.mark.chaos
def test_compaction_changes_nothing(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Fewer files, the same rows; those who read the old ones can go on."""
    topic, journal = keyspace.topic(), long_history([1])
    put(valkey, topic, journal)
    ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "10"}))
    lake = Lake(spark, str(tmp_path / "lake"))
    before = lake.state()
    assert before.commits > 2
    done = ran(spark, job(tmp_path, None, "", compact=True))
    assert done["compacted"] > 0
    assert_holds(spark, tmp_path, topic, journal)
    assert batches_of(lake.rows(before)) == journal
    state = lake.state()
    assert (state.compacted, state.marks, state.stored) == (state.commits, before.marks, before.stored)


@pytest.mark.chaos
def test_compaction_runs_by_itself(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After so many commits, whichever runs made them."""
    monkeypatch.setattr(journal_job, "UPKEEP", 2)
    topic, journal = keyspace.topic(), long_history([1])
    large = {"maxRecordsPerTrigger": "1000"}
    compacted = []
    for part in (journal[:10], journal[10:20], journal[20:]):
        put(valkey, topic, part)
        compacted.append(ran(spark, job(tmp_path, valkey, topic, options=large))["compacted"] > 0)
    assert compacted == [False, True, False]
    assert_holds(spark, tmp_path, topic, journal)


def test_retention_drops_hours_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Whole hours go, rows and all; the lake keeps how many records that were."""
    journal, forge = [], Forge()
    for n in range(6):
        forge.batch(*(JournalRecord(RecordKind.SCHEDULED, f"t{n}-{m}", due=1) for m in range(10)))
    for n, batch in enumerate(forge.batches):
        journal.append(type(batch)(f"{1_767_225_600_000 + n * 1_800_000}-0", *astuple(batch)))
    file = str(written(tmp_path / "file", "t", journal))
    ran(spark, job(tmp_path, None, "", files=(file,)))
    lake = Lake(spark, str(tmp_path / "lake"))
    assert lake.retain("2026-01-01-01") == {"t": 20}
    assert lake.retain("2026-01-01-01") == {}
    assert_holds(spark, tmp_path, "t", journal[2:])
    assert lake.state().dropped == {"t": 20}
    done = ran(spark, job(tmp_path, None, "", keep=timedelta(days=1)))
    assert done["dropped"] == {"t": 40}
    assert lake.rows().count() == 0


def astuple(batch: JournalBatch) -> tuple[Any, ...]:
    return batch.time, batch.first, batch.last, batch.records


# ----------------------------------------------------------------------------- the state


def some(spark: SparkSession, tmp_path: Path, journal: list[JournalBatch], name: str = "t") -> DataFrame:
    """Rows of a journal, from a file."""
    spark.dataSource.register(JournalSource)
    file = written(tmp_path / f"{name}-{journal[0].first}", name, journal)
    return spark.read.format("timers_journal").option("files", str(file)).load()


@pytest.mark.parametrize("when", ["meanwhile", *in_long(["between"])])
def test_of_two_writers_one_starts_over(when: str, spark: SparkSession, tmp_path: Path) -> None:
    """Both saw one state. The second is refused where the first commits before it writes, and where the first
    commits while it writes; so is a retention."""
    lake, other = (Lake(spark, str(tmp_path / "lake")) for _ in range(2))
    lake.create()
    journal = long_history([1])
    rows, more = some(spark, tmp_path, journal[:10]), some(spark, tmp_path, journal[10:])
    seen = lake.state()

    def faster() -> bool:
        return other.append(more, replace(seen, stored={"other": 1}))

    if when == "between":
        assert faster()
        assert not lake.append(rows, replace(seen, stored={"q": 1}))
    else:
        done: list[bool] = []
        reached, open_now = tmp_path / "reached", tmp_path / "open"
        longest = doomed.LONGEST  # for a commit on a busy machine

        def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            reached.touch()
            eventually(open_now.exists, "the other has committed", longest)
            yield from batches

        late = rows.coalesce(1).mapInArrow(held, rows.schema)
        state = replace(seen, stored={"q": 1})
        writer = threading.Thread(target=lambda: done.append(lake.append(late, state)))
        writer.start()
        eventually(reached.exists, "it writes", longest)
        assert faster()
        open_now.touch()
        writer.join()
        assert done == [False]
    assert not lake.delete(f.col("hour") > "", replace(seen, dropped={"t": 9}))
    state = lake.state()
    assert (state.stored, state.dropped) == ({"other": 1}, {})
    assert lake.rows().count() == count(journal[10:])


@pytest.mark.chaos
def test_users_commits_lie_between(spark: SparkSession, tmp_path: Path) -> None:
    """Someone optimises, vacuums and sets a property; what is known stays, and is found from the rows where
    the versions that tell it are gone."""
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.create()
    journal = long_history([1])
    marks = {"t": Mark(journal[-1].entry, journal[-1].last)}
    seen = lake.state()
    for part in (journal[:10], journal[10:]):
        state = replace(lake.state(), stored={"q": 1}, dropped={"t": 5}).reached(marks)
        assert lake.append(some(spark, tmp_path, part), state)
    table = f"delta.`{tmp_path}/lake`"
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    spark.sql(f"VACUUM {table}")
    state = lake.state()
    assert (state.stored, state.dropped, state.marks) == ({"q": 1}, {"t": 5}, marks)
    assert state.version > 3
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = 'yes')")
    log = tmp_path / "lake" / "_delta_log"
    whole = max(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    for path in log.glob("*.json"):
        if int(path.name[:20]) < whole:
            path.unlink()
    state = lake.state()
    assert (state.commits, state.stored, state.marks) == (2, {}, marks)
    assert lake.append(some(spark, tmp_path, journal[:1], "u"), replace(state, stored={"q": 2}))
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {state.version}")
    restored = lake.state()
    assert (restored.commits, restored.stored, restored.marks) == (3, {}, marks)
    assert not lake.append(lake.rows(), replace(seen, commits=1))


@pytest.mark.chaos
def test_columns_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """A lake of an older Relay lacks a column, one of a newer has one more: both are read and appended to."""
    journal = long_history([1])
    rows, more = some(spark, tmp_path, journal[:10]), some(spark, tmp_path, journal[10:])
    other = rows.withColumn("hour", hour()).drop("previous_dead_id").withColumn("of_tomorrow", f.lit(1))
    other.write.format("delta").save(str(tmp_path / "lake"))
    assert_holds(spark, tmp_path, "t", journal[:10])
    lake = Lake(spark, str(tmp_path / "lake"))
    assert lake.append(more, lake.state().reached(ends(more)))
    assert_holds(spark, tmp_path, "t", journal)
    assert lake.state().marks == {"t": Mark(journal[-1].entry, journal[-1].last)}
    found = rows_at(spark, tmp_path, "lake")
    assert {"previous_dead_id", "of_tomorrow"} < set(found.columns)


# ----------------------------------------------------------------------------- killed

RUN = """
import signal, sys
from pathlib import Path
from relay.pipeline.jobs import journal as journal_job
from relay.pipeline.lake.journal_lake import Lake
from relay.pipeline.spark.session import session
from tests.pipeline.small_jvm import SMALL_AND_QUICK
lake, url, topic = sys.argv[1:]
append, calls, begun = Lake.append, [], Path(lake + ".begun")

def held(batches):
    if begun.exists():
        signal.pause()
    begun.touch()
    yield from batches

def third_is_held(self, rows, after):
    calls.append(after)
    return append(self, rows.mapInArrow(held, rows.schema) if len(calls) == 3 else rows, after)

Lake.append = third_is_held
one = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
spark = session("test", master="local[1]", conf={**SMALL_AND_QUICK, **one})
source = {"redis_url": url, "topics": topic, "maxRecordsPerTrigger": "40", "recordsPerPartition": "10"}
journal_job.run(spark, None, journal_job.Journal(lake, source))
"""
"""A job with one task, whose third batch stands still when a part of its rows is in a file."""


def commits(lake: Path) -> int:
    """The batches in a lake that only one job with one task writes."""
    return max(len(list(lake.glob("_delta_log/0*.json"))) - 1, 0)  # the first makes the table


def killed(lake: Path, url: str, topic: str) -> None:
    """A driver in a process of its own, killed with all that it has started while it writes its third
    batch."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(lake), url, topic], stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        eventually(
            lambda: process.poll() is not None or len(list(lake.glob("*.parquet"))) > 2,
            "the third batch is being written",
            doomed.LONGEST,
        )
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        doomed.end(process.pid)
        process.wait()
    assert commits(lake) == 2


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_stores_nothing_twice(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a batch; then a run to the end."""
    topic, journal = keyspace.topic(), long_history(range(6))
    put(valkey, topic, journal)
    lake = tmp_path / "lake"
    killed(lake, valkey.url, topic)
    assert Lake(spark, str(lake)).rows().count() < count(journal)
    ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "400"}))
    assert_holds(spark, tmp_path, topic, journal)
    named = Lake(spark, str(lake)).rows().inputFiles()
    assert len(list(lake.glob("*.parquet"))) > len(named), "an attempt was left behind, and nobody reads it"


def test_a_busy_machine_is_given_time() -> None:
    """Spark's planner that did not answer in ten seconds is begun again; any other failure is one at once."""
    begun: list[Query] = []

    class Query:
        stopped = False

        def awaitTermination(self, timeout: int) -> bool:
            if len(begun) < 3:
                raise StreamingQueryException(f"java.net.SocketTimeoutException: {journal_job.TOO_BUSY}")
            if len(begun) > 3:
                raise StreamingQueryException("it broke")
            return True

        def stop(self) -> None:
            self.stopped = True

    def begin() -> Any:
        begun.append(Query())
        return begun[-1]

    journal_job.to_the_end(begin)
    assert len(begun) == 3
    with pytest.raises(StreamingQueryException, match="it broke"):
        journal_job.to_the_end(begin)
    assert len(begun) == 4
    assert all(query.stopped for query in begun)
