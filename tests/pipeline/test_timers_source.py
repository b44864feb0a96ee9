"""`timers`, written and read: what goes in comes out, what can't is put aside, filters narrow it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from relay.core.instants import SECOND, spread_of
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.timers import NewTimer
from relay.pipeline.jobs.job import translated
from relay.pipeline.spark.redis_target import Target, TopicRules
from relay.pipeline.timers_source import TimersDataSource
from relay.store.bulk.scanning import LEAST
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.settlements import end_of
from tests.store.test_durability import calls_of
from tests.worlds.replicated import replicated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DUE = datetime(2090, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
N1 = b"relay-1-nonce-01"


class Timers:
    """The source on one server and one topic."""

    def __init__(self, spark: SparkSession, server: RunningServer, topic: str) -> None:
        self.spark, self.server, self.topic = spark, server, topic

    def write(self, rows: DataFrame, **options: str) -> None:
        options = {"redis_url": self.server.url, "topic": self.topic, **options}
        rows.write.format("timers").options(**options).mode("append").save()

    def read(self, **options: str) -> DataFrame:
        options = {"redis_url": self.server.url, "topic": self.topic, **options}
        return self.spark.read.format("timers").options(**options).load()

    def rows(self, found: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in found.orderBy("due_time", "timer_id").collect()]


@pytest.fixture
def timers(spark: SparkSession, valkey: RunningServer, keyspace: Keyspace) -> Timers:
    spark.dataSource.register(TimersDataSource)
    return Timers(spark, valkey, keyspace.topic())


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    """A session far from UTC, and from the machine."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


SCHEMA = (
    "timer_id string, due_time timestamp, payload binary, headers map<string,string>, content_type string, "
    "expire_time timestamp"
)


def test_what_is_written_is_read(timers: Timers) -> None:
    """Every column, to the microsecond; without a payload there is an empty one."""
    rows = [
        ("a", DUE, b"\x00x", {"k": "v", "é": ""}, "text/plain", DUE + timedelta(seconds=1)),
        ("b", DUE + timedelta(microseconds=1), None, None, None, None),
    ]
    timers.write(timers.spark.createDataFrame(rows, SCHEMA))
    found = timers.rows(timers.read())
    naive = DUE.astimezone().replace(tzinfo=None)  # as pyspark shows times
    assert found == [
        {
            "topic": timers.topic,
            "timer_id": name,
            "due_time": at,
            "next_claim_time": at,
            "state": "pending",
            "attempts": 0,
            "claims": 0,
            "expire_time": expires,
            "payload": payload,
            "headers": headers,
            "content_type": kind,
        }
        for name, at, payload, headers, kind, expires in (
            ("a", naive, b"\x00x", {"k": "v", "é": ""}, "text/plain", naive + timedelta(seconds=1)),
            ("b", naive + timedelta(microseconds=1), b"", {}, "", None),
        )
    ]


def test_without_content_and_as_stored(timers: Timers) -> None:
    """`payload=false` reads ids and times only; `raw=true` the bytes that lie in Redis."""
    timers.write(
        timers.spark.createDataFrame(
            [("a", DUE, b"x")], "timer_id string, due_time timestamp, payload binary"
        )
    )
    assert timers.read(payload="false").columns == timers.read().columns[:8]
    assert timers.read(payload="false").select("timer_id").first() == ("a",)
    raw = timers.read(raw="true").select("due_us", "score", "envelope", sf.length("record")).first()
    at = 3786955200123456
    assert raw == (at, at / 1e6, envelope.encode(b"x", {}, ""), 69)


