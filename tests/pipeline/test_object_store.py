"""What rests on S3: written by two drivers at once, by one that is killed, and while the store refuses."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from relay.core.errors import InvalidField
from relay.pipeline.jobs import job
from relay.pipeline.jobs.sweep import status as look
from relay.pipeline.lake.journal_lake import Lake
from relay.pipeline.spark import s3
from tests.pipeline.cold_world import HOUR, ColdWorld
from tests.pipeline.object_store import BUCKET, CREDENTIALS, Gate, ObjectStore
from tests.pipeline.small_jvm import SMALL_AND_QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NEXT = HOUR
LOG = "cold/timers/_delta_log/"


@pytest.fixture(scope="module")
def store(spark: SparkSession) -> Iterator[ObjectStore]:
    """The suite's session gets its options, and the credentials that others find in the environment."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    with ObjectStore() as store:
        given = {"fs.s3a.access.key": "relay", "fs.s3a.secret.key": "secret", **store.hadoop}
        for name, value in given.items():
            hadoop.set(name, value)
        yield store


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
        arguments = (world.target.url, str(world.path), world.topic, str(world.at + NEXT), json.dumps(conf))
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


def test_two_drivers_lose_no_commit_and_one_is_killed(world: ColdWorld, store: ObjectStore) -> None:
    """The race: A has looked, and is about to write version N of the table. B looks, writes N, and is done.
    A's file would replace it, and B's rows be in no version; S3 refuses it instead, and A writes N + 1. Then
    B is killed where its rows lie there and its commit is on the way. Nothing of that write counts, and no
    timer comes twice."""
    second = Second(world, store)
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
    assert [status for method, path, status in store.answers if method == "PUT" and status == 412]
    rows = world.cold.table.rows()
    assert {row.timer_id for row in rows.collect()} == {"begun", "first", "second"}, "a commit was lost"

    after = world.cold.table.version()
    store.gate = gate = Gate("PUT", f"{LOG}{after + 1:020d}.json")
    second.begin("killed")
    assert gate.reached.wait(300), "its rows lie there"
    second.process.kill()
    second.process.wait()
    world.write([("killed", NEXT)])
    gate.opened.set()
    lying = [name for name in store.names("cold/timers/") if name.endswith(".parquet")]
    assert len(lying) == world.cold.table.size()[0] + 2, "what B has left lies there, and A's first try"

    swept = world.sweep()
    assert (swept.loaded, swept.live) == (4, 0)
    assert set(world.live()) == {"begun", "first", "second", "killed"}
    assert world.whole()


def is_put_of(part: str, method: str, path: str) -> bool:
    return method == "PUT" and path.endswith(part)


def test_the_store_is_slow_and_credentials_expire(
    world: ColdWorld, store: ObjectStore, spark: SparkSession
) -> None:
    """S3 that asks to slow down is asked again, and nothing is lost. With expired credentials a sweep ends
    anywhere in one sentence, and the next one goes on. Rust reads what rests."""
    count = itertools.count(1)
    world = ColdWorld(spark, world.server, f"s3a://{BUCKET}/slow", world.topic)
    with store.refusing(503, "SlowDown", lambda _method, _path: next(count) % 6 == 0):
        world.write_many(40, f"if(id % 2 = 0, {NEXT}, {100 * HOUR})")
    assert any(status == 503 for _, _, status in store.answers)
    table = DeltaTable(f"s3://{BUCKET}/slow/timers", storage_options=store.rust).to_pyarrow_table()
    assert table.num_rows == 40

    def sweep(*_: object) -> job.Summary:
        return job.Summary("sweep", counts={"loaded": world.sweep().loaded})

    for status, code, part in ((400, "ExpiredToken", "plan.json"), (403, "InvalidAccessKeyId", "done.json")):
        with store.refusing(status, code, partial(is_put_of, part)), pytest.raises(job.JobFailed) as told:
            job.run("sweep", sweep, job.Running())
        assert re.fullmatch(rf"S3 .*credentials.* \({code}\): .*", str(told.value))
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
    assert no_jars == ("s3a:// needs Hadoop's jars for S3: fetch them with relay pipeline jars --s3")
    assert s3.explained(text.format("com.example.Other")) is None


def test_a_session_of_one_driver_is_refused(spark: SparkSession, store: ObjectStore) -> None:
    """Somebody else's session: with Delta's own log store, or without S3A's flag."""
    path = f"s3a://{BUCKET}/lake"
    Lake(spark, path)
    for name, value in ((s3.LOG_STORE, "io.delta.storage.S3SingleDriverLogStore"), (s3.FLAGS, "mkdir")):
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            with pytest.raises(InvalidField, match="would lose commits on S3 if two drivers wrote"):
                Lake(spark, path)
            s3.require(spark, "/a/local/path")
        finally:
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)
