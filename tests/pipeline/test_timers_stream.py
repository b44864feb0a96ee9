"""`writeStream.format("timers")`: each batch once, whatever Spark runs again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from relay.pipeline.jobs.job import translated
from relay.store.keys import KeyNames
from tests.pipeline.laid_out import laid_out
from tests.pipeline.streams import Stream, end, ledger, live, payload, row
from tests.store.test_durability import calls_of
from tests.worlds.replicated import replicated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
def stream(spark: SparkSession, valkey: RunningServer, tmp_path: Path) -> Stream:
    return Stream(spark, valkey.url, tmp_path)


@pytest.fixture
def topics(keyspace: Keyspace) -> tuple[str, str]:
    return keyspace.topic("orders"), keyspace.topic("mails")


def test_batches_of_two_topics(stream: Stream, topics: tuple[str, str], valkey: RunningServer) -> None:
    """Each row goes to its topic. A later batch's row is a newer intent, and its ledger takes the place of
    the one before."""
    orders, mails = topics
    stream.add(row(orders, "a"), row(mails, "a"), row(orders, "b"))
    stream.add(row(orders, "b", "2091-01-01T00:00:00Z"), row(orders, "c"))
    query = stream.run()
    assert live(valkey, orders) == {"a": 3786912000.0, "b": 3818448000.0, "c": 3786912000.0}
    assert live(valkey, mails) == {"a": 3786912000.0}
    assert ledger(valkey, orders, query) == {"b", "c"}
    assert ledger(valkey, mails, query) == {"a"}


def test_a_batch_that_runs_again(stream: Stream, topics: tuple[str, str], valkey: RunningServer) -> None:
    """The race: Spark dies behind the writes of a batch and before its own note. What was delivered or moved
    since stays so; and the stream goes on."""
    orders, mails = topics
    stream.add(row(orders, "a"), row(orders, "b"), row(mails, "c"))
    query = stream.run()
    end(valkey, orders, "a")
    end(valkey, mails, "c")
    with valkey.client() as client:
        client.zadd(KeyNames().of(orders)[0], {"b": 5e9})
    stream.forget(0)
    stream.add(row(orders, "d"))
    assert stream.run() == query
    assert live(valkey, orders) == {"b": 5e9, "d": 3786912000.0}
    assert live(valkey, mails) == {}


def test_a_batch_that_runs_again_in_other_partitions(
    stream: Stream, valkey: RunningServer, topic: str
) -> None:
    """The topic has moved in between, twice: what the batch has decided on stands where the timers were."""
    with laid_out(valkey.url, topic, [valkey], 2) as world:
        stream.add(*(row(topic, f"t{n}") for n in range(50)))
        stream.run()
        assert all(world.cancel(f"t{n}") for n in range(0, 50, 2))
        for count in (4, 1):
            world.move(count)
            stream.forget(0)
            stream.run()
            world.assert_at_home([f"t{n}" for n in range(1, 50, 2)])
        stream.add(row(topic, "t0"))
        stream.run()
        world.assert_at_home(["t0", *(f"t{n}" for n in range(1, 50, 2))])


def test_a_checkpoint_that_was_put_back(
    stream: Stream, topics: tuple[str, str], valkey: RunningServer
) -> None:
    """It is told of, and nothing of an older batch is written: it may have been delivered."""
    orders, _ = topics
    stream.add(row(orders, "a"))
    stream.add(row(orders, "b"))
    query = stream.run()
    end(valkey, orders, "a")
    for batch in (1, 0):
        stream.forget(batch)
    (stream.checkpoint / "offsets" / "1").unlink()
    (stream.checkpoint / "offsets" / ".1.crc").unlink()
    with pytest.raises(PySparkException) as refusal:
        stream.run()
    assert f"batch 0 of the stream {query} comes behind batch 1" in str(refusal.value)
    assert set(live(valkey, orders)) == {"b"}


def test_the_last_row_of_a_timer_counts(
    spark: SparkSession, stream: Stream, topics: tuple[str, str], valkey: RunningServer
) -> None:
    """However far apart they are in a task's part of the batch, and whatever Arrow makes of it."""
    orders, _ = topics
    stream.add(
        row(orders, "a", payload="first"), *(row(orders, f"t{n}") for n in range(40)), row(orders, "a")
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "8")
    try:
        stream.run()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert payload(valkey, orders, "a").endswith(b"x")
    assert len(live(valkey, orders)) == 41


