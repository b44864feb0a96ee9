"""Loads seal with the keys of subjects, and what is forgotten stays so on every way that jobs have."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from relay.core.errors import ContentSealed, InvalidField
from relay.core.trust.sealing import subject_id
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import restore as restore_job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs import snapshot as snapshot_job
from relay.pipeline.jobs.job import translated
from relay.pipeline.jobs.restore import Restore
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.jobs.snapshot import Snapshot
from relay.pipeline.jobs.sweep import ways
from relay.pipeline.rows.sealing import RowSealing
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.timers_source import TimersDataSource
from relay.store.codec import sealed
from relay.store.codec.contents import Contents
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.trust.keyring import FileKeyring
from tests.pipeline import test_sealing as sealing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.pipeline.cold_world import ColdWorld
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

ANN, BEN, CID = "ann@example.org", "ben@example.org", "cid@example.org"
MARK, HOUR = sealing.MARK, sealing.HOUR
keyring, held, marked = sealing.keyring, sealing.held, sealing.marked


async def forgotten(server: RunningServer, topic: str, keyring: Path, *names: str) -> None:
    """Forget subjects, each of which is given a key before if it has none."""
    redis = Server(server.url, connections=1, timeout=60.0)
    try:
        contents = Contents(FileKeyring(keyring), lambda _: True)
        await RedisStore(redis, contents=contents)._subjects.keep(topic, names)
        for name in names:
            assert await RedisTopics(redis, contents=contents).forget_subject(topic, name)
    finally:
        await redis.aclose()


def read(server: RunningServer, topic: str, keyring: Path, stored: dict[str, bytes]) -> dict[str, str]:
    """The payloads, or why they don't open, by the subjects' keys that Redis has now."""
    contents = Contents(FileKeyring(keyring))
    assert contents.subjects is not None
    with server.client() as client:
        there: Any = client.hgetall(KeyNames().key("subjects", topic))
    contents.subjects.learn(topic, [each.decode() for each in there], list(there.values()))
    found = {}
    for name, each in stored.items():
        try:
            found[name] = contents.decode(topic, name, each).payload.decode()
        except ContentSealed as failure:
            found[name] = str(failure).rpartition(" is ")[2]
    return found


GONE = "sealed for a subject that was forgotten"


async def test_a_load_seals_by_subject(world: ColdWorld, keyring: Path, tmp_path: Path) -> None:
    """Into Redis and into the cold store. A row of a forgotten subject is refused, with nothing in the reject
    that says whom it is about, and so is one of a name that is none. What a sweep brings later is as
    unreadable as the rest once a subject is forgotten, and no file and no key of Redis has a name."""
    topic = world.topic
    rows: list[tuple[str, int, str | None]]
    rows = [("a-soon", 1, ANN), ("b-soon", 1, BEN), ("n-soon", 1, ""), ("c-soon", 1, CID), ("x-soon", 1, "{")]
    rows += [("a-later", 5, ANN), ("b-later", 5, BEN), ("n-later", 5, None), ("c-later", 5, CID)]
    lines = [
        {"timer_id": name, "due_time": world.at + hours * HOUR, "payload": MARK, "seal_with": who}
        for name, hours, who in rows
    ]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    source = Source(str(tmp_path / "in.jsonl"), None, {}, {}, {"topic": topic}, "us")
    target = Target(world.server.url, own={topic: sealing.RULES}, keyring=str(keyring))
    await forgotten(world.server, topic, keyring, CID)
    rejects = str(tmp_path / "rejects")
    asked = Schedule(target, source, rejects=rejects)

    def work(spark: SparkSession, _bar: Any) -> Summary:
        cold = ways(spark, asked.target, str(world.path), 2 * HOUR)
        return schedule_job.run(spark, job.Bar(spark, "", None), replace(asked, **cold))

    summary = job.run("schedule", work, job.Running())
    assert (summary.counts["written"], summary.counts["cold"], summary.counts["rejected"]) == (3, 3, 3)
    refused = world.spark.read.parquet(f"{rejects}/run_id={summary.facts['run_id']}").collect()
    assert {(row.timer_id, row.field, row.seal_with) for row in refused} == {
        (name, "seal_with", None) for name in ("c-soon", "c-later", "x-soon")
    }
    assert {row.reason for row in refused if row.timer_id[0] == "c"} == {
        "names a subject that was forgotten, for good; give it another name"
    }
    assert not any(word in str(refused) for word in (MARK, ANN, CID))
    world.sweep(horizon=8 * HOUR)
    stored = held(world.server, topic)
    by = {name: sealed.key_of(each) or "" for name, each in stored.items()}
    assert {name: key.partition(".")[0] for name, key in by.items()} == {
        **dict.fromkeys(("n-soon", "n-later"), "k1"),
        **{f"a-{when}": f"subject:{subject_id(topic, ANN)}" for when in ("soon", "later")},
        **{f"b-{when}": f"subject:{subject_id(topic, BEN)}" for when in ("soon", "later")},
    }
    assert set(read(world.server, topic, keyring, stored).values()) == {MARK}
    files = [each.read_bytes() for each in world.path.rglob("*") if each.is_file()]
    assert not any(word.encode() in each for each in files for word in (MARK, ANN, BEN, CID))
    await forgotten(world.server, topic, keyring, ANN)
    found = read(world.server, topic, keyring, stored)
    assert found == {name: GONE if name.startswith("a") else MARK for name in stored}


async def test_a_snapshot_that_is_restored_after_forgetting(
    spark: SparkSession, valkey: RunningServer, marked: str, keyring: Path, tmp_path: Path
) -> None:
    """Rows of a frame, and of one with operations, are sealed by their subjects; a topic that is not sealed
    takes none. A job without a keyring makes a snapshot, which has neither payloads nor names, and brings
    back the timers of a subject that was forgotten since, and not its key: they do not open, and those of the
    other subject and of nobody do."""
    spark.dataSource.register(TimersDataSource)
    due = datetime(2090, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame(
        [("a", due, MARK, ANN), ("b", due, MARK, BEN), ("n", due, MARK, None)],
        "timer_id string, due_time timestamp, payload string, seal_with string",
    )
    options = {"redis_url": valkey.url, "topic": marked}

    def write(rows: Any, **more: str) -> None:
        rows.write.format("timers").options(**options, **more).mode("append").save()

    with pytest.raises(PySparkException) as failure:
        write(frame)
    assert "seal_with: is set, and the topic is not sealed" in str(translated(failure.value))
    assert held(valkey, marked) == {}
    await sealing.mark(valkey, marked, keyring)
    write(frame, keyring=str(keyring))
    operations = frame.selectExpr("'o' || timer_id as timer_id", "due_time", "payload", "seal_with")
    write(operations.selectExpr("*", "'schedule' as op"), keyring=str(keyring))
    before, out = held(valkey, marked), tmp_path / "out"
    assert read(valkey, marked, keyring, before) == dict.fromkeys(before, MARK)
    snapshot = Snapshot(Target(valkey.url), str(out), (marked,))
    job.run("snapshot", lambda spark, bar: snapshot_job.run(spark, bar, snapshot), job.Running())
    files = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
    assert not any(word.encode() in file for file in files for word in (MARK, ANN, BEN))
    await forgotten(valkey, marked, keyring, ANN)
    with valkey.client() as client:
        client.delete(*KeyNames().of(marked))
    restore = Restore(Target(valkey.url), str(out))
    summary = job.run("restore", lambda spark, bar: restore_job.run(spark, bar, restore), job.Running())
    assert summary.counts["loaded"] == 6
    restored = held(valkey, marked)
    assert restored == before
    said = read(valkey, marked, keyring, restored)
    assert said == {name: GONE if name.endswith("a") else MARK for name in before}


async def test_a_keyring_that_lacks_a_key_makes_no_rejects(
    valkey: RunningServer, marked: str, keyring: Path, tmp_path: Path
) -> None:
    """A subject's key is sealed with a key that the job has not: the load ends with a sentence that names it.
    A forgotten subject's row is a reject, and others are taken."""
    await forgotten(valkey, marked, keyring, CID)
    other = tmp_path / "other.yaml"
    key = base64.b64encode(bytes(range(1, 33))).decode()
    other.write_text(json.dumps({"write": "k2", "keys": {"k2": {"base64": key}}}))
    for file in (keyring, other):
        target = Target(valkey.url, own={marked: sealing.RULES}, keyring=str(file))
        with target.open() as store:
            rows = RowSealing(target, store)
            if file is keyring:
                assert list(rows.refused(marked, [ANN, BEN, CID])) == [CID]
                continue
            with pytest.raises(
                InvalidField, match=r"seal_with: .*'k1', which the keyring lacks: add that key"
            ):
                rows.refused(marked, [ANN, CID])
            assert list(rows.refused(marked, ["dan", CID])) == [CID]
