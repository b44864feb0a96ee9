"""CSV files through Spark into Redis: those of other programs byte for byte; what is no CSV is told."""

from __future__ import annotations

import csv
import gzip
import json
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pytest

from relay.core.errors import InvalidField
from relay.pipeline.inputs import csv_text
from relay.pipeline.inputs.sources import Source, rows_of
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import configured
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from tests.pipeline import nasty
from tests.postgres import postgres, text_format

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DUE = "2090-01-01T00:00:00Z"
HEAD = ["timer_id", "due_time", "payload"]


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


def run(source: Source, server: RunningServer, **options: Any) -> Summary:
    asked = Schedule(Target(server.url), source, **options)
    return job.run("schedule", lambda spark, bar: schedule_job.run(spark, bar, asked), job.Running())


def payloads(server: RunningServer, topic: str) -> dict[str, bytes]:
    _, kept, *_ = KeyNames().of(topic)
    with server.client() as client:
        held: Any = client.hgetall(kept)
    return {name.decode(): envelope.decode(each).payload for name, each in held.items()}


def read(spark: SparkSession, source: Source) -> list[Row]:
    with configured(spark, source.conf):
        return rows_of(spark, source).frame.collect()


def rows(writer: str, values: Sequence[str]) -> list[list[str]]:
    return [[f"{writer}-{n}", DUE, each] for n, each in enumerate(values)]


def by_python(folder: Path, expected: dict[str, str]) -> None:
    """All ways of quoting, both line ends that it can write so that they can be read."""
    quotings: tuple[Literal[0, 1, 2], ...] = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)
    for end, quoting in [*(("\r\n", each) for each in quotings), ("\n", quotings[1])]:
        name = f"python-{len(end)}-{quoting}"
        made = rows(name, nasty.values(nul=True))
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file, quoting=quoting, lineterminator=end)
            writer.writerow(HEAD)
            writer.writerows(made)
        expected.update({name: value for name, _, value in made})


def by_pandas(folder: Path, expected: dict[str, str]) -> None:
    """With its defaults, compressed. It writes a value that ends in a lone \\r as a line end: left out."""
    values = [each for each in nasty.values(nul=True) if not each.endswith("\r")]
    made = rows("pandas", values)
    pd.DataFrame(made, columns=HEAD).to_csv(folder / "pandas.csv.gz", index=False)
    expected.update({name: value for name, _, value in made})


