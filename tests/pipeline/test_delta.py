"""Delta Lake is in every session, and a session without it is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable

from relay.core.errors import InvalidField
from relay.pipeline.spark import delta
from tests.pipeline.tables import rows_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_other_engines_read_what_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Rust's reader, and DuckDB by way of it."""
    place = str(tmp_path / "table")
    spark.range(10).selectExpr("id", "concat('t', id) as timer_id").write.format("delta").save(place)
    read = DeltaTable(place).to_pyarrow_dataset()

    assert read.count_rows() == 10
    with duckdb.connect() as connection:
        assert connection.execute("select max(timer_id) from read").fetchall() == [("t9",)]


@pytest.mark.slow
def test_an_append_with_the_number_of_an_earlier_one_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By this a batch that is written again is there once."""
    place = str(tmp_path / "table")
    for number in (1, 2, 2, 1):
        append = spark.range(10).write.format("delta").mode("append")
        append.options(txnAppId="batches", txnVersion=number).save(place)

    assert rows_at(spark, place).count() == 20


def test_a_session_without_delta_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is somebody else's, since ours have it; the error says what to start it with."""
    delta.require(spark)

    class Without:
        conf: dict[str, str] = {}  # noqa: RUF012
        _jvm: Any = spark._jvm

    with pytest.raises(InvalidField, match=r"no Delta Lake: .* --packages io\.delta:") as told:
        delta.require(Without())  # type: ignore[arg-type]
    assert told.value.field == "spark"


def test_who_names_extensions_and_packages_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {delta.EXTENSIONS: "com.example.Extension", delta.PACKAGES: "com.example:package:1.0"}
    monkeypatch.setattr(delta, "jars_of_spark", lambda: tmp_path)

    fetched = delta.conf(given, submitted=False)
    assert fetched[delta.EXTENSIONS] == f"{delta.EXTENSION},com.example.Extension"
    assert fetched[delta.PACKAGES] == f"{delta.coordinates()},com.example:package:1.0"
    assert delta.EXCLUDES not in fetched, "the other package may need them"
    assert delta.EXCLUDES in delta.conf({}, submitted=False)

    assert delta.PACKAGES not in delta.conf(given, submitted=True), "spark-submit has started its JVM already"
    (tmp_path / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert delta.PACKAGES not in delta.conf(given, submitted=False)


@pytest.mark.chaos
def test_the_jars_come_from_maven(tmp_path: Path) -> None:
    """Two, by their own names; a session of this process is left as it is. The suite's own come by the
    command."""
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from relay.pipeline.spark import delta;"
        "delta.fetch(Path(sys.argv[1]), {})"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, timeout=300, capture_output=True)
    names = sorted(jar.name.partition("-4")[0].partition("_")[0] for jar in tmp_path.iterdir())
    assert names == ["delta-spark", "delta-storage"]
