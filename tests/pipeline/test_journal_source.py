"""`timers_journal`: what is read, how it is divided, and that nothing is missing silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relay.core.audit import Audit, PromiseVerdict
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, RecordKind
from relay.pipeline.jobs.journal import to_the_end
from relay.pipeline.journal_source import JournalSource
from relay.pipeline.lake import journal_rows
from relay.pipeline.lake.journal_offsets import JournalOptions, offsets
from relay.store.journal.scan import EntryGap, JournalScan, Mark
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from tests.audit.files import written
from tests.audit.forge import Forge
from tests.pipeline.journals import count, long_history, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
def scan(valkey: RunningServer) -> Iterator[JournalScan]:
    with BlockingServer(valkey.url, timeout=60) as line:
        yield JournalScan(line)


def rows(spark: SparkSession, **options: str) -> DataFrame:
    spark.dataSource.register(JournalSource)
    return spark.read.format("timers_journal").options(**options).load()


def batches_of(found: DataFrame) -> list[JournalBatch]:
    """The rows as the batches that they came from."""
    made: dict[str, list[Any]] = {}
    for row in found.orderBy("number").collect():
        made.setdefault(row.entry, []).append(row)
    return [
        JournalBatch(
            entry, micros(rows[0].at), rows[0].batch_first, rows[0].batch_last, tuple(map(record, rows))
        )
        for entry, rows in made.items()
    ]


def micros(moment: Any) -> int:
    return round(moment.timestamp() * 1_000_000) if moment is not None else 0


def record(row: Any) -> JournalRecord:
    told = row.asDict()
    kind, timer_id = RecordKind[told["kind"]], told["timer_id"] or ""
    rest = {name: told[name] for name in JournalRecord._fields[2:] if told[name] is not None}
    for name in ("due", "score", "expires", "previous_due"):
        rest[name] = micros(told[name])
    for name in ("nonce", "occurrence"):
        rest[name] = bytes(told[name] or b"")
    if told["refused"]:
        rest["refused"] = RecordKind[told["refused"]]
    return JournalRecord(kind, timer_id, **{name: value for name, value in rest.items() if name != "adopted"})


# ----------------------------------------------------------------------------- the scan


def test_a_journal_is_cut_by_its_numbers(
    scan: JournalScan, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Each part has at most so many changes, and together they are the whole."""
    topic, journal = keyspace.topic(), long_history(range(3))
    put(valkey, topic, journal)
    begin, end = scan.begin(topic), scan.end(topic)
    assert (begin, end) == (Mark("", 0), Mark(journal[-1].entry, count(journal)))
    parts = scan.cut(topic, begin, end, 20)
    assert len(parts) >= count(journal) / 20
    for after, until in parts:
        assert 0 < until.last - after.last <= 20
    found = [batch for part in parts for batch in scan.read(topic, *part)]
    assert found == journal


