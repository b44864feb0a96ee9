"""The journal's lake: every record exactly once, whatever dies, whoever reads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.core.journal import JournalRecord, RecordKind
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.jobs import journal as journal_job
from relay.pipeline.jobs.audit import AuditJob
from relay.pipeline.jobs.journal import Journal
from relay.pipeline.lake.journal_lake import Lake, folder_of
from relay.pipeline.lake.lake_log import LakeChange, LakePart, Log, Share
from relay.pipeline.spark.files import Files
from relay.store.keys import KeyNames
from tests.audit.files import written
from tests.audit.forge import Forge
from tests.pipeline.journals import count, history, long_history, put
from tests.pipeline.test_journal_source import batches_of
from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relay.core.journal import JournalBatch
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

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


@pytest.mark.parametrize("after", [False, True], ids=["before it is published", "after"])
def test_a_batch_that_breaks_off_is_stored_once(
    after: bool,
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows were written, and the driver dies around the moment that makes them a part of the lake."""
    topic, journal = keyspace.topic(), long_history(range(2))
    put(valkey, topic, journal)
    publish, calls = Files.publish, 0

    def dies(self: Files, name: str, text: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2 and not after:
            raise RuntimeError("died")
        done = publish(self, name, text)
        if calls == 2:
            raise RuntimeError("died")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Files, "publish", dies)
        with pytest.raises(Exception, match="died"):
            ran(spark, job(tmp_path, valkey, topic))
    ran(spark, job(tmp_path, valkey, topic))
    assert_holds(spark, tmp_path, topic, journal)


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


LONG = ["/" * 90, "é" * 128, "x" * 250, "定时器" * 28]
"""Names that no folder can have, at least with `topic=` before them."""


def test_topics_that_no_folder_can_be_called(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """They are stored like all others, keep nobody else, and are read back by an audit; also one whose name
    is that of another's folder."""
    named = spark.range(1).select(folder_of(f.lit(LONG[0])).alias("name")).collect()[0].name
    journal = list(history(3))
    topics = [keyspace.adopt(topic) for topic in [*LONG, named, "a/b c=d"]]
    for topic in topics:
        put(valkey, topic, journal)
        with valkey.client() as client:
            client.sadd(KeyNames().topics, topic)
    done = ran(spark, job(tmp_path, valkey, "*", options={"maxRecordsPerTrigger": "10000"}))
    assert set(done["topics"]) >= set(topics)
    for topic in topics:
        assert_holds(spark, tmp_path, topic, journal)
    folders = {path.name for path in (tmp_path / "lake" / "data").glob("part=*/*")}
    assert "topic=a%2Fb c%3Dd" in folders
    assert f"topic={named.replace('/', '%2F')}" in folders
    asked = (LONG[0], named)
    audit_job.run(spark, None, AuditJob(str(tmp_path / "lake"), str(tmp_path / "out"), asked))
    found = spark.read.parquet(str(tmp_path / "out" / "kinds")).groupBy("topic").sum("records").collect()
    assert {row.topic for row in found} == set(asked)
    assert len({row[1] for row in found}) == 1


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


def test_compaction_changes_nothing(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Fewer folders, the same rows; those who read the old ones can go on until the grace is over."""
    topic, journal = keyspace.topic(), long_history(range(2))
    put(valkey, topic, journal)
    ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "20"}))
    lake = Lake(spark, str(tmp_path / "lake"))
    before = lake.log.state()
    assert len(before.parts) > 3
    assert lake.compact(fan=2) > 0
    assert_holds(spark, tmp_path, topic, journal)
    assert lake.clean() == 0
    assert batches_of(lake.rows(before)) == journal
    assert lake.clean(grace=0, now=time.time() + 1) >= 2
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
    assert lake.log.state().dropped == {"t": 20}
    done = ran(spark, job(tmp_path, None, "", keep=timedelta(days=1)))
    assert done["dropped"] == {"t": 40}
    assert lake.rows().count() == 0


def astuple(batch: JournalBatch) -> tuple[Any, ...]:
    return batch.time, batch.first, batch.last, batch.records


# ----------------------------------------------------------------------------- the log


def part(n: int) -> LakePart:
    return LakePart(
        f"data/{n}", 0, "2026-01-01-00", "2026-01-01-00", {"t": Share(1, 0, f"{n}-0", f"{n}-0", n)}
    )


def test_the_log_is_folded(spark: SparkSession, tmp_path: Path) -> None:
    """Also where its old versions are gone, and by nobody where one in the middle is."""
    files = Files(spark, str(tmp_path))
    log = Log(files)
    for n in range(40):
        remove = (f"data/{n - 1}",) if n % 2 else ()
        log.commit(lambda _: LakeChange("batch", (part(n),), remove, {"q": n}, {"t": 1}))  # noqa: B023
    state = log.state()
    assert (state.version, state.stored, state.dropped, state.marks) == (
        39,
        {"q": 39},
        {"t": 40},
        {"t": ("39-0", 39)},
    )
    assert [each.folder for each in state.parts] == [f"data/{n}" for n in range(1, 40, 2)]
    log.prune(time.time() + 10, grace=5)
    assert len(files.names("log")) == 8
    assert log.state() == state
    files.remove("log/0000000035.json")
    with pytest.raises(InvalidField, match="not whole"):
        log.state()


def test_of_two_writers_one_starts_over(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody's change is lost."""
    one, two = Log(Files(spark, str(tmp_path))), Log(Files(spark, str(tmp_path)))
    asked = 0

    def change(state: Any) -> LakeChange:
        nonlocal asked
        asked += 1
        if asked == 1:
            two.commit(lambda _: LakeChange("batch", (part(2),)))
        return LakeChange("batch", (part(1),))

    one.commit(change)
    assert asked == 2
    assert {each.folder for each in one.state().parts} == {"data/1", "data/2"}


# ----------------------------------------------------------------------------- killed

RUN = """
import sys
from relay.pipeline.jobs import journal as journal_job
from relay.pipeline.spark.session import session
from tests.pipeline.small_jvm import SMALL_AND_QUICK
lake, url, topic = sys.argv[1:]
spark = session("test", master="local[1]", conf={**SMALL_AND_QUICK, "spark.sql.shuffle.partitions": "1"})
source = {"redis_url": url, "topics": topic, "maxRecordsPerTrigger": "40", "recordsPerPartition": "10"}
journal_job.run(spark, None, journal_job.Journal(lake, source))
"""

LONGEST = 400.0
"""Seconds for a driver on a busy machine to come to a few batches."""


def killed(lake: Path, url: str, topic: str, batches: int) -> None:
    """A driver in a process of its own, killed with its JVM while it writes a batch behind the first few."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(lake), url, topic],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline and process.poll() is None:
            log, data = lake / "log", lake / "data"
            published = len(list(log.glob("0*.json"))) if log.exists() else 0
            if published >= batches and data.exists() and len(list(data.iterdir())) > published:
                break
            time.sleep(0.002)
        assert process.poll() is None, "it was done before it could be killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_stores_nothing_twice(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a batch; then a run to the end."""
    topic, journal = keyspace.topic(), long_history(range(6))
    put(valkey, topic, journal)
    lake = tmp_path / "lake"
    killed(lake, valkey.url, topic, batches=2)
    assert Lake(spark, str(lake)).rows().count() < count(journal)
    ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "400"}))
    assert_holds(spark, tmp_path, topic, journal)
    named = {each.folder for each in Lake(spark, str(lake)).log.state().parts}
    assert len(list((lake / "data").iterdir())) > len(named), (
        "an attempt was left behind, and nobody reads it"
    )


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
