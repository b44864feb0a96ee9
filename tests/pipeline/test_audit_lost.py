"""What lives by the journal is held against Redis; what is lost is told, and comes back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.instants import SECOND
from relay.pipeline.audit import presence
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.jobs.job import Summary
from relay.store.keys import KeyNames
from tests.audit.forge import START, Forge
from tests.pipeline.cold_world import HOUR, ColdWorld
from tests.pipeline.journals import put
from tests.pipeline.tables import rows_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from pyspark.sql import DataFrame, SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

    Relay: TypeAlias = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.slow

NAMES = KeyNames()


@pytest.fixture
def relay(spark: SparkSession, valkey: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """`relay pipeline …` in the suite's session: exit code and summary."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        found = CliRunner().invoke(app, ["pipeline", *arguments, "--json"], catch_exceptions=False)
        lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
        return found.exit_code, json.loads(lines[-1]) if lines else {"said": found.output}

    return call


def journal() -> Forge:
    """Ten timers: 0 is done, the others wait; 8 and 9 are leased."""
    forge = Forge()
    for n in range(10):
        forge.scheduled(f"t{n}", 60.0 + n)
    forge.wait(70).claimed("t0", 1, 60.0).acked("t0", 1)
    return forge.claimed("t8", 2, 68.0).claimed("t9", 3, 69.0)


def hold(server: RunningServer, topic: str, *timer_ids: str) -> None:
    """In Redis, as a publisher writes them."""
    timeline, payloads, *_ = NAMES.of(topic)
    with server.client() as client:
        for timer_id in timer_ids:
            client.zadd(timeline, {timer_id: START / SECOND})
            client.hset(payloads, timer_id, b"x")


def people_did(server: RunningServer, topic: str) -> None:
    """A pause, from its beginning to its end; one of another topic; a policy that came for all; and a pause
    after the journal's last record."""

    def entry(seconds: float, **said: str) -> str:
        at = int(START + seconds * SECOND)
        client.xadd(NAMES.actions, {"time": str(at), **said}, f"{at // 1000}-0")
        return f"{at // 1000}-0"

    pause = {"principal": "token:ann", "verb": "operate", "method": "PauseTopic"}
    with server.client() as client:
        client.delete(NAMES.actions)  # a stream takes no entry from before its last one
        began = entry(1.0, **pause, topic=topic, note="ticket 1")
        entry(1.2, **pause, topic=f"{topic}-2", note="ticket 2", outcome="OK")
        entry(1.4, **pause, topic=topic, note="ticket 1", outcome="OK", began=began)
        entry(2.0, principal="relay", verb="admin", method="TakeOverPolicy", topic="*")
        entry(9_000.0, **pause, topic=topic, note="ticket 2", outcome="OK")