def test_rejects_by_batch(
    spark: SparkSession, stream: Stream, topics: tuple[str, str], tmp_path: Path, valkey: RunningServer
) -> None:
    """Each batch has a folder of its own, and one that runs again puts its rejects in the place of its first
    ones."""
    orders, _ = topics
    rejects = str(tmp_path / "rejects")
    stream.add(row(orders, "a"), row(orders, "{"))
    stream.add(row(orders, "b", due_time="soon"), row("{", "c"))
    query = stream.run(rejects=rejects)
    for _ in range(2):
        found = spark.read.parquet(rejects).select("run_id", "batch_id", "timer_id", "field").collect()
        assert sorted(map(tuple, found)) == [
            (query, 0, "{", "timer_id"),
            (query, 1, "b", "due_time"),
            (query, 1, "c", "topic"),
        ]
        (leftover,) = list((tmp_path / "rejects").glob("*/batch_id=1/*.parquet"))
        leftover.rename(leftover.with_name("rejects-of-a-driver-that-died.parquet"))
        stream.forget(1)
        stream.run(rejects=rejects)
    assert set(live(valkey, orders)) == {"a"}


def test_a_row_that_ends_the_stream(
    stream: Stream, topics: tuple[str, str], tmp_path: Path, valkey: RunningServer
) -> None:
    """Without `rejects`. Started again with it, the stream goes on, and inserts nothing twice."""
    orders, _ = topics
    stream.add(row(orders, "a"), row(orders, "{"))
    with pytest.raises(PySparkException) as refusal:
        stream.run()
    assert "timer_id: contains a brace" in str(translated(refusal.value))
    stream.run(rejects=str(tmp_path / "rejects"))
    assert set(live(valkey, orders)) == {"a"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run_id": "spring"}, "run_id: is the stream's own"),
        ({"on_conflict": "keep_existing"}, "on_conflict: is for frames"),
        ({"max_rate": "0"}, "max_rate: is '0'"),
        ({"durability": "sync"}, "durability: 'sync' is not a durability"),
        ({"redis_url": "http://x"}, "redis_url: must begin with"),
        ({"make_ids": "yes"}, "make_ids: is 'yes'; give true or false"),
    ],
)
def test_options_that_mean_nothing(
    stream: Stream, topics: tuple[str, str], options: dict[str, str], said: str, valkey: RunningServer
) -> None:
    stream.add(row(topics[0], "a"))
    with pytest.raises(PySparkException) as refusal:
        stream.run(files=1, **options)
    assert said in str(translated(refusal.value))
    assert live(valkey, topics[0]) == {}


def test_a_mode_that_would_remove_timers(
    spark: SparkSession, stream: Stream, topics: tuple[str, str]
) -> None:
    stream.add(row(topics[0], "a"))
    rows = spark.readStream.schema(stream.schema).json(str(stream.folder))
    counted = rows.groupBy("topic", "timer_id").agg({"due_time": "max"})
    named = counted.withColumnRenamed("max(due_time)", "due_time")
    asked = {"redis_url": stream.url, "checkpointLocation": str(stream.checkpoint)}
    writer = named.writeStream.format("timers").options(**asked).outputMode("complete")
    with pytest.raises(PySparkException) as refusal:
        writer.trigger(availableNow=True).start().awaitTermination()
    assert "outputMode: is complete" in str(translated(refusal.value))


def test_a_batch_waits_for_its_durability(
    stream: Stream, topics: tuple[str, str], spark: SparkSession
) -> None:
    """Once for each task; one that finds all in the ledger waits, too, since the try before may not have."""
    orders, _ = topics
    with replicated() as (master, _):
        stream.url = master.url
        stream.add(row(orders, "a"))
        for again in range(2):
            before = calls_of(master, "wait")
            stream.run(durability="replicas:1")
            assert calls_of(master, "wait") > before, f"run {again}"
            stream.forget(0)


def test_a_rate(stream: Stream, topics: tuple[str, str], valkey: RunningServer) -> None:
    """Loads that name one take turns by a key in Redis, which is there as long as the turn."""
    stream.add(row(topics[0], "a"))
    with valkey.client() as client:
        client.delete("timers_topics:pace")
        stream.run(max_rate="0.001")
        assert client.delete("timers_topics:pace") == 1
    assert set(live(valkey, topics[0])) == {"a"}
