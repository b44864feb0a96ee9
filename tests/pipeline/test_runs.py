"""Running it again changes nothing that stands: a run's id, its ledger, its rejects."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import SECOND, spread_of, to_score
from relay.core.timers import KEEP_EXISTING, REPLACE, OnConflict
from relay.pipeline.inputs import run_ids
from relay.pipeline.inputs.run_ids import MaxRejects, TooManyRejects
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs import sweep as sweep_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.spark.redis_target import Target
from relay.store.keys import KeyNames
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.pipeline.cold_world import ColdWorld
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

DUE = 4_000_000_000 * SECOND
THREE = "timer_id,due_time,payload\na,2090-01-01T00:00:00Z,1\nb,2090-01-01T00:00:01Z,2\nc,soon,3\n"


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


@pytest.fixture
def source(topic: str, tmp_path: Path) -> Source:
    """Two timers, and a row that is none."""
    (tmp_path / "three.csv").write_text(THREE)
    return Source(str(tmp_path / "three.csv"), constants={"topic": topic})


def run(spark: SparkSession, source: Source, server: RunningServer, place: Path, **options: Any) -> Summary:
    target = options.pop("target", Target(server.url))
    asked = Schedule(target, source, **{"rejects": str(place / "rejects"), **options})
    return job.run("schedule", lambda spark, bar: schedule_job.run(spark, bar, asked), job.Running())


def told(summary: Summary) -> dict[str, int]:
    """The counts that are not 0."""
    return {name: count for name, count in summary.counts.items() if count}


def names(server: RunningServer, topic: str) -> dict[str, float]:
    with server.client() as client:
        found: Any = client.zrange(KeyNames().of(topic)[0], 0, -1, withscores=True)
    return {name.decode(): score for name, score in found}


def end(server: RunningServer, topic: str, timer_id: str) -> None:
    """As a foreign worker commits it."""
    timeline, payloads, *_ = KeyNames().of(topic)
    with server.client() as client:
        assert client.zrem(timeline, timer_id)
        client.hdel(payloads, timer_id)


def test_a_second_run_inserts_nothing(
    spark: SparkSession, valkey: RunningServer, source: Source, topic: str, tmp_path: Path
) -> None:
    """What was delivered meanwhile stays away, what was moved stays where it is, and the summary says so. A
    run with another id inserts all, and so does one that replaces."""
    first = run(spark, source, valkey, tmp_path)
    assert (told(first), first.warnings) == ({"written": 2, "rejected": 1}, [])
    end(valkey, topic, "a")
    with valkey.client() as client:
        client.zadd(KeyNames().of(topic)[0], {"b": 5e9})
    again = run(spark, source, valkey, tmp_path)
    assert told(again) == {"skipped_by_ledger": 2, "rejected": 1}
    assert again.facts == first.facts
    (warning,) = again.warnings
    assert warning.startswith(f"run {first.facts['run_id']} has inserted all 2 timers")
    assert again.document()["ok"]
    assert names(valkey, topic) == {"b": 5e9}
    assert told(run(spark, source, valkey, tmp_path, run_id="other"))["written"] == 2
    assert set(names(valkey, topic)) == {"a", "b"}
    end(valkey, topic, "a")
    assert told(run(spark, source, valkey, tmp_path, replace=True))["written"] == 2
    assert set(names(valkey, topic)) == {"a", "b"}


def test_only_what_does_not_live(
    spark: SparkSession, valkey: RunningServer, source: Source, topic: str, tmp_path: Path
) -> None:
    """KEEP_EXISTING leaves a timer alone that lives, and does not bring it back when it has ended."""
    with valkey.client() as client:
        client.zadd(KeyNames().of(topic)[0], {"b": 5e9})
    summary = run(spark, source, valkey, tmp_path, on_conflict=KEEP_EXISTING)
    assert told(summary) == {"written": 1, "skipped_alive": 1, "rejected": 1}
    assert names(valkey, topic)["b"] == 5e9
    end(valkey, topic, "b")
    assert told(run(spark, source, valkey, tmp_path, on_conflict=KEEP_EXISTING))["skipped_by_ledger"] == 2
    assert set(names(valkey, topic)) == {"a"}


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST])
def test_which_timer_stands(
    spark: SparkSession,
    valkey: RunningServer,
    source: Source,
    topic: str,
    tmp_path: Path,
    on_conflict: OnConflict,
) -> None:
    """One of the two that live is due after its row, the other one before; what stands counts as alive."""
    before, behind = 3_786_912_000.0, 3_786_912_001.0  # the rows' due times, for b and a
    with valkey.client() as client:
        client.zadd(KeyNames().of(topic)[0], {"a": behind, "b": before})
    summary = run(spark, source, valkey, tmp_path, on_conflict=on_conflict)
    assert told(summary) == {"written": 1, "skipped_alive": 1, "rejected": 1}
    found = names(valkey, topic)
    same = before if on_conflict is OnConflict.KEEP_EARLIEST else behind
    assert found == {"a": same, "b": same}


def test_rows_that_are_spread(
    spark: SparkSession, valkey: RunningServer, source: Source, topic: str, tmp_path: Path
) -> None:
    """Each to the place in the window that a relay would find for it."""
    window = 600 * SECOND
    assert told(run(spark, source, valkey, tmp_path, spread=window))["written"] == 2
    wanted = {"a": 3_786_912_000 * SECOND, "b": 3_786_912_001 * SECOND}
    assert names(valkey, topic) == {
        name: to_score(due + spread_of(name, window)) for name, due in wanted.items()
    }


def test_rows_that_can_not_be_spread(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """Since a place in the window may be after 9999, or behind the expiry."""
    (tmp_path / "rows.csv").write_text(
        "timer_id,due_time,expire_time\na,9999-12-31T23:59:00Z,\nb,2090-01-01T00:00:00Z,2090-01-01T00:09:59Z\n"
        "c,2090-01-01T00:00:00Z,2090-01-01T00:10:00Z\n"
    )
    source = Source(str(tmp_path / "rows.csv"), constants={"topic": topic})
    summary = run(spark, source, valkey, tmp_path, spread=600 * SECOND)
    assert told(summary) == {"written": 1, "rejected": 2}
    rejects = spark.read.parquet(str(summary.facts["rejects"])).select("timer_id", "field").collect()
    assert {tuple(row) for row in rejects} == {("a", "due_time"), ("b", "expire_time")}


def keys_of(server: RunningServer, topic: str) -> dict[bytes, bytes]:
    """All that Redis holds of a topic, and which topics there are."""
    with server.client() as client:
        names: Any = [*client.keys(f"*{topic}*"), b"timers_topics"]
        return {name: client.dump(name) for name in names}


@pytest.fixture
def reader(valkey: RunningServer) -> Iterator[str]:
    """A user whose every write is refused."""
    with valkey.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@all", "-@write", "-@scripting"
        )
        yield valkey.url.replace("://", "://reader:pw@")
        client.execute_command("ACL", "DELUSER", "reader")


def test_a_dry_run_foresees_what_a_load_would_skip(
    spark: SparkSession, valkey: RunningServer, reader: str, source: Source, topic: str, tmp_path: Path
) -> None:
    """What the ledger has and, by `on_conflict`, what lives. It only reads. The load counts the same."""
    options: dict[str, Any] = {"run_id": "one", "on_conflict": KEEP_EXISTING}
    rehearsed = {"dry_run": True, "target": Target(reader), **options}
    with valkey.client() as client:
        client.zadd(KeyNames().of(topic)[0], {"b": 5e9})
    expected = {"written": 1, "skipped_alive": 1, "rejected": 1}
    before = keys_of(valkey, topic)
    all_written = {"written": 2, "rejected": 1}
    foreseen = {
        KEEP_EXISTING: expected,
        OnConflict.KEEP_EARLIEST: all_written,
        OnConflict.KEEP_LATEST: expected,
        REPLACE: all_written,
    }
    for on_conflict, counted in foreseen.items():
        dry = run(spark, source, valkey, tmp_path, **rehearsed | {"on_conflict": on_conflict})
        assert (told(dry), dry.facts["asked_redis"], dry.warnings) == (counted, True, [])
    assert keys_of(valkey, topic) == before
    assert told(run(spark, source, valkey, tmp_path, **options)) == expected
    end(valkey, topic, "a")
    before = keys_of(valkey, topic)
    dry = run(spark, source, valkey, tmp_path, **rehearsed)
    assert told(dry) == {"skipped_by_ledger": 2, "rejected": 1}
    (warning,) = dry.warnings
    assert warning.startswith("run one has inserted all 2 timers of this table before, and none would be")
    dry = run(spark, source, valkey, tmp_path, replace=True, **{**rehearsed, "on_conflict": REPLACE})
    assert (told(dry), dry.warnings) == ({"written": 2, "rejected": 1}, [])
    assert "asked_redis" not in dry.facts, "nothing would be skipped"
    assert keys_of(valkey, topic) == before


def test_a_dry_run_that_can_t_ask(
    spark: SparkSession, valkey: RunningServer, reader: str, source: Source, tmp_path: Path
) -> None:
    """It counts all the same, and says that it did not ask, and why."""
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "-smismember")
    for url, why in [
        (f"redis://127.0.0.1:{free_port()}/0", "It can't be reached: nobody listens there"),
        (reader, "It refuses: "),
    ]:
        dry = run(spark, source, valkey, tmp_path, dry_run=True, target=Target(url))
        assert (told(dry), dry.facts["asked_redis"]) == ({"written": 2, "rejected": 1}, False)
        (warning,) = dry.warnings
        assert warning.startswith("Redis was not asked, so rows that a load would skip count as written")
        assert why in warning


def test_a_row_that_ends_the_load_and_is_mended(
    spark: SparkSession, valkey: RunningServer, source: Source, topic: str, tmp_path: Path
) -> None:
    """The file is another input then. The failed run tells its id, under which only the rest is inserted."""
    rows = "".join(f"t-{n},2090-01-01T00:00:00Z,{n}\n" for n in range(30_000))
    Path(source.place).write_text(f"timer_id,due_time,payload\n{rows}last,soon,x\n")
    with pytest.raises(
        job.JobFailed, match=r"due_time: is 'soon'.* --run-id run-\w{16} inserts only "
    ) as failed:
        run(spark, source, valkey, tmp_path, rejects=None)
    (run_id,) = re.findall(r"run-\w{16}", str(failed.value))
    before = len(names(valkey, topic))
    assert before > 0
    end(valkey, topic, "t-0")
    Path(source.place).write_text(f"timer_id,due_time,payload\n{rows}last,2090-01-01T00:00:00Z,x\n")
    again = run(spark, source, valkey, tmp_path, rejects=None, run_id=run_id)
    assert again.counts["written"] + again.counts["skipped_by_ledger"] == 30_001
    assert again.counts["skipped_by_ledger"] >= before  # what was under way then may have come later
    assert set(names(valkey, topic)) == {*(f"t-{n}" for n in range(1, 30_000)), "last"}


def test_two_rows_of_one_timer(
    spark: SparkSession, valkey: RunningServer, source: Source, topic: str, tmp_path: Path
) -> None:
    """The one that is inserted first stays; the others are counted."""
    with Path(source.place).open("a") as file:
        file.write("a,2090-01-01T00:00:07Z,7\na,2090-01-01T00:00:08Z,8\n")
    summary = run(spark, source, valkey, tmp_path)
    assert told(summary) == {"written": 2, "skipped_by_ledger": 2, "rejected": 1}
    assert names(valkey, topic)["a"] == 3_786_912_000.0


def test_a_run_replaces_its_own_rejects(
    spark: SparkSession, valkey: RunningServer, source: Source, tmp_path: Path
) -> None:
    """Those of another run stay, and all are read as one table."""
    for run_id in ("one", "one", "two", "two"):
        summary = run(spark, source, valkey, tmp_path, run_id=run_id)
        assert summary.facts["rejects"] == f"{tmp_path}/rejects/run_id={run_id}"
    rows = spark.read.parquet(str(tmp_path / "rejects")).select("run_id", "timer_id").collect()
    assert sorted(map(tuple, rows)) == [("one", "c"), ("two", "c")]


@pytest.mark.parametrize(("limit", "passes"), [("1", True), ("0", False), ("50%", True), ("33%", False)])
def test_too_many_rejects(
    spark: SparkSession,
    valkey: RunningServer,
    source: Source,
    topic: str,
    tmp_path: Path,
    limit: str,
    passes: bool,
) -> None:
    """The rows are counted first, and nothing is written where more are refused than may be."""
    options = {"max_rejects": MaxRejects.of(limit)}
    if passes:
        assert told(run(spark, source, valkey, tmp_path, **options)) == {"written": 2, "rejected": 1}
        return
    with pytest.raises(TooManyRejects, match=r"1 of 3 rows .* allows 0; .*due_time: is 'soon'"):
        run(spark, source, valkey, tmp_path, **options)
    assert names(valkey, topic) == {}
    assert not (tmp_path / "rejects").exists()


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "%", "1e3"])
def test_a_limit_that_is_none(text: str) -> None:
    """It is refused with its name."""
    with pytest.raises(InvalidField, match=r"max_rejects: is .*give a number of rows"):
        MaxRejects.of(text)


@pytest.mark.parametrize("text", ["", "a:b", "a/b", ".a", "a" * 65, "ä"])
def test_an_id_that_is_none(text: str) -> None:
    """It could not stand in a key or in a folder's name."""
    with pytest.raises(InvalidField, match=r"run_id: is .*letters, digits"):
        run_ids.checked(text)