def test_payloads_of_other_types(timers: Timers) -> None:
    """Text is text/plain, a struct becomes JSON and says so; an option or a column says otherwise."""
    text = timers.spark.createDataFrame(
        [("t", DUE, "é")], "timer_id string, due_time timestamp, payload string"
    )
    made = sf.expr("struct(1 as a, array('x') as b, payload as c)")
    struct = text.select(sf.lit("s").alias("timer_id"), "due_time", made.alias("payload"))
    timers.write(text)
    timers.write(struct)
    timers.write(text.withColumn("timer_id", sf.lit("u")), content_type="text/html")
    found = {row["timer_id"]: (row["payload"], row["content_type"]) for row in timers.rows(timers.read())}
    assert found.pop("t") == ("é".encode(), "text/plain")
    assert found.pop("u") == ("é".encode(), "text/html")
    body, kind = found.pop("s")
    assert (json.loads(body), kind) == ({"a": 1, "b": ["x"], "c": "é"}, "application/json")


@pytest.mark.usefixtures("zone")
def test_the_sessions_time_zone(timers: Timers) -> None:
    """A text that names no zone is of the session's; a timestamp_ntz is of none, and has to be told."""
    spark = timers.spark
    timers.write(spark.sql("select 'a' as timer_id, timestamp '2090-01-01 00:00:00' as due_time"))
    plain = spark.sql("select 'b' as timer_id, timestamp_ntz '2090-01-01 00:00:00' as due_time")
    with pytest.raises(PySparkException) as refusal:
        timers.write(plain)
    assert "due_time: has no time zone" in str(translated(refusal.value))
    timers.write(plain, time_zone="Europe/Berlin")
    found = timers.read(raw="true").select("timer_id", "due_us").orderBy("timer_id").collect()
    day = 3786912000 * SECOND
    assert [tuple(row) for row in found] == [
        ("a", day - (5 * 3600 + 45 * 60) * SECOND),
        ("b", day - 3600 * SECOND),
    ]


LONG_AGO = datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
BAD = [
    (None, DUE, b"x", "timer_id: is missing; give it 1 to 256 bytes"),
    ("", DUE, b"x", "timer_id: is empty; give it 1 to 256 bytes"),
    ("a{", DUE, b"x", "timer_id: contains a brace; leave out { and }"),
    ("n" * 257, DUE, b"x", "timer_id: is 257 bytes long; at most 256 are allowed"),
    (
        "early",
        datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
        b"x",
        "due_time: is before 1970; give a time from 1970 to 9999",
    ),
    ("never", None, b"x", "due_time: is missing, or not a time"),
    ("big", DUE, b"x" * 33, "payload: is 33 bytes long; max_payload_bytes of this topic is 32"),
]
BAD_SCHEMA = "timer_id string, due_time timestamp, payload binary"


def test_invalid_rows_are_put_aside(timers: Timers, tmp_path: Path) -> None:
    """Each with its reason, as it came; they stop nothing, and nothing of them is in Redis."""
    rows = [row[:3] for row in BAD]
    good = [(f"ok-{n}", DUE, b"x") for n in range(5)]
    frame = timers.spark.createDataFrame([*rows[:4], *good, *rows[4:]], BAD_SCHEMA)
    timers.write(frame, rejects=str(tmp_path / "rejects"), max_payload_bytes="32")
    assert [row["timer_id"] for row in timers.rows(timers.read())] == [name for name, *_ in good]
    found = timers.spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert {
        (row.timer_id, f"{row.field}: {row.reason}", row.payload and bytes(row.payload)) for row in found
    } == {(name, reason, payload) for name, _, payload, reason in BAD}


def test_a_run_with_an_id_writes_once(timers: Timers, tmp_path: Path) -> None:
    """Repeated, it brings nothing back, and its rejects take the place of those before."""
    frame = timers.spark.createDataFrame([("a", DUE, b""), ("b{", DUE, b"")], BAD_SCHEMA)
    options = {"rejects": str(tmp_path / "rejects"), "run_id": "spring"}
    timers.write(frame, **options)
    with timers.server.client() as client:
        client.zrem(f"timers_timeline:{timers.topic}", "a")
    timers.write(frame, **options)
    assert timers.rows(timers.read()) == []
    rejected = timers.spark.read.parquet(options["rejects"]).select("run_id", "timer_id").collect()
    assert [tuple(row) for row in rejected] == [("spring", "b{")]


