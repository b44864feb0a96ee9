"""Rejects: the whole record, where it stood and why it was refused; corrected, they can be loaded."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from relay.core.instants import SECOND
from relay.core.timers import Content
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.rows.reading import REJECTS
from relay.pipeline.spark.redis_target import Target
from relay.store.codec import envelope
from relay.store.keys import KeyNames

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DUE = 3_786_912_000 * SECOND  # 2090-01-01


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


def run(source: Source, server: RunningServer, **options: Any) -> Summary:
    asked = Schedule(Target(server.url), source, **options)
    return job.run("schedule", lambda spark, bar: schedule_job.run(spark, bar, asked), job.Running())


def stored(server: RunningServer, topic: str) -> dict[str, tuple[int, Content]]:
    timeline, payloads, *_ = KeyNames().of(topic)
    with server.client() as client:
        held: Any = client.hgetall(payloads)
        found: Any = client.zrange(timeline, 0, -1, withscores=True)
    return {name.decode(): (round(score * SECOND), envelope.decode(held[name])) for name, score in found}


def test_rejects_are_corrected_and_loaded_as_they_are(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """A reject has the whole record, the columns that no timer has included; once its columns are right, the
    table of rejects is a source like any other, and needs no option of the first load."""
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"task": "a", "eta": "2090-01-01T00:00:00Z", "body": {"n": 1, "x": None}, "owner": "é"},
        {
            "task": "b",
            "eta": "soon",
            "body": {"n": 2, "x": "y"},
            "owner": "o",
            "until": "2090-01-02",
        },
        {"task": "c", "eta": "2090-01-01T00:00:00Z", "body": None, "owner": None, "until": "never"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"timer_id": "task", "due_time": "eta", "payload": "body", "expire_time": "until"}
    source = Source(str(path), columns=columns, constants={"topic": topic})
    rejects = str(tmp_path / "rejects")
    before = datetime.now(UTC)
    assert run(source, valkey, rejects=rejects).counts["rejected"] == 2

    table = spark.read.parquet(rejects)
    assert table.columns == [*REJECTS.names, "run_id"]
    first, second = table.orderBy("timer_id").collect()
    assert (first.field, first.reason) == ("due_time", "is 'soon', which is not a time")
    assert (second.field, second.reason) == ("expire_time", "is 'never', which is not a time")
    assert [first.record.decode(), second.record.decode()] == [json.dumps(row) for row in rows[1:]]
    assert first.file == path.as_uri().replace("file:///", "file:/")
    assert first.line is None
    at = first.rejected_at.astimezone(UTC)
    assert before <= at <= datetime.now(UTC) + timedelta(seconds=1)

    corrected = table.withColumn(
        "due_time", sf.coalesce("due_time", sf.lit("2090-01-01T00:00:01Z").cast("timestamp"))
    )
    corrected.write.parquet(str(tmp_path / "corrected"))
    summary = run(Source(f"{tmp_path}/corrected", "parquet"), valkey)
    assert (summary.counts["written"], summary.counts["rejected"]) == (2, 0)
    found = stored(valkey, topic)
    assert {name: due for name, (due, _) in found.items()} == {"a": DUE, "b": DUE + SECOND, "c": DUE}
    assert found["b"][1] == Content(b'{"n":2,"x":"y"}', {}, "application/json")
    assert found["a"][1].payload == b'{"n":1,"x":null}'


def test_what_is_rejected_again_keeps_its_first_record(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """A table of rejects that is loaded unchanged is refused again, with its first record and file."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": "a", "due_time": "soon"}\n')
    source = Source(str(path), columns={"timer_id": "id"}, constants={"topic": topic})
    run(source, valkey, rejects=f"{tmp_path}/one")
    run(Source(f"{tmp_path}/one", "parquet"), valkey, rejects=f"{tmp_path}/two")
    (first,), (second,) = (spark.read.parquet(f"{tmp_path}/{name}").collect() for name in ("one", "two"))
    assert first.record == b'{"id": "a", "due_time": "soon"}'
    assert (second.record, second.file) == (first.record, first.file)
    assert second.reason == "is missing, or not a time"