def test_a_runs_id(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """It is that of the content, the mapping and the time zone: a copy has the same one, and whatever changes
    a row makes another."""
    own = run_ids.derived(spark, source)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copyfile(source.place, copy / "three.csv")
    assert run_ids.derived(spark, source) == own
    assert run_ids.derived(spark, replace(source, place=str(copy / "three.csv"))) == own
    assert run_ids.derived(spark, replace(source, place=str(copy / "*.csv"))) == own
    assert run_ids.derived(spark, replace(source, format="csv")) == own
    assert run_ids.derived(spark, replace(source, single_line=True)) == own
    others = [
        replace(source, columns={"payload": "upper(payload)"}),
        replace(source, constants={"topic": "other"}),
        replace(source, options={"sep": ";"}),
        replace(source, unit="s"),
    ]
    (copy / "three.csv").write_text(THREE.replace("b,", "B,"))
    others.append(replace(source, place=str(copy / "three.csv")))
    folder = replace(source, place=str(copy), format="csv")
    assert run_ids.derived(spark, folder) == run_ids.derived(spark, others[-1])
    (copy / "four.csv").write_text(THREE)
    others.append(folder)
    assert len({own, *(run_ids.derived(spark, each) for each in others)}) == 1 + len(others)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert run_ids.derived(spark, source) != own
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def test_a_source_without_files(spark: SparkSession) -> None:
    """A view has no content to compare: each run is its own."""
    spark.sql("select 1 as due_time").createOrReplaceTempView("no_files")
    source = Source("no_files", "table")
    assert run_ids.derived(spark, source) != run_ids.derived(spark, source)


@pytest.mark.parametrize(
    "place", ["orders", "jdbc:postgresql://127.0.0.1:1/shop", "mongodb://127.0.0.1:1/shop"]
)
def test_what_is_no_path(spark: SparkSession, place: str) -> None:
    """Neither is a database, however it is called."""
    source = Source(place, "jdbc")
    assert run_ids.derived(spark, source) != run_ids.derived(spark, source)


def test_views_of_one_file(spark: SparkSession, tmp_path: Path) -> None:
    """Are not one input: each shows rows of its own. A table of files is its files."""
    spark.range(4).write.parquet(str(tmp_path / "four"))
    spark.read.parquet(str(tmp_path / "four")).createOrReplaceTempView("four")
    for name, rest in (("odd", 1), ("even", 0)):
        spark.sql(f"select * from four where id % 2 = {rest}").createOrReplaceTempView(name)
    odd, even = (run_ids.derived(spark, Source(name, "table")) for name in ("odd", "even"))
    assert odd != even
    table = Source(f"parquet.`{tmp_path}/four`", "table")
    assert run_ids.derived(spark, table) == run_ids.derived(spark, table)


def test_files_of_another_file_system(spark: SparkSession, source: Source) -> None:
    """Sizes and the times of their last changes count where there is no ETag: nothing is read."""
    found = run_ids._sizes_and_tags(spark, [f"file://{source.place}"])
    ((size, changed),) = found.values()
    assert (size, len(changed)) == (str(len(THREE)), 13)


# ------------------------------------------------------------------------------ beside a cold store


HOURS = 3600 * SECOND


@pytest.fixture
def divided(world: ColdWorld, tmp_path: Path) -> Source:
    """A timer that goes to Redis, and one that goes to the cold store."""
    file = tmp_path / "divided.csv"
    file.write_text(f"timer_id,due_time\nsoon,{world.at + HOURS}\nlate,{world.at + 5 * HOURS}\n")
    return Source(str(file), constants={"topic": world.topic}, unit="us")


def divide(
    spark: SparkSession, world: ColdWorld, source: Source, place: Path, *, hours: int = 2, **options: Any
) -> dict[str, int]:
    """Load it with a horizon; the counts that are not 0."""
    ways = sweep_job.ways(spark, world.target, str(world.path), hours * HOURS)
    return told(run(spark, source, world.server, place, **{**ways, **options}))


def test_what_was_cancelled_in_the_cold_store_stays_so(
    spark: SparkSession, world: ColdWorld, divided: Source, tmp_path: Path
) -> None:
    """A repeated run stores nothing there again."""
    first = {"cold": 1, "later": 1, "written": 1, "superseded": 1}
    assert divide(spark, world, divided, tmp_path) == first
    dry = divide(spark, world, divided, tmp_path, dry_run=True)
    assert dry == {"later": 1, "skipped_by_ledger": 2}
    world.cancel("late")
    world.touch("soon")
    assert divide(spark, world, divided, tmp_path) == {"later": 1, "skipped_by_ledger": 2}
    world.sweep(horizon=10 * HOURS)
    assert world.live() == {}


def test_what_rests_is_not_superseded_by_a_repeated_run(
    spark: SparkSession, world: ColdWorld, divided: Source, tmp_path: Path
) -> None:
    """Neither a timer that was moved to the cold store since, nor one that the run itself has stored there
    and that is within the horizon by now."""
    divide(spark, world, divided, tmp_path)
    world.write([("soon", 6 * HOURS)])
    assert divide(spark, world, divided, tmp_path, hours=10) == {"skipped_by_ledger": 2}
    world.sweep(horizon=10 * HOURS)
    assert world.live() == {"soon": 6 * HOURS, "late": 5 * HOURS}


def test_a_run_that_was_killed_before_it_superseded(
    spark: SparkSession, world: ColdWorld, divided: Source, tmp_path: Path
) -> None:
    """Repeated, it does so: what rested of the timer before does not come."""
    world.write([("soon", 6 * HOURS)])
    with pytest.raises(Killed):
        divide(spark, world, divided, tmp_path, superseding=lambda: die)
    again = {"cold": 1, "later": 1, "skipped_by_ledger": 1, "superseded": 1}
    assert divide(spark, world, divided, tmp_path) == again
    world.touch("soon")
    world.sweep(horizon=10 * HOURS)
    assert world.live() == {"late": 5 * HOURS}


class Killed(Exception):
    """What a run dies of here."""


def die(*_: object) -> int:
    raise Killed
