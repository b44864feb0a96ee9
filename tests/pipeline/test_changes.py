"""Rows that cancel and move timers, in frames and streams: changes of a table drive its timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from relay.pipeline.jobs.job import translated
from relay.pipeline.timers_source import TimersDataSource
from tests.pipeline.laid_out import laid_out
from tests.pipeline.streams import FAR, Stream, end, live, payload, row

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

SCHEMA = "op string, topic string, timer_id string, due_time timestamp, payload string"
LATER = "2091-01-01T00:00:00Z"
AT = {FAR: 3786912000.0, LATER: 3818448000.0}


def change(
    topic: str, op: str | None, timer_id: str, due_time: str | None = FAR, **more: Any
) -> dict[str, Any]:
    return {**row(topic, timer_id), "due_time": due_time, "op": op, **more}


@pytest.fixture
def stream(spark: SparkSession, valkey: RunningServer, tmp_path: Path) -> Stream:
    return Stream(spark, valkey.url, tmp_path, SCHEMA)


@pytest.fixture
def orders(keyspace: Keyspace) -> str:
    return keyspace.topic("orders")


def test_a_table_that_changes(stream: Stream, orders: str, valkey: RunningServer) -> None:
    """Rows without a word schedule. Of a row that cancels only the id counts; a move keeps the payload."""
    stream.add(*(change(orders, None, name, payload="first") for name in "abcd"))
    stream.add(
        change(orders, "cancel", "a", None),
        change(orders, "move", "b", LATER, payload="ignored"),
        change(orders, "schedule", "c", LATER, payload="second"),
        change(orders, "move", "never-there"),
        change(orders, "cancel", "never-there", None),
    )
    stream.run()
    assert live(valkey, orders) == {"b": AT[LATER], "c": AT[LATER], "d": AT[FAR]}
    assert payload(valkey, orders, "b").endswith(b"first")
    assert payload(valkey, orders, "c").endswith(b"second")


def test_rows_of_one_timer_in_their_order(stream: Stream, orders: str, valkey: RunningServer) -> None:
    """Of one batch. A timer that comes and goes in it is never there."""
    stream.add(change(orders, "schedule", "known"))
    stream.add(
        change(orders, "schedule", "a"), change(orders, "move", "a", LATER),
        change(orders, "schedule", "b"), change(orders, "cancel", "b", None), change(orders, "move", "b"),
        change(orders, "cancel", "known", None), change(orders, "schedule", "known", LATER),
    )  # fmt: skip
    stream.run()
    assert live(valkey, orders) == {"a": AT[LATER], "known": AT[LATER]}


@pytest.mark.slow
def test_a_batch_that_runs_again(stream: Stream, orders: str, valkey: RunningServer) -> None:
    """The race of a driver that died behind its writes. What came since is neither cancelled nor moved."""
    stream.add(change(orders, None, "a"), change(orders, None, "b"))
    stream.add(
        change(orders, "cancel", "a", None), change(orders, "move", "b", LATER), change(orders, None, "c")
    )
    stream.run()
    end(valkey, orders, "c")
    with valkey.client() as client:
        client.zadd(f"timers_timeline:{orders}", {"a": 5e9, "b": 6e9})
    stream.forget(1)
    stream.run()
    assert live(valkey, orders) == {"a": 5e9, "b": 6e9}


def test_in_several_partitions(stream: Stream, topic: str, valkey: RunningServer) -> None:
    """Each row goes to the partition of its timer, also when the topic has moved in between."""
    names = [f"t{n}" for n in range(40)]
    with laid_out(valkey.url, topic, [valkey], 4) as world:
        stream.add(*(change(topic, None, name) for name in names))
        stream.run()
        world.move(8)
        stream.add(*(change(topic, "cancel", name, None) for name in names[:20]))
        stream.run()
        world.assert_at_home(names[20:])


def test_rejects(
    spark: SparkSession, stream: Stream, orders: str, valkey: RunningServer, tmp_path: Path
) -> None:
    """An op that is none; a row that moves to no time, or has no timer."""
    stream.add(
        change(orders, "delete", "a"),
        change(orders, "move", "b", None),
        change(orders, "cancel", "c", None) | {"timer_id": None},
        change(orders, "schedule", "d"),
    )
    stream.run(rejects=str(tmp_path / "rejects"), make_ids="true")
    found = spark.read.parquet(str(tmp_path / "rejects")).select("field", "reason").collect()
    assert sorted(map(tuple, found)) == [
        ("due_time", "is missing, or not a time"),
        ("op", "is 'delete'; give schedule or cancel or move"),
        ("timer_id", "is missing; a row that cancels or moves a timer needs it"),
    ]
    assert list(live(valkey, orders)) == ["d"]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["", "spring"])
def test_a_frame(spark: SparkSession, orders: str, valkey: RunningServer, run: str) -> None:
    """With a run's id, each timer's rows once; without one, each time."""
    spark.dataSource.register(TimersDataSource)
    options = {"redis_url": valkey.url, "topic": orders, **({"run_id": run} if run else {})}
    rows = [("schedule", "a", FAR), ("cancel", "b", None), ("move", "c", LATER)]
    frame = spark.createDataFrame(rows, "op string, timer_id string, due string").coalesce(1)
    frame = frame.selectExpr("op", "timer_id", "cast(due as timestamp) as due_time")
    with valkey.client() as client:
        for _ in range(2):
            client.zadd(f"timers_timeline:{orders}", {"b": 5e9, "c": 5e9})
            client.hset(f"timers_payloads:{orders}", mapping={"b": "x", "c": "x"})
            frame.write.format("timers").options(**options).mode("append").save()
    assert live(valkey, orders) == {"a": AT[FAR], **({"b": 5e9, "c": 5e9} if run else {"c": AT[LATER]})}


def test_what_means_nothing(spark: SparkSession, orders: str, valkey: RunningServer) -> None:
    spark.dataSource.register(TimersDataSource)
    options = {"redis_url": valkey.url, "topic": orders, "run_id": "r", "on_conflict": "keep_existing"}
    frame = spark.sql(f"select 'cancel' as op, 'a' as timer_id, timestamp '{FAR}' as due_time")
    with pytest.raises(PySparkException) as refusal:
        frame.write.format("timers").options(**options).mode("append").save()
    assert "on_conflict: is for rows without op and version" in str(translated(refusal.value))
    with pytest.raises(PySparkException) as refusal:
        frame.selectExpr("1 as op", "timer_id", "due_time").write.format("timers").options(
            redis_url=valkey.url, topic=orders
        ).mode("append").save()
    assert "op: has the type int; give a text" in str(translated(refusal.value))
