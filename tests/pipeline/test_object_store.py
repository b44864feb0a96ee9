"""What rests on S3: written by two drivers at once, by one that is killed, and while the store refuses."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from relay.pipeline.jobs import job
from relay.pipeline.jobs.sweep import status as look
from relay.pipeline.spark import s3
from tests.pipeline import doomed
from tests.pipeline.cold_world import HOUR, ColdWorld
from tests.pipeline.object_store import BUCKET, CREDENTIALS, LOST, Gate, ObjectStore
from tests.pipeline.small_jvm import SMALL_AND_QUICK
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NEXT = HOUR
LOG = "cold/timers/_delta_log/"


@pytest.fixture
def world(
    spark: SparkSession, valkey: RunningServer, store: ObjectStore, keyspace: Keyspace
) -> Iterator[ColdWorld]:
    world = ColdWorld(spark, valkey, f"s3a://{BUCKET}/cold", keyspace.topic())
    yield world
    world.close()


class Second:
    """Another driver, in a process of its own."""

    def __init__(self, world: ColdWorld, store: ObjectStore) -> None:
        conf = {**SMALL_AND_QUICK, **{f"spark.hadoop.{name}": value for name, value in store.hadoop.items()}}
        arguments = (
            world.target.url,
            world.cold.files.root,
            world.topic,
            str(world.at + NEXT),
            json.dumps(conf),
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.second_driver", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **CREDENTIALS},
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, name: str) -> None:
        """Have it write a timer."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)

    def kill(self) -> None:
        """With its JVM, which may hear of a refusal before it ends by itself, and would commit once more."""
        if self.process.poll() is None:
            doomed.end(self.process.pid)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def second(world: ColdWorld, store: ObjectStore) -> Iterator[Second]:
    second = Second(world, store)
    yield second
    second.kill()


def test_two_drivers_lose_no_commit_and_one_is_killed(
    world: ColdWorld, store: ObjectStore, second: Second
) -> None:
    """The race: A has looked, and is about to write version N of the table. B looks, writes N, and is done.
    A's file would replace it, and B's rows be in no version; S3 refuses it instead, and A writes N + 1. Then
    B is killed where its rows lie there and its commit is on the way, which arrives after A's next one.
    Nothing of that write counts, and no timer comes twice."""
    world.write([("begun", NEXT)])
    assert second.says() == "ready"

    before = world.cold.table.version()
    store.gate = gate = Gate("PUT", f"{LOG}{before + 1:020d}.json")
    first = threading.Thread(target=world.write, args=([("first", NEXT)],))
    first.start()
    assert gate.reached.wait(300), "A is about to commit"
    second.begin("second")
    assert second.says() == "second"
    assert world.cold.table.version() == before + 1, "B has committed meanwhile"
    gate.opened.set()
    first.join(300)
    rows = world.cold.table.rows()
    assert {row.timer_id for row in rows.collect()} == {"begun", "first", "second"}, "a commit was lost"
    assert [status for method, path, status in store.answers if method == "PUT" and status == 412]

    version = f"{LOG}{world.cold.table.version() + 1:020d}.json"
    store.gate = gate = Gate("PUT", version)
    second.begin("killed")
    assert gate.reached.wait(300), "its rows lie there"
    second.kill()
    world.write([("killed", NEXT)])
    gate.opened.set()
    eventually(lambda: ("PUT", f"/{BUCKET}/{version}", 412) in store.answers, "it comes too late")
    lying = [name for name in store.names("cold/timers/") if name.endswith(".parquet")]
    assert len(lying) == world.cold.table.size()[0] + 1, "what B has left lies there"

    swept = world.sweep()
    assert (swept.loaded, swept.live) == (4, 0)
    assert set(world.live()) == {"begun", "first", "second", "killed"}
    assert world.whole()


@pytest.mark.chaos
def test_the_store_is_slow_answers_are_lost_and_credentials_expire(
    world: ColdWorld, store: ObjectStore, spark: SparkSession
) -> None:
    """S3 that asks to slow down is asked again, and where the answer to a commit is lost, the commit is found
    to be there: each row is once in the table. With expired credentials a sweep ends anywhere in one
    sentence, and the next one goes on. Rust and DuckDB read what rests."""
    count = itertools.count(1)
    commits: set[str] = set()
    world = ColdWorld(spark, world.server, f"s3a://{BUCKET}/slow", world.topic)

    def hard(method: str, path: str) -> tuple[int, str] | None:
        if method == "PUT" and re.search(r"_delta_log/\d+\.json$", path) and path not in commits:
            commits.add(path)
            return LOST
        return (503, "SlowDown") if next(count) % 6 == 0 else None

    with store.refusing(hard):
        world.write_many(40, f"if(id % 2 = 0, {NEXT}, {100 * HOUR})")
    assert any(status == 503 for _, _, status in store.answers)
    assert len(commits) == 2, "the table's first version, and the rows"
    lake = DeltaTable(f"s3://{BUCKET}/slow/timers", storage_options=store.rust).to_pyarrow_dataset()
    asked = duckdb.from_arrow(lake).aggregate("count(*), count(distinct timer_id)")
    assert asked.fetchall() == [(40, 40)]

    def sweep(*_: object) -> job.Summary:
        return job.Summary("sweep", counts={"loaded": world.sweep().loaded})

    def refused(status: int, code: str, part: str) -> None:
        def rule(method: str, path: str) -> tuple[int, str] | None:
            return (status, code) if method == "PUT" and path.endswith(part) else None

        with store.refusing(rule), pytest.raises(job.JobFailed) as told:
            job.run("sweep", sweep, job.Running())
        assert re.fullmatch(rf"S3 .*credentials.* \({code}\): .*", str(told.value))

    refused(400, "ExpiredToken", "plan.json")
    refused(403, "InvalidAccessKeyId", "done.json")
    swept = world.sweep()
    assert (swept.again, swept.loaded + swept.live) == (swept.batches, 20)
    assert len(world.live()) == 20
    assert world.whole()


def test_what_is_missing_is_said_in_one_line(spark: SparkSession, store: ObjectStore) -> None:
    with pytest.raises(job.JobFailed) as told:
        job.run("cold", lambda spark, _bar: look(spark, "s3a://nowhere/cold"), job.Running())
    assert str(told.value).startswith("S3 has no bucket s3a://nowhere: make it")

    text = "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class {} not found"
    no_jars = s3.explained(text.format("org.apache.hadoop.fs.s3a.S3AFileSystem"))
    assert no_jars == "Spark has no jars for s3a://: fetch them with relay pipeline jars --s3"
    assert s3.explained(text.format("com.example.Other")) is None
