"""Sealed topics: no job writes their payloads in the clear, and what is sealed stays so on its way."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.pipeline.cold.sweep import TopicRefused
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.job import translated
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.jobs.sweep import ways
from relay.pipeline.spark.redis_target import Target, TopicRules
from relay.pipeline.timers_source import TimersDataSource
from relay.store.codec import sealed
from relay.store.codec.contents import Contents
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.topics import RedisTopics
from relay.trust.keyring import FileKeyring

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.pipeline.cold_world import ColdWorld
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

MARK = "confidential-0x5ea1ed"
DUE = datetime(2090, 1, 1, tzinfo=UTC)
HOUR = 3600 * SECOND
RULES = TopicRules(sealing=True)


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    file = tmp_path / "keyring.yaml"
    key = base64.b64encode(bytes(range(32))).decode()
    file.write_text(json.dumps({"write": "k1", "keys": {"k1": {"base64": key}}}))
    return file


def held(server: RunningServer, topic: str) -> dict[str, bytes]:
    with server.client() as client:
        found: Any = client.hgetall(KeyNames().of(topic)[1])
    return {name.decode(): stored for name, stored in found.items()}


def opened(keyring: Path, topic: str, stored: dict[str, bytes]) -> dict[str, bytes]:
    """The payloads, all of which are sealed."""
    assert all(sealed.key_of(each) == "k1" and MARK.encode() not in each for each in stored.values())
    contents = Contents(FileKeyring(keyring))
    return {name: contents.decode(topic, name, each).payload for name, each in stored.items()}


async def mark(server: RunningServer, topic: str, keyring: Path) -> None:
    """What a relay leaves that seals the topic, the first time that it meets it."""
    redis = Server(server.url, connections=1, timeout=60.0)
    try:
        await RedisTopics(redis, contents=Contents(FileKeyring(keyring), lambda _: True)).register(topic)
    finally:
        await redis.aclose()


@pytest.fixture
def marked(keyspace: Keyspace) -> str:
    """A topic whose mark may stay."""
    name = keyspace.topic("orders")
    keyspace.allow(f"*{name}*")
    return name


async def test_the_data_source_seals_a_marked_topic_or_is_refused(
    spark: SparkSession, valkey: RunningServer, marked: str, keyring: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that knows nothing of the relays' settings finds their mark. Without a keyring nothing of the
    topic is written; with one all is sealed, by the rows of a frame or by rows with operations."""
    spark.dataSource.register(TimersDataSource)
    await mark(valkey, marked, keyring)
    rows = spark.createDataFrame(
        [(f"t{n}", DUE, MARK, {"h": MARK}) for n in range(8)],
        "timer_id string, due_time timestamp, payload string, headers map<string,string>",
    )
    options = {"redis_url": valkey.url, "topic": marked}

    def write(frame: Any, **more: str) -> None:
        frame.write.format("timers").options(**options, **more).mode("append").save()

    with pytest.raises(PySparkException) as failure:
        write(rows)
    told = translated(failure.value)
    assert told.kind is InvalidField
    assert f"{marked!r} is sealed, and this job has no keyring" in str(told)
    assert held(valkey, marked) == {}
    write(rows, keyring=str(keyring))
    write(
        rows.selectExpr("'o' || timer_id as timer_id", "due_time", "payload", "'schedule' as op"),
        keyring=str(keyring),
    )
    write(
        rows.selectExpr("'r' || timer_id as timer_id", "due_time", "payload"),
        keyring=str(keyring),
        run_id="run",
    )
    found = opened(keyring, marked, held(valkey, marked))
    assert found.keys() == {f"{kind}t{n}" for n in range(8) for kind in ("", "o", "r")}
    assert set(found.values()) == {MARK.encode()}
    with pytest.raises(PySparkException, match=r"sealing\.keyring: .*can't be read"):
        write(rows, keyring=f"{keyring}.gone")


def test_a_load_seals_what_goes_to_redis_and_to_the_cold_store(
    world: ColdWorld, keyring: Path, tmp_path: Path
) -> None:
    """By the settings. The sweep brings the sealed rows as they are, and needs no keyring; rows of such a
    load that are refused leave nothing but ids and reasons."""
    topic = world.topic
    lines = [
        {"timer_id": "soon", "due_time": world.at + HOUR, "payload": MARK},
        {"timer_id": "later", "due_time": world.at + 5 * HOUR, "payload": MARK},
        {"timer_id": "bad", "due_time": -1, "payload": MARK},
        {"timer_id": "worse", "due_time": f"'{MARK}'", "payload": MARK},
    ]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    source = Source(str(tmp_path / "in.jsonl"), None, {}, {}, {"topic": topic}, "us")
    rules, rejects = {topic: RULES}, str(tmp_path / "rejects")
    asked = Schedule(Target(world.server.url, own=rules, keyring=str(keyring)), source, rejects=rejects)

    def work(spark: SparkSession, _bar: Any) -> Summary:
        cold = ways(spark, asked.target, str(world.path), 2 * HOUR)
        return schedule_job.run(spark, job.Bar(spark, "", None), replace(asked, **cold))

    summary = job.run("schedule", work, job.Running())
    assert (summary.counts["written"], summary.counts["cold"], summary.counts["rejected"]) == (1, 1, 2)
    resting = world.cold.table.rows(world.cold.state().table).where("envelope is not null").collect()
    stored = {row.timer_id: bytes(row.envelope) for row in resting}
    assert opened(keyring, topic, stored) == {"later": MARK.encode()}
    world.sweep(horizon=8 * HOUR)
    assert opened(keyring, topic, held(world.server, topic)) == dict.fromkeys(
        ("soon", "later"), MARK.encode()
    )
    refused = world.spark.read.parquet(f"{rejects}/run_id={summary.facts['run_id']}").collect()
    assert {row.timer_id for row in refused} == {"bad", "worse"}
    assert all(row.reason and row.field == "due_time" for row in refused)
    assert MARK not in str(refused)


def test_rows_from_before_are_sealed_by_the_sweep_or_stay(world: ColdWorld, keyring: Path) -> None:
    """A topic that became sealed has rows in the clear in its cold store: without a keyring its sweep is
    refused by name, with one they are sealed on their way."""
    world.write([("a", HOUR), ("b", HOUR)], MARK)
    world.target = Target(world.server.url, own={world.topic: RULES})
    with pytest.raises(TopicRefused, match="it is sealed, and 2 of its rows rest in the clear"):
        world.sweep()
    assert held(world.server, world.topic) == {}
    world.target = Target(world.server.url, own={world.topic: RULES}, keyring=str(keyring))
    assert world.sweep().loaded == 2
    assert opened(keyring, world.topic, held(world.server, world.topic)) == dict.fromkeys("ab", MARK.encode())