@pytest.mark.timeout(900)
def test_lost_timers_are_told_and_come_back(
    relay: Relay,
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the journal is in the lake, half in the stream. Redis has lost three timers; one of them ends
    while the audit asks. Of those that are gone for good one has content, and is scheduled again."""
    topic, forge = keyspace.topic("<b>&amp"), journal()
    lake, out, lost = (str(tmp_path / name) for name in ("lake", "out", "lost"))
    put(valkey, topic, forge.batches[:8])
    assert relay("journal", "--lake", lake, "--topic", topic, "--dry-run")[1]["records"] == 8
    assert relay("journal", "--lake", lake, "--topic", topic)[1]["records"] == 8
    put(valkey, topic, forge.batches[8:])
    hold(valkey, topic, *(f"t{n}" for n in (1, 2, 3, 4, 5, 8)), "stranger")
    with valkey.client() as client:
        client.hset(NAMES.of(topic)[2], "t8", b"a record of ours")
    ask = presence.in_redis

    def meanwhile(living: DataFrame, options: Any) -> DataFrame:
        answered = ask(living, options).cache()
        answered.count()
        put(valkey, topic, forge.acked("t9", 3).batches[-1:])
        return answered

    monkeypatch.setattr(presence, "in_redis", meanwhile)
    keyspace.allow(NAMES.actions)
    people_did(valkey, topic)
    contents = [(topic, "t6", b"six"), (topic, "t5", b"five")]
    spark.createDataFrame(contents, "topic string, timer_id string, payload binary").write.parquet(
        f"{lost}.from"
    )
    code, told = relay(
        "audit", "--lake", lake, "--out", out, "--then-redis", "--exclusive", "--lost", lost,
        "--payloads", f"{lost}.from",
    )  # fmt: skip
    assert (code, told["verdict"]) == (1, "refuted")
    assert (told["open"], told["lost"], told["unknown"]) == (9, 2, 1)
    assert (told["lost_timers"], told["lost_bare"]) == (1, 1)
    assert [row.timer_id for row in rows_at(spark, out, "unknown").collect()] == ["stranger"]
    assert [row.timer_id for row in spark.read.parquet(f"{lost}/bare").collect()] == ["t7"]
    breaks = rows_at(spark, out, "findings").where("reason = ''").collect()
    assert {(row.promise, row.timer_id) for row in breaks} == {(2, "t6"), (2, "t7")}
    page = (tmp_path / "out" / "report.html").read_text()
    assert_safe(page, topic)
    done = rows_at(spark, out, "people").orderBy("entry").collect()
    assert [(row.principal, row.method, row.note, row.outcome) for row in done] == [
        ("token:ann", "PauseTopic", "ticket 1", "OK"),
        ("relay", "TakeOverPolicy", "", "open"),
    ]
    assert ("token:ann" in page, "ticket 1" in page, "ticket 2" in page) == (True, True, False)

    code, told = relay("schedule", f"{lost}/timers", "--format", "parquet")
    assert (code, told.get("written")) == (0, 1), told
    with valkey.client() as client:
        assert client.zscore(NAMES.of(topic)[0], "t6") == (START / SECOND) + 66


@pytest.mark.timeout(900)
@pytest.mark.chaos
def test_a_snapshot_and_a_cold_store_answer(
    relay: Relay, spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """By the commands alone: of two timers that the snapshot has not, one rests and one is lost. What was
    scheduled behind the snapshot is not judged by it."""
    topic, forge = keyspace.topic(), journal()
    lake, out, lost, taken, cold = (str(tmp_path / name) for name in ("lake", "out", "lost", "taken", "cold"))
    hold(valkey, topic, *(f"t{n}" for n in (1, 2, 3, 4, 5, 8, 9)))
    assert relay("snapshot", taken, "--topic", topic)[1]["timers"] == 7
    world = ColdWorld(spark, valkey, tmp_path / "cold", topic)
    world.write([("t7", HOUR)], retired=False)
    forge.wait((world.at - START) / SECOND + 60).scheduled("young", 90.0)
    world.close()
    last = replace(forge.batches[-1], entry=f"{forge.now // 1000}-0")
    put(valkey, topic, [*forge.batches[:-1], last])
    assert relay("journal", "--lake", lake, "--topic", topic)[0] == 0
    code, told = relay(
        "audit", "--lake", lake, "--out", out, "--snapshot", taken, "--cold", cold, "--exclusive",
        "--lost", lost,
    )  # fmt: skip
    assert (code, told["verdict"]) == (1, "refuted")
    rows = rows_at(spark, out, "open").collect()
    assert {row.timer_id: row.missed for row in rows if row.timer_id in ("t1", "t6", "t7", "young")} == {
        "t1": False,
        "t6": True,
        "t7": False,
        "young": None,
    }
    assert [row.timer_id for row in rows if row.cold] == ["t7"]
    assert (told["open"], told["lost"], told["unknown"], told["lost_bare"]) == (10, 1, 0, 1)
    breaks = rows_at(spark, out, "findings").where("reason = ''").collect()
    assert [(row.promise, row.timer_id) for row in breaks] == [(2, "t6")]
    assert (tmp_path / "out" / "report.html").exists()


def assert_safe(page: str, topic: str) -> None:
    """What came from outside is text; nothing is fetched from anywhere."""
    assert topic not in page
    assert topic in unescape(page)
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script", page)


@pytest.mark.parametrize(("verdict", "wanted"), [("proved", 0), ("refuted", 1), ("can't be said", 2)])
def test_it_exits_with_its_verdict(
    verdict: str, wanted: int, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `relay audit` does."""
    monkeypatch.setattr(audit_job, "run", lambda *_: Summary("audit", facts={"verdict": verdict}))
    assert relay("audit", "--lake", "x", "--out", "y") == (wanted, ANY)


def test_a_snapshot_answers_for_what_is_older(spark: SparkSession, keyspace: Keyspace) -> None:
    """One whose last record came while it was taken, or whose topic's journal ends before it did, it can't
    judge."""
    rows = [
        ("far", "old", "1000-0"),
        ("far", "here", "1000-0"),
        ("far", "young", "3000-0"),
        ("near", "old", "1000-0"),
    ]
    living = spark.createDataFrame(rows, "topic string, timer_id string, entry string")
    living = living.selectExpr("*", "cast(null as binary) raw_id")
    there = spark.createDataFrame([("far", "here")], "topic string, timer_id string")
    found = presence.in_snapshot(living, there, 2_000_000, 4_000_000, {"far": 4_000_000, "near": 3_999_999})
    answers = {(row.topic, row.timer_id): row.missed for row in found.collect()}
    assert answers == {
        ("far", "old"): True,
        ("far", "here"): False,
        ("far", "young"): None,
        ("near", "old"): None,
    }


def test_the_cold_store_is_no_loss(spark: SparkSession) -> None:
    """Who rests there is not missed."""
    rows = [("t", "rests", True), ("t", "gone", True), ("t", "lives", False)]
    asked = spark.createDataFrame(rows, "topic string, timer_id string, missed boolean")
    resting = spark.createDataFrame([("t", "rests"), ("t", "lives")], "topic string, timer_id string")
    found = {row.timer_id: (row.missed, row.cold) for row in presence.cold(asked, resting).collect()}
    assert found == {"rests": (False, True), "gone": (True, False), "lives": (False, True)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("journal", "--lake", "x"), "--topic"),
        (("journal", "--lake", "x", "--topic", "a", "--every", "soon"), "--every"),
        (("audit", "--lake", "x", "--out", "y", "--then-redis", "--snapshot", "z"), "--snapshot"),
        (("audit", "--lake", "x", "--out", "y", "--payloads", "z"), "--payloads"),
    ],
)
def test_wrong_usage_is_named(arguments: tuple[str, ...], said: str) -> None:
    """Before Spark starts."""
    found = CliRunner().invoke(app, ["pipeline", *arguments])
    assert found.exit_code == 2
    assert said in found.output