def by_spark(spark: SparkSession, folder: Path, expected: dict[str, str], **options: str) -> None:
    """Spark trims values unless it is told not to."""
    made = rows("spark", nasty.values(nul=True))
    whole = {"header": "true", "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    frame = spark.createDataFrame(pd.DataFrame(made, columns=HEAD)).coalesce(1)
    frame.write.options(**whole, quoteAll="true", **options).csv(str(folder))
    expected.update({name: value for name, _, value in made})


def by_postgres(folder: Path, expected: dict[str, str]) -> None:
    """With its defaults."""
    values = nasty.values()
    with postgres() as server:
        server.sql("create table made (n int, payload text)")
        server.sql("copy made from stdin", text_format(values))
        asked = f"select 'postgres-' || n as timer_id, '{DUE}' as due_time, payload from made"
        written = server.sql(f"copy ({asked}) to stdout with (format csv, header)")
    (folder / "postgres.csv").write_bytes(written)
    expected.update({f"postgres-{n}": each for n, each in enumerate(values)})


def test_other_programs_files(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """What Python's csv, pandas and Spark write comes back byte for byte: quotes, commas, line breaks of all
    kinds, tabs, emoji, NUL. Any number of files, with and without a byte order mark, packed or not."""
    folder, expected = tmp_path / "in", dict[str, str]()
    folder.mkdir()
    by_python(folder, expected)
    by_pandas(folder, expected)
    by_spark(spark, folder / "spark", expected, escape='"')
    source = Source(str(folder), "csv", {"recursiveFileLookup": "true"}, constants={"topic": topic})
    summary = run(source, valkey)
    assert {name: count for name, count in summary.counts.items() if count} == {"written": len(expected)}
    assert payloads(valkey, topic) == {name: each.encode() for name, each in expected.items()}


@pytest.mark.slow
def test_what_postgres_writes(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """COPY of a real server, byte for byte."""
    expected: dict[str, str] = {}
    by_postgres(tmp_path, expected)
    run(Source(str(tmp_path / "postgres.csv"), constants={"topic": topic}), valkey)
    assert payloads(valkey, topic) == {name: each.encode() for name, each in expected.items()}


def test_what_spark_writes_by_default(spark: SparkSession, tmp_path: Path) -> None:
    """Its escape is a backslash, which has to be named."""
    expected: dict[str, str] = {}
    by_spark(spark, tmp_path / "out", expected)
    source = Source(str(tmp_path / "out"), "csv", {"escape": "\\"}, constants={"topic": "t"})
    assert {row.timer_id: row.payload for row in read(spark, source)} == expected


def test_malformed_records_are_rejects(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """With their text, file and line; so are good records that are no timers. All others are loaded, and a
    line break inside quotes makes neither a timer nor a reject."""
    folder = tmp_path / "in"
    (folder / "day=7").mkdir(parents=True)
    one, two = folder / "day=7" / "a b.csv", folder / "day=7" / "b.csv.gz"
    good = f'g,{DUE},"l1\r\nl2, ""q"""\n'
    short, wide, stray = f"s,{DUE}", f"w,{DUE},x,y", f'q,{DUE},5" pipe'
    soon = '"s,oon",soon,"a\nb"'
    lost = f'u,{DUE},"never closed\nx,{DUE},y\n'
    one.write_bytes("\n".join([",".join(HEAD), good + short, wide, stray, soon, lost]).encode())
    two.write_bytes(gzip.compress(f"{','.join(HEAD)}\r\nz,{DUE},\r\n".encode()))
    rejects = str(tmp_path / "rejects")
    columns = {"timer_id": "concat(timer_id, '-', day)"}
    summary = run(
        Source(str(folder), "csv", columns=columns, constants={"topic": topic}), valkey, rejects=rejects
    )
    assert (summary.counts["written"], summary.counts["rejected"]) == (2, 5)
    assert payloads(valkey, topic) == {"g-7": b'l1\r\nl2, "q"', "z-7": b""}
    found = spark.read.parquet(rejects).orderBy("line").collect()
    assert [(row.line, bytes(row.record).decode(), row.field, row.reason) for row in found] == [
        (4, short, "record", "has 2 values, but the header has 3 columns"),
        (5, wide, "record", "has 4 values, but the header has 3 columns"),
        (6, stray, "record", csv_text.STRAY_QUOTE),
        (7, soon, "due_time", "is 'soon', which is not a time"),
        (9, lost, "record", csv_text.NOT_CLOSED),
    ]
    assert {row.file for row in found} == {f"file:{folder}/day=7/a%20b.csv"}
    assert found[3].payload == b"a\nb"
    with pytest.raises(
        job.JobFailed, match=r"record: has 2 values, .* \(line 4 of file:/.*a%20b.csv; with rejects"
    ):
        run(Source(str(one), constants={"topic": topic}), valkey)


HEADERS = [
    ("b,a\n", "header: of .*/2.csv calls column 1 'b', not 'a' as the first file .*/1.csv"),
    ("a,b,c\n", "header: of .*/2.csv has 3 columns, not the 2 of the first file"),
    (" \n", "header: of .*/2.csv is missing: the file holds only white space"),
    ("a,A\n", "header: of .*/2.csv names 'a' twice"),
    ('"a,b\n', "header: of .*/2.csv opens a quote that is never closed"),
]


def test_headers_are_compared_in_every_file(spark: SparkSession, tmp_path: Path) -> None:
    """Before anything is read: Spark takes the first file's for all of them, by position."""
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    for second, said in HEADERS:
        (tmp_path / "2.csv").write_text(second)
        with pytest.raises(InvalidField, match=said):
            rows_of(spark, Source(str(tmp_path), "csv"))


EMPTY: dict[str, bytes] = {"0.csv": b"", "2.csv.gz": b"", "3.csv.gz": gzip.compress(b""), "4.csv": b""}


def test_empty_files_are_skipped(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """Files without a byte, packed or not, hold no records; the summary counts them and names the first few.
    A file that has only a header is none of them."""
    for name, data in EMPTY.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "1.csv").write_text(f"{','.join(HEAD)}\na,{DUE},x\n")
    (tmp_path / "5.csv").write_text(f"{','.join(HEAD)}\n")
    for single_line in (False, True):
        source = Source(str(tmp_path), "csv", constants={"topic": topic}, single_line=single_line)
        summary = run(source, valkey, replace=True)
        assert {name: count for name, count in summary.counts.items() if count} == {
            "empty_files": 4,
            "written": 1,
        }
        (warning,) = summary.warnings
        first = ", ".join(f"file://{tmp_path}/{name}" for name in ("0.csv", "2.csv.gz", "3.csv.gz"))
        assert warning == f"4 files are empty, and were skipped: {first} and 1 more"
    assert payloads(valkey, topic) == {"a": b"x"}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_nothing_but_empty_files(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    """That is an error, which says so."""
    for name, data in EMPTY.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidField, match=rf"source: holds no records: file:.*/{name} is empty"):
            rows_of(spark, Source(str(tmp_path / name), kind, constants={"topic": "t"}))
    with pytest.raises(
        InvalidField, match=r"source: holds no records: all its 4 files are empty: file:.*0\.csv"
    ):
        rows_of(spark, Source(str(tmp_path), kind, constants={"topic": "t"}))


@pytest.mark.parametrize(
    ("options", "single_line", "said"),
    [
        (
            {"multiLine": "true"},
            False,
            "read-option: multiLine is not known for CSV; there are sep, delimiter,",
        ),
        ({"header": "false"}, False, "read-option: header is not known"),
        ({"sep": "ab"}, False, "delimiter: is 'ab'; give one ASCII character"),
        ({"encoding": "UTF-16"}, True, "single_line: does not go with UTF-16"),
    ],
)
def test_options_that_are_none(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], single_line: bool, said: str
) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidField, match=said):
        rows_of(spark, Source(str(tmp_path), "csv", options, single_line=single_line))


def test_files_are_whole_unless_records_are_lines(spark: SparkSession, tmp_path: Path) -> None:
    """With `single_line` Spark cuts a file anywhere; without, one that was cut is an error."""
    rows = [[f"t-{n}", DUE, json.dumps({"n": n})] for n in range(3_000)]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])
    small = {"spark.sql.files.maxPartitionBytes": "40000", "spark.sql.files.openCostInBytes": "1"}
    lines = Source(str(tmp_path / "in.csv"), constants={"topic": "t"}, single_line=True)
    with configured(spark, small):
        found = rows_of(spark, lines).frame
        assert found.rdd.getNumPartitions() > 2
        assert sorted((row.timer_id, row.payload) for row in found.collect()) == sorted(
            (name, payload) for name, _, payload in rows
        )
        with pytest.raises(Exception, match="Spark has cut"):
            rows_of(spark, Source(str(tmp_path / "in.csv"), constants={"topic": "t"})).frame.collect()
    (tmp_path / "lf.csv").write_text(",".join(HEAD) + "\n")
    with pytest.raises(InvalidField, match=r"single_line: needs files with equal line ends, and .*/lf\.csv"):
        rows_of(spark, Source(str(tmp_path), "csv", constants={"topic": "t"}, single_line=True))