def test_which_timer_stands_and_where_in_a_window(timers: Timers) -> None:
    """As `on_conflict` and `spread` have it, in a run."""
    frame = timers.spark.createDataFrame([("a", DUE, b"1"), ("b", DUE, b"1")], BAD_SCHEMA)
    timers.write(frame, spread="600", run_id="one")
    sooner = timers.spark.createDataFrame(
        [("a", DUE - timedelta(days=1), b"2"), ("b", DUE + timedelta(days=1), b"2")], BAD_SCHEMA
    )
    timers.write(sooner, spread="600", on_conflict="keep_earliest", run_id="two")
    place = {name: timedelta(microseconds=spread_of(name, 600_000_000)) for name in "ab"}
    found = {
        row["timer_id"]: (row["due_time"].astimezone(UTC), bytes(row["payload"]))
        for row in timers.rows(timers.read())
    }
    assert found == {"a": (DUE - timedelta(days=1) + place["a"], b"2"), "b": (DUE + place["b"], b"1")}


def test_without_a_place_for_rejects_the_first_ends_it(timers: Timers) -> None:
    """The error names the field, the row, and the way out."""
    with pytest.raises(PySparkException) as refusal:
        timers.write(timers.spark.createDataFrame([("a{", DUE, b"")], BAD_SCHEMA))
    said = str(translated(refusal.value))
    assert said.startswith("timer_id: contains a brace")
    assert "'a{'" in said
    assert "with rejects" in said


ID_AND_DUE = "timer_id string, due_time timestamp"


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("timer_id string", {}, "due_time: is missing; it has to be a column"),
        (f"{ID_AND_DUE}, nonsense int", {}, "nonsense: is not a column of a timer"),
        (f"{ID_AND_DUE}, seal_to string", {}, "seal_to: is not a column of a timer"),
        ("timer_id string, due_time long", {}, "due_time: has the type bigint; give a timestamp"),
        (f"{ID_AND_DUE}, payload long", {}, "payload: has the type bigint"),
        (ID_AND_DUE, {"topic": "a{"}, "topic: contains a brace"),
        (ID_AND_DUE, {"redis_url": "http://:geheim@x"}, "redis_url: must begin with"),
        (ID_AND_DUE, {"max_rate": "0"}, "max_rate: is '0'"),
        (ID_AND_DUE, {"spread": "10m"}, "spread: is '10m'"),
        (ID_AND_DUE, {"spread": "-1"}, "spread: is '-1'"),
        (ID_AND_DUE, {"spread": "nan"}, "spread: is 'nan'"),
        (ID_AND_DUE, {"on_conflict": "keep"}, "on_conflict: is 'keep'; give replace or keep_earliest"),
        (ID_AND_DUE, {"durability": "sync"}, "durability: 'sync' is not a durability; give stored"),
        (ID_AND_DUE, {"on_conflict": "keep_latest"}, "run_id: is missing"),
    ],
)
def test_what_is_of_no_use(timers: Timers, schema: str, options: dict[str, str], said: str) -> None:
    """Columns and options are told of, and no word of a password comes with it."""
    values: dict[str, Any] = {"string": "x", "timestamp": DUE, "int": 1, "long": 1}
    row = [values[part.split()[1]] for part in schema.split(", ")]
    with pytest.raises(PySparkException) as refusal:
        timers.write(timers.spark.createDataFrame([row], schema), **options)
    assert said in str(translated(refusal.value))
    assert "geheim" not in str(refusal.value)


