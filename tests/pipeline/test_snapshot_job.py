"""The job `snapshot`: everything, byte for byte, and told to be whole only if it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.errors import InvalidField
from relay.core.instants import SECOND, to_score
from relay.core.outcomes import ClaimRequest
from relay.core.timers import NewTimer
from relay.pipeline.jobs import job
from relay.pipeline.jobs import snapshot as snapshot_job
from relay.pipeline.jobs.snapshot import MANIFEST, ROWS, Snapshot
from relay.pipeline.spark.redis_target import Target
from relay.store.codec import lease_record
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DUE = 4_000_000_000 * SECOND


async def fill(server: RunningServer, topic: str) -> None:
    """A leased timer, one that waits and expires, one with headers, and one whose payload was lost."""
    redis = Server(server.url, connections=1, timeout=60.0)
    try:
        store = RedisStore(redis)
        await store.schedule(topic, [NewTimer("leased", b"x", due=1)])
        await store.claim(topic, ClaimRequest(limit=1, lease=3600 * SECOND, nonce=b"n" * 16, max_bytes=100))
        timers = [
            NewTimer("expires", b"\xff", due=DUE, expires=DUE + SECOND),
            NewTimer("headers", b"", due=DUE + 1, headers={"k": "é"}, content_type="text/plain"),
            NewTimer("lost", b"gone", due=DUE + 2),
        ]
        await store.schedule(topic, timers)
    finally:
        await redis.aclose()
    with server.client() as client:
        client.hdel(KeyNames().of(topic)[1], "lost")


def run(asked: Snapshot) -> Summary:
    return job.run("snapshot", lambda spark, bar: snapshot_job.run(spark, bar, asked), job.Running())


async def test_everything_byte_for_byte(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Due times, scores, records and envelopes of several topics, as they lie in Redis."""
    topics = [keyspace.topic("a,1"), keyspace.topic("b")]
    for topic in topics:
        await fill(valkey, topic)
    summary = run(Snapshot(Target(valkey.url), str(tmp_path / "out"), tuple(topics)))
    assert not summary.problems
    assert summary.counts == {
        "size_before": 8,
        "topics": 2,
        "size_after": 8,
        "timers": 8,
        "without_payload": 2,
        "unreadable": 0,
        "read_twice": 0,
    }
    rows, about = snapshot_job.read(spark, str(tmp_path / "out"))
    assert (about["topics"], about["timers"], about["digest"]) == (topics, 8, summary.facts["digest"])
    assert 0 < about["began_us"] <= about["ended_us"]
    timeline, payloads, leases, *_ = KeyNames().of(topics[1])
    with valkey.client() as client:
        held: Any = client.hgetall(payloads)
        scores: Any = dict(client.zrange(timeline, 0, -1, withscores=True))
        kept: Any = client.hgetall(leases)
    found = {row.timer_id: row for row in rows.where(rows.topic == topics[1]).collect()}
    assert {name.encode(): row.score for name, row in found.items()} == scores
    assert {name.encode(): bytes(row.envelope) for name, row in found.items() if row.envelope} == held
    assert {name: bytes(found[name.decode()].record) for name in kept} == kept
    assert {name: row.due_us for name, row in found.items()} == {
        "leased": 1,
        "expires": DUE,
        "headers": DUE + 1,
        "lost": DUE + 2,
    }
    assert lease_record.read(bytes(found["headers"].record)).due == to_score(DUE + 1)


async def test_one_that_is_not_whole(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What reads back differently has no manifest, and nobody takes it for a snapshot."""
    topic = keyspace.topic()
    await fill(valkey, topic)
    honest = snapshot_job.digest_of
    monkeypatch.setattr(snapshot_job, "digest_of", lambda rows: honest(rows.where("timer_id != 'lost'")))
    out = str(tmp_path / "out")
    summary = run(Snapshot(Target(valkey.url), out, (topic,)))
    assert summary.problems == [f"the snapshot in {out} reads back differently: it can't be used"]
    with pytest.raises(InvalidField, match="or one that was not finished"):
        snapshot_job.read(spark, out)
    monkeypatch.undo()
    with pytest.raises(InvalidField, match="is there already"):
        run(Snapshot(Target(valkey.url), out, (topic,)))


def test_a_digest_tells_every_change(spark: SparkSession) -> None:
    """Of any column, of rows that came or went; not of their order."""
    columns = "topic string, timer_id string, due_us long, score double, record binary, envelope binary"
    columns += ", state string"
    one, two = ("t", "a", 1, 1.0, b"r", b"e", "pending"), ("t", "b", 1, 1.0, b"r", None, "pending")

    def digest(*rows: tuple[Any, ...]) -> str:
        return str(snapshot_job.digest_of(spark.createDataFrame(list(rows), columns).coalesce(1))["digest"])

    whole = digest(one, two)
    assert whole == digest(two, one)
    changed = [("u", *one[1:]), (*one[:2], 2, *one[3:]), (*one[:4], b"s", *one[5:]), (*one[:5], b"", one[6])]
    others = [digest(each, two) for each in changed] + [digest(one), digest(one, one), digest(one, two, two)]
    assert len({whole, *others}) == 8


def test_the_command(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All topics that Redis knows of; a dry run counts; a topic without timers is a snapshot, too."""
    topic = keyspace.topic()
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)
    with valkey.client() as client:
        client.sadd(KeyNames().topics, topic)
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["pipeline", "snapshot", str(out), "--dry-run", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["topics"] == 1
    assert not out.exists()
    told = CliRunner().invoke(app, ["pipeline", "snapshot", str(out), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads((out / MANIFEST).read_text())["topics"] == [topic]
    assert spark.read.parquet(str(out / ROWS)).count() == 0
