"""Rows with a version: late ones lose, in a batch, against earlier batches, and wherever the timer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from relay.pipeline.jobs.job import translated
from relay.pipeline.timers_source import TimersDataSource
from relay.store.keys import KeyNames
from tests.pipeline.laid_out import laid_out
from tests.pipeline.streams import FAR, Stream, end, live, payload, row

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

SCHEMA = "op string, version long, topic string, timer_id string, due_time timestamp, payload string"


def change(topic: str, op: str, timer_id: str, version: int | None) -> dict[str, Any]:
    """Its payload is its version."""
    due = None if op == "cancel" else FAR
    return {**row(topic, timer_id, payload=str(version)), "due_time": due, "op": op, "version": version}


@pytest.fixture
def stream(spark: SparkSession, valkey: RunningServer, tmp_path: Path) -> Stream:
    return Stream(spark, valkey.url, tmp_path, SCHEMA)


@pytest.fixture
def orders(keyspace: Keyspace) -> str:
    return keyspace.topic("orders")


def test_late_rows(stream: Stream, orders: str, valkey: RunningServer) -> None:
    """In a batch, in two of its tasks, and in a later batch. A cancel keeps an older row away. What was
    delivered does not come back by a row that is sent again."""
    stream.add(
        change(orders, "schedule", "a", 3),
        change(orders, "schedule", "a", 2),
        change(orders, "schedule", "b", 1),
    )
    stream.add(
        change(orders, "cancel", "b", 2),
        change(orders, "schedule", "c", 1),
        change(orders, "schedule", "a", 1),
    )
    stream.add(
        change(orders, "schedule", "b", 1),
        change(orders, "schedule", "c", 1),
        change(orders, "schedule", "a", 2),
    )
    stream.run(files=2)
    assert list(live(valkey, orders)) == ["a", "c"]
    assert payload(valkey, orders, "a").endswith(b"3")
    end(valkey, orders, "c")
    stream.add(change(orders, "schedule", "c", 1), change(orders, "schedule", "b", 3))
    stream.run()
    assert list(live(valkey, orders)) == ["a", "b"]


def test_a_batch_that_runs_again(stream: Stream, orders: str, valkey: RunningServer) -> None:
    """The ledger tells, also when its versions were forgotten."""
    stream.add(change(orders, "schedule", "a", 1), change(orders, "schedule", "b", 1))
    stream.run()
    end(valkey, orders, "a")
    with valkey.client() as client:
        assert client.delete(*(KeyNames().key(name, orders) for name in ("even", "odd"))) == 1
    stream.forget(0)
    stream.run()
    assert list(live(valkey, orders)) == ["b"]


def test_a_topic_that_has_moved(stream: Stream, topic: str, valkey: RunningServer) -> None:
    """Versions are known in the partitions in which the timers were."""
    names = [f"t{n}" for n in range(40)]
    with laid_out(valkey.url, topic, [valkey], 2) as world:
        stream.add(*(change(topic, "schedule", name, 5) for name in names))
        stream.run()
        assert all(world.cancel(name) for name in names[:20])
        for count in (4, 1):
            world.move(count)
            stream.add(*(change(topic, "schedule", name, 4) for name in names))
            stream.run()
            world.assert_at_home(names[20:])
        stream.add(*(change(topic, "schedule", name, 6) for name in names))
        stream.run()
        world.assert_at_home(names)


def test_rejects(
    spark: SparkSession, stream: Stream, orders: str, tmp_path: Path, valkey: RunningServer
) -> None:
    """A row without a version would have no place among the others."""
    stream.add(
        change(orders, "schedule", "a", None),
        change(orders, "schedule", "b", -1),
        change(orders, "schedule", "c", 0),
    )
    stream.run(rejects=str(tmp_path / "rejects"))
    found = spark.read.parquet(str(tmp_path / "rejects")).select("timer_id", "field").collect()
    assert sorted(map(tuple, found)) == [("a", "version"), ("b", "version")]
    assert list(live(valkey, orders)) == ["c"]


def test_frames_and_times(spark: SparkSession, orders: str, valkey: RunningServer) -> None:
    """A time is a version, too. Without a run's id, rows that are written again lose against themselves."""
    spark.dataSource.register(TimersDataSource)
    options = {"redis_url": valkey.url, "topic": orders, "version_ttl": "3600"}
    newer = spark.sql(
        f"select 'a' as timer_id, timestamp '{FAR}' as due_time, timestamp '2026-01-02 00:00:00' as version"
    )
    older = newer.selectExpr(
        "timer_id", "due_time + interval 1 day as due_time", "version - interval 1 second as version"
    )
    for frame in (newer, older, newer):
        frame.write.format("timers").options(**options).mode("append").save()
        assert live(valkey, orders) == {"a": 3786912000.0}
    with valkey.client() as client:
        assert 3600 < client.ttl(KeyNames().key("odd", orders)) <= 7200


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'x' as version", {}, "version: has the type string; give a whole number or a timestamp"),
        ("1 as version", {"version_ttl": "0"}, "version_ttl: is '0'; give a whole number, 1 or more"),
        (
            "1 as version",
            {"run_id": "r", "on_conflict": "keep_latest"},
            "on_conflict: is for rows without op and",
        ),
    ],
)
def test_what_means_nothing(
    spark: SparkSession, orders: str, valkey: RunningServer, columns: str, options: dict[str, str], said: str
) -> None:
    spark.dataSource.register(TimersDataSource)
    frame = spark.sql(f"select {columns}, 'a' as timer_id, timestamp '{FAR}' as due_time")
    asked = {"redis_url": valkey.url, "topic": orders, **options}
    with pytest.raises(PySparkException) as refusal:
        frame.write.format("timers").options(**asked).mode("append").save()
    assert said in str(translated(refusal.value))