def test_other_dialects(spark: SparkSession, tmp_path: Path) -> None:
    """By the names that Spark has for them: delimiter, quote, the text of a missing value, encoding."""
    (tmp_path / "in.csv").write_bytes(
        f"timer_id;due_time;payload\r\n'é;';{DUE};NULL\r\nx;{DUE};'NULL'\r\n".encode("cp1252")
    )
    options = {"sep": ";", "quote": "'", "nullValue": "NULL", "encoding": "cp1252"}
    found = read(spark, Source(str(tmp_path / "in.csv"), options=options, constants={"topic": "t"}))
    assert [(row.timer_id, row.payload) for row in found] == [("é;", None), ("x", "NULL")]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE"])
def test_encodings_in_which_a_line_break_is_two_bytes(
    spark: SparkSession, tmp_path: Path, encoding: str
) -> None:
    """Spark cuts them in their midst; the rows are whole all the same, also the last one."""
    text = f'timer_id,due_time,payload\r\na,{DUE},\u0a0a\r\nb,{DUE},"\u010d\r\n"\r\n'
    (tmp_path / "in.csv").write_bytes(text.encode(encoding))
    (tmp_path / "open.csv").write_bytes(text.removesuffix("\r\n").encode(encoding))
    for name in ("in", "open"):
        source = Source(
            str(tmp_path / f"{name}.csv"), options={"encoding": encoding}, constants={"topic": "t"}
        )
        found = [(row.timer_id, row.payload) for row in read(spark, source)]
        assert found == [("a", "\u0a0a"), ("b", "\u010d\r\n")]
