"""The lake and its audit, of topics of several partitions: a stream for each, while timers go from one to
another, and when partitions were given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from relay.core.partitions import Layout
from relay.pipeline.audit import presence
from relay.pipeline.audit.facts import FACTS
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.jobs.audit import AuditJob
from relay.pipeline.lake.journal_lake import Lake
from relay.store.keys import KeyNames
from tests.audit.files import written
from tests.audit.test_hand_overs import LEGAL, Parts
from tests.lua.test_move import DUE, NEW, OLD, leave, left
from tests.lua.test_move import put as put_batch
from tests.pipeline.journals import count, put
from tests.pipeline.tables import rows_at
from tests.pipeline.test_journal_lake import job, ran
from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from relay.core.journal import JournalBatch
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow


class Divided:
    """A topic whose journals a test writes, each partition's by itself."""

    def __init__(self, server: RunningServer, topic: str) -> None:
        self.server, self.topic = server, topic

    def laid_out(self, text: str, *numbers: int) -> None:
        """These partitions have seen a layout."""
        with self.server.client() as client:
            for number in numbers:
                client.set(KeyNames().key("layout", f"{self.topic}#{number} {text}"), text)

    def put(self, number: int, batches: list[JournalBatch]) -> None:
        stream = f"{self.topic}#{number}" if number else self.topic
        put(self.server, stream, [replace(batch, entry=batch.place[1]) for batch in batches])


@pytest.fixture
def divided(valkey: RunningServer, keyspace: Keyspace) -> Divided:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}#*")
    return Divided(valkey, topic)


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> Callable[[str], dict[int | None, list[Any]]]:
    """What the lake has of a topic: the numbers of each stream's records."""

    def kept(topic: str) -> dict[int | None, list[Any]]:
        found: dict[int | None, list[Any]] = {}
        rows = Lake(spark, str(tmp_path / "lake")).rows(topics=[topic]).orderBy("number").collect()
        for row in rows:
            found.setdefault(row.partition, []).append(row.number)
        return found

    return kept


def moved() -> Parts:
    return LEGAL["moved there and back"]()


def test_a_topic_that_gets_partitions(
    spark: SparkSession,
    divided: Divided,
    tmp_path: Path,
    kept: Callable[[str], dict[int | None, list[Any]]],
) -> None:
    """Its stream goes on as the first partition's, others join, and each record is stored once, in each."""
    topic, parts = divided.topic, moved()
    divided.put(0, parts.old.batches[:2])
    work = job(tmp_path, divided.server, topic, options={"maxRecordsPerTrigger": "2"})
    assert ran(spark, work)["records"] == 2
    divided.laid_out("2 1 2", 0)
    divided.put(0, parts.old.batches[2:4])
    divided.put(1, parts.new.batches[:2])
    second = ran(spark, work)
    assert (second["records"], set(second["topics"])) == (4, {topic, f"{topic}#1"})
    divided.laid_out("5 1", 0, 1)
    divided.put(0, parts.old.batches[4:])
    divided.put(1, parts.new.batches[2:])
    assert ran(spark, work)["records"] == count(parts.old.batches[4:]) + count(parts.new.batches[2:])
    assert ran(spark, work)["records"] == 0
    rest = list(range(3, len(parts.old.batches) + 1))
    assert kept(topic) == {None: [1, 2], 0: rest, 1: list(range(1, len(parts.new.batches) + 1))}
    assert ran(spark, job(tmp_path, divided.server, topic, dry_run=True))["records"] == 0


@pytest.mark.chaos
def test_a_lost_checkpoint_and_files(
    spark: SparkSession,
    divided: Divided,
    tmp_path: Path,
    kept: Callable[[str], dict[int | None, list[Any]]],
) -> None:
    """What the lake has of a partition comes no second time, from another checkpoint or from a file, and what
    it lacks does."""
    topic, parts = divided.topic, moved()
    divided.laid_out("2 1 2", 0, 1)
    divided.put(0, parts.old.batches[:3])
    divided.put(1, parts.new.batches[:1])
    ran(spark, job(tmp_path, divided.server, topic))
    file = written(tmp_path / "journal", topic, [*parts.old.batches[:5], *parts.new.batches])
    imported = ran(spark, job(tmp_path, None, topic, files=(str(file),)))
    assert imported["records"] == 2 + len(parts.new.batches) - 1
    for number, batches, known in ((0, parts.old.batches, 3), (1, parts.new.batches, 1)):
        divided.put(number, batches[known:])
    work = job(tmp_path, divided.server, topic, checkpoint=str(tmp_path / "other"))
    assert ran(spark, work)["records"] == len(parts.old.batches) - 5
    sizes = len(parts.old.batches), len(parts.new.batches)
    assert kept(topic) == {n: list(range(1, size + 1)) for n, size in enumerate(sizes)}


@pytest.mark.chaos
def test_an_audit_of_the_lake(spark: SparkSession, divided: Divided, tmp_path: Path) -> None:
    """Timers that moved are proved; one that is on its way lives, and is called that."""
    topic, parts = divided.topic, moved()
    parts.new.scheduled("w", 1000.0).left(9, "w", move="4:1>0")
    divided.laid_out("5 1", 0, 1)
    divided.put(0, parts.old.batches)
    divided.put(1, parts.new.batches)
    lake, out = str(tmp_path / "lake"), str(tmp_path / "out")
    ran(spark, job(tmp_path, divided.server, topic, compact=True))
    told = audit_job.run(spark, None, AuditJob(lake, out, exclusive=True)).document()
    assert (told["refuted"], told["missing"], told["open"]) == (0, 0, 1)
    (row,) = rows_at(spark, out, "open").collect()
    assert (row.timer_id, row.state, row.missed) == ("w", "on its way", None)
    assert row.entry.endswith("#1")
    verdicts = {row.promise: row.verdict for row in rows_at(spark, out, "verdicts").collect()}
    assert verdicts == {
        1: "proved",
        2: "can't be said",
        3: "proved",
        4: "proved",
        5: "proved",
        9: "proved",
    }


async def test_redis_is_asked_wherever_a_timer_is(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Where it leaves, on its way, where it arrives: it is not missed; one that is nowhere is."""
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}#*")
    async with Bench(valkey, topic) as bench:
        layout, (old, new) = Layout(topic, 2, 2, 4), (bench.at(OLD), bench.at(NEW))
        bench.raw.set(KeyNames().key("layout", layout.partitions[0]), layout.text)
        old.put("a", DUE)  # goes from 1 to 3
        living = spark.createDataFrame([], FACTS)
        rows = [living.schema.fieldNames()]
        asked = spark.createDataFrame(
            [tuple({"topic": topic, "timer_id": each}.get(name) for name in rows[0]) for each in ("a", "no")],
            FACTS,
        )

        def missed() -> dict[str, bool]:
            found: list[Row] = presence.in_redis(asked, {"redis_url": valkey.url}).collect()
            return {row.timer_id: row.missed for row in found}

        assert missed() == {"a": False, "no": True}
        batch = await leave(old, "a")
        assert missed() == {"a": False, "no": True}
        await put_batch(new, batch)
        await left(old, batch[0])
        assert missed() == {"a": False, "no": True}
        await new.store.cancel(new.topic, ["a"])
        assert missed() == {"a": True, "no": True}