def test_a_url_that_is_set_too_late(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes have the environment of the session's start: they refuse, and try no default."""
    monkeypatch.setenv("RELAY_REDIS__URL", timers.server.url)
    rows = timers.spark.createDataFrame([("a", DUE)], ID_AND_DUE)
    with pytest.raises(PySparkException, match="redis_url: is missing, and RELAY_REDIS__URL was not set"):
        rows.write.format("timers").option("topic", timers.topic).mode("append").save()
    with pytest.raises(PySparkException, match="redis_url: is missing"):
        timers.spark.read.format("timers").option("topic", timers.topic).load().collect()


def test_plans_hide_the_url(timers: Timers, valkey: RunningServer) -> None:
    """It may have a password, and plans are logged."""
    assert valkey.url not in timers.read()._jdf.queryExecution().toString()


@pytest.mark.slow
async def test_filters_narrow_the_reading(timers: Timers) -> None:
    """Due times and topics are looked up in Redis; a leased timer is found by its due time all the same."""
    spark = timers.spark
    frame = spark.range(4 * LEAST).selectExpr(
        "concat('t-', lpad(id, 6, '0')) as timer_id", "timestamp_seconds(4000000000 + id) as due_time"
    )
    timers.write(frame)
    redis = Server(timers.server.url, connections=1, timeout=60.0)
    try:
        store = RedisStore(redis)
        await store.schedule(timers.topic, [NewTimer("leased", b"x", due=1_000_000)])
        await store.claim(timers.topic, ClaimRequest(limit=1, lease=3600 * SECOND, nonce=N1, max_bytes=100))
        calls = commands(timers.server)
        low, high = (f"timestamp_seconds({4_000_000_000 + n})" for n in (10, 13))
        narrow = timers.read().where(f"due_time >= {low} and due_time < {high}")
        assert sorted(row.timer_id for row in narrow.collect()) == ["t-000010", "t-000011", "t-000012"]
        assert commands(timers.server) - calls < 12, "the rest is not read"
        early = timers.read().where("due_time < '1971-01-01'")
        assert [row.timer_id for row in early.collect()] == ["leased"]
        await store.settle(timers.topic, [end_of("leased", N1, Verb.ACK)])
    finally:
        await redis.aclose()
    everything = timers.read(partitions="4")
    sizes = everything.rdd.glom().map(len).collect()
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 1
    assert everything.select("timer_id").distinct().count() == 4 * LEAST
    every_topic = spark.read.format("timers").option("redis_url", timers.server.url).load()
    assert every_topic.where(sf.col("topic") == timers.topic).count() == 4 * LEAST
    assert every_topic.where("topic = 'nowhere'").count() == 0


def commands(server: RunningServer) -> int:
    with server.client() as client:
        stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_an_id_that_is_no_text(timers: Timers) -> None:
    """Is shown, and marked."""
    timeline, payloads, *_ = KeyNames().of(timers.topic)
    with timers.server.client() as client:
        client.zadd(timeline, {b"\xff\x00a": 5.5, b"good": 6.5})
        client.hset(payloads, b"good", b"")
    found = {row["timer_id"]: (row["state"], row["payload"]) for row in timers.rows(timers.read())}
    assert found == {"\\xff\x00a": ("unreadable", None), "good": ("pending", b"")}


def test_a_task_ends_once_its_timers_are_durable(timers: Timers) -> None:
    """Each waits once, behind all of its batches: for what was asked for, or for the topic's own level."""
    rows = [(f"{number:04}", DUE, b"x") for number in range(1_200)]
    frame = timers.spark.createDataFrame(rows, BAD_SCHEMA).repartition(2)
    with replicated() as (master, _):
        target = Target(master.url, own={timers.topic: TopicRules(durability="replicas:1")})
        for options in ({"redis_url": master.url, "durability": "replicas:1"}, target.options()):
            before = calls_of(master, "wait")
            timers.write(frame, **options)
            assert calls_of(master, "wait") == before + 2
        assert master.control.zcard(f"timers_timeline:{timers.topic}") == 1_200
        with pytest.raises(PySparkException, match="durability: replicas:2 needs 2 replicas"):
            timers.write(frame, redis_url=master.url, topic="refused", durability="replicas:2")
        assert not master.control.exists("timers_timeline:refused")