def test_entries_of_one_millisecond_are_cut_too(
    scan: JournalScan, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Whatever the ids are: many entries may share a millisecond, and one may be larger than a part."""
    topic, forge = keyspace.topic(), Forge()
    for n in range(50):
        forge.batch(
            *(JournalRecord(RecordKind.SCHEDULED, f"t{n}-{m}", due=1) for m in range(7 if n == 20 else 1))
        )
    put(valkey, topic, forge.batches)
    parts = scan.cut(topic, scan.begin(topic), scan.end(topic), 5)
    assert {until.last - after.last for after, until in parts} <= {1, 2, 3, 4, 5, 7}
    assert len(parts) <= 14
    assert [batch for part in parts for batch in scan.read(topic, *part)] == forge.batches


def test_gaps_are_told_where_they_are(scan: JournalScan, valkey: RunningServer, keyspace: Keyspace) -> None:
    """Trimmed between two readings, deleted in the middle, trimmed before they were read, and gone back."""
    topic, journal = keyspace.topic(), long_history(range(2))
    put(valkey, topic, journal)
    begin, end, key = scan.begin(topic), scan.end(topic), KeyNames().of(topic)[-1]
    with valkey.client() as client:
        client.execute_command("XDEL", key, journal[0].entry, journal[5].entry, journal[-1].entry)
    gaps = [each for each in scan.read(topic, begin, end) if isinstance(each, EntryGap)]
    assert [(gap.entry, gap.missing) for gap in gaps] == [
        (journal[n].entry, count([journal[n - 1]])) for n in (1, 6)
    ] + [(journal[-1].entry, count([journal[-1]]))]
    behind = Mark(journal[5].entry, journal[-1].last)
    first = next(scan.read(topic, behind, end))
    assert isinstance(first, EntryGap)
    assert first.missing == journal[6].first - journal[-1].last - 1 < 0


# ----------------------------------------------------------------------------- as a batch


def test_rows_are_the_records(spark: SparkSession, valkey: RunningServer, keyspace: Keyspace) -> None:
    """Every field of every record of a random history, in parts; and who paused the topic."""
    topic, journal = keyspace.topic(), long_history(range(2))
    paused = JournalRecord(RecordKind.PAUSED, score=1_767_225_700 * SECOND, principal="token:alice")
    last, at = journal[-1].last + 1, f"{1_767_225_600_000 + len(journal)}-0"
    journal.append(JournalBatch(at, journal[-1].time, last, last, (paused,)))
    put(valkey, topic, journal)
    found = rows(spark, redis_url=valkey.url, topics=topic, recordsPerPartition="40")
    assert found.rdd.getNumPartitions() >= count(journal) // 40
    assert batches_of(found) == journal


def test_a_file_is_read_as_the_stream_is(spark: SparkSession, tmp_path: Path) -> None:
    """What `relay journal export` wrote, of two topics."""
    one, two = long_history([1]), long_history([2])
    files = [str(written(tmp_path / name, name, batches)) for name, batches in (("a", one), ("b", two))]
    found = rows(spark, files=",".join(files))
    assert batches_of(found.where("topic = 'a'")) == one
    assert batches_of(found.where("topic = 'b'")) == two


def test_arrow_there_and_back() -> None:
    """Rows become the same records again, ids that are no UTF-8 too."""
    journal = long_history([3])
    odd = JournalRecord(
        RecordKind.CLAIMED, b"\xff\x00a".decode(errors="surrogateescape"), b"n" * 16, b"o" * 16, 1, 2
    )
    run = JournalRecord(RecordKind.RUN, "a", principal="token:alice")
    journal.append(JournalBatch("9-0", 5, journal[-1].last + 1, journal[-1].last + 2, (odd, run)))
    arrow = list(journal_rows.arrow("t", journal))
    assert [each for batch in arrow for each in journal_rows.records(batch)] == [
        each for batch in journal for each in batch.records
    ]


@pytest.mark.slow
def test_a_gap_fails_a_read_or_is_a_row(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """`failOnDataLoss` decides; nothing is left out silently."""
    topic, journal = keyspace.topic(), long_history([4])
    put(valkey, topic, journal)
    with valkey.client() as client:
        client.execute_command("XDEL", KeyNames().of(topic)[-1], journal[3].entry)
    with pytest.raises(Exception, match=r"not whole: \d+ records are missing"):
        rows(spark, redis_url=valkey.url, topics=topic).count()
    found = rows(spark, redis_url=valkey.url, topics=topic, failOnDataLoss="false")
    gap = found.where("kind = 'GAP'").collect()
    assert [(row.entry, row["count"]) for row in gap] == [(journal[4].entry, len(journal[3].records))]
    assert found.count() == count(journal) - len(journal[3].records) + 1


def test_a_password_shows_nowhere(spark: SparkSession, valkey: RunningServer) -> None:
    """Neither in the plan nor in what describes the options."""
    url = valkey.url.replace("//", "//:secret-word@")
    options = {"redis_url": url, "topics": "t"}
    assert "secret-word" not in repr(JournalOptions.of(options))
    spark.dataSource.register(JournalSource)
    stream = spark.readStream.format("timers_journal").options(**options).load()
    plan = stream._jdf.queryExecution().toString()
    assert "secret-word" not in plan


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("redis_url", {"redis_url": "http://x", "topics": "t"}),
        ("topics", {"redis_url": "redis://x"}),
        ("topics", {"redis_url": "redis://x", "topics": "a{b"}),
        ("topics", {"redis_url": "redis://x", "topics": "[1]"}),
        ("startingOffsets", {"redis_url": "redis://x", "topics": "t", "startingOffsets": "soon"}),
        ("maxRecordsPerTrigger", {"redis_url": "redis://x", "topics": "t", "maxRecordsPerTrigger": "0"}),
        ("failOnDataLoss", {"redis_url": "redis://x", "topics": "t", "failOnDataLoss": "maybe"}),
    ],
)
def test_a_wrong_option_is_named(option: str, given: dict[str, str]) -> None:
    """With what to do instead."""
    with pytest.raises(InvalidField) as failure:
        JournalOptions.of(given)
    assert failure.value.field == option


# ----------------------------------------------------------------------------- as a stream


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Over restarts, in triggers of few records, with a topic that joins later."""
    one, two, journal = keyspace.topic("one"), keyspace.topic("two"), long_history(range(2))
    spark.dataSource.register(JournalSource)

    def run(topics: str) -> None:
        source = spark.readStream.format("timers_journal").option("redis_url", valkey.url)
        stream = source.options(topics=topics, maxRecordsPerTrigger="30", recordsPerPartition="10").load()
        written = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
        to_the_end(lambda: written.trigger(availableNow=True).start(str(tmp_path / "lake")))
        assert len(list((tmp_path / "at" / "commits").glob("[0-9]*"))) > 1

    put(valkey, one, journal[:50])
    run(one)
    put(valkey, one, journal[50:])
    put(valkey, two, journal)
    run(f"{one},{two}")
    found = spark.read.parquet(str(tmp_path / "lake"))
    for topic in (one, two):
        assert batches_of(found.where(found.topic == topic)) == journal


def test_offsets_name_each_topic() -> None:
    """They are JSON, and read again."""
    marks = {"a": Mark("5-1", 7)}
    given = {"redis_url": "redis://x", "topics": "a", "startingOffsets": offsets(marks)}
    assert JournalOptions.of(given).start == marks


def test_the_histories_are_proved() -> None:
    """What the tests above read is a legal journal."""
    audit = Audit(exclusive=True)
    for batch in long_history(range(3)):
        audit.add(batch)
    assert audit.report(at_rest=True).verdict is PromiseVerdict.PROVED
