"""Nested columns as JSON: one rule, whether Spark writes it or a worker; and JSON lines that are no rows."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField
from relay.pipeline.inputs.json_lines import INEXACT, MORE, NO_JSON, NOT_UTF8
from relay.pipeline.inputs.sources import Source, rows_of
from relay.pipeline.rows import documents
from relay.pipeline.timers_source import TimersDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVERYTHING = """named_struct(
    'z', 1, 'a', cast(null as string),
    'text', 'é"\\\\/\\n\\u0001😀</script>', 'bytes', X'00ff',
    'decimal', cast('12345678901234567890.1200' as decimal(38, 4)), 'big', 9007199254740993,
    'float', double(0.1), 'huge', double(1e300), 'nan', double('NaN'), 'minus', double('-Infinity'),
    'yes', true, 'day', date '2030-01-31', 'at', timestamp '2030-01-31 09:00:00.5+01:00',
    'early', timestamp '1883-01-01 00:00:00Z', 'wall', timestamp_ntz '2030-01-31 09:00:00.000001',
    'list', array(1, null), 'map', map('k', struct(cast(null as int) as n), 'b', null),
    'ints', map(2, 'x'), 'empty', cast(array() as array<int>)
)"""
EXPECTED = (
    '{"z":1,"a":null,"text":"é\\"\\\\/\\n\\u0001😀</script>","bytes":"AP8=",'
    '"decimal":12345678901234567890.1200,"big":9007199254740993,"float":0.1,"huge":1e+300,'
    '"nan":"NaN","minus":"-Infinity","yes":true,"day":"2030-01-31","at":"2030-01-31T08:00:00.500000Z",'
    '"early":"1883-01-01T00:00:00.000000Z","wall":"2030-01-31T09:00:00.000001",'
    '"list":[1,null],"map":{"k":{"n":null},"b":null},"ints":{"2":"x"},"empty":[]}'
)


def test_one_rule(spark: SparkSession) -> None:
    """Spark's `to_json` and ours say the same of every type, in the same order, in any session's zone; only
    floats may be spelt another way."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        frame = spark.sql(f"select {EVERYTHING} as payload")
        table = frame.toArrow().combine_chunks()
        first = frame.select(sf.to_json("payload", documents.SPARK)).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert first is not None
    (ours,) = documents.of(table.column("payload").combine_chunks()).to_pylist()
    assert ours.decode() == EXPECTED
    assert str(first[0]).replace("1.0E300", "1e+300") == EXPECTED
    assert json.loads(ours, parse_float=Decimal)["decimal"] == Decimal("12345678901234567890.1200")


def test_times_that_python_has_not() -> None:
    """A record of such a row can still be written down."""
    far = pa.array([{"at": 400_000_000_000_000_000}], pa.struct([("at", pa.int64())]))
    far = far.cast(pa.struct([("at", pa.timestamp("us", tz="UTC"))]))
    (text,) = documents.of(far).to_pylist()
    assert json.loads(text)["at"].startswith("14645-06-30 15:06:40")


LINES = [
    '{"id": "a", "due_time": "2090-01-01T00:00:00Z", "payload": {"b": 1, "a": null}}',
    '{"id": "b", "due_time": {"at": 1}, "payload": {"b": 2, "a": "x"}}',
    '{"id": "c", "due_time": 5, "payload": null}',
    '{"id": "d", "due_time": ',
    '["e"]',
]


def test_json_lines_that_are_none(spark: SparkSession, tmp_path: Path) -> None:
    """Carry their text and why; what is no time keeps what it was. No value becomes null unseen."""
    (tmp_path / "in.jsonl").write_text("\n".join(LINES))
    source = Source(str(tmp_path / "in.jsonl"), columns={"timer_id": "id"}, constants={"topic": "t"})
    found: dict[Any, Any] = {
        row.timer_id or bytes(row["__text"]).decode(): row for row in rows_of(spark, source).frame.collect()
    }
    assert list(found) == ["a", "b", "c", LINES[3], LINES[4]]
    assert bytes(found["a"].payload) == b'{"a":null,"b":1}'
    assert [found[each].due_source for each in "abc"] == ["2090-01-01T00:00:00Z", '{"at":1}', "5"]
    assert [found[each].due_time is None for each in "abc"] == [False, True, True]
    assert [row["__malformed"] for row in found.values()] == [None, None, None, NO_JSON, NO_JSON]


@pytest.mark.parametrize("whole", ["false", "true"])
def test_empty_files_beside_others(spark: SparkSession, tmp_path: Path, whole: str) -> None:
    """They are named, and nothing is looked for in them, whether lines or whole files are documents."""
    (tmp_path / "day=1 a").mkdir()
    full = tmp_path / "day=1 a" / "1 b.json"
    full.write_text('{"timer_id": "a", "due_time": "2090-01-01T00:00:00Z"}')
    empty = {"0.json": b"", "2.json.gz": b"", "3.json.gz": gzip.compress(b"")}
    for name, data in empty.items():
        (full.parent / name).write_bytes(data)
    options, columns = {"multiLine": whole}, {"payload": "day"}
    found = rows_of(spark, Source(str(tmp_path), "json", options, columns, constants={"topic": "t"}))
    assert [(row.timer_id, row.payload) for row in found.frame.collect()] == [("a", "1 a")]
    assert [unquote(file).rpartition("/")[2] for file in found.empty] == list(empty)


def test_a_file_that_is_one_document(spark: SparkSession, tmp_path: Path) -> None:
    """An array of objects over many lines, by Spark's own option."""
    rows = [{"timer_id": f"t-{n}", "due_time": "2090-01-01T00:00:00Z"} for n in range(3)]
    (tmp_path / "in.json").write_text(json.dumps(rows, indent=2))
    source = Source(str(tmp_path / "in.json"), options={"multiLine": "true"}, constants={"topic": "t"})
    assert sorted(row.timer_id for row in rows_of(spark, source).frame.collect()) == ["t-0", "t-1", "t-2"]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("5 as payload", "payload: has the type int; give bytes, text or a struct, as cast(… as string)"),
        ("now() as payload", "payload: has the type timestamp; give"),
        ("'{}' as headers", "headers: has the type string; give a map of strings, as from_json(…, "),
        ("array('a') as headers", "headers: has the type array<string>; give"),
    ],
)
def test_columns_of_a_wrong_type_are_found_before_the_first_row(
    spark: SparkSession, column: str, said: str
) -> None:
    """By the job, and by the data source: no task of Spark's has run."""
    rows = spark.sql(f"select 't' as topic, timestamp '2090-01-01' as due_time, {column}")
    rows.createOrReplaceTempView("of_a_wrong_type")
    with pytest.raises(InvalidField) as caught:
        rows_of(spark, Source("of_a_wrong_type", "table"))
    assert str(caught.value).startswith(said)
    spark.dataSource.register(TimersDataSource)
    away = "redis://127.0.0.1:1/0"  # a task would fail for want of it
    with pytest.raises(PySparkException, match=re.escape(said)):
        rows.write.format("timers").option("redis_url", away).mode("append").save()


def test_nothing_that_follows_an_object_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """A line with two objects is refused whole, whatever stands between them; white space may follow one."""
    good = [
        b'\xef\xbb\xbf{"id": "bom", "due_time": "2090-01-01"}',
        b' {"id": "spaces", "due_time": null} \t\r',
    ]
    bad = [
        b'{"id": 5}{"id": 6}',
        b'{"id": 5}, {"id": 6}',
        b'{"id": 5}]',
        b'{"id": 5} // five',
        b"{'id': 5}",
        b"null",
        b'{"id": "\xff"}',
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*good, b"", b"  ", *bad]))
    source = Source(str(tmp_path / "in.jsonl"), columns={"timer_id": "id"}, constants={"topic": "t"})
    found: list[Any] = rows_of(spark, source).frame.collect()
    assert [row.timer_id for row in found if row["__malformed"] is None] == ["bom", "spaces"]
    refused = {bytes(row["__text"]): row["__malformed"] for row in found if row["__malformed"] is not None}
    assert refused == dict(zip(bad, [MORE] * 4 + [NO_JSON] * 2 + [NOT_UTF8], strict=True))


NUMBERS = [
    ("a", "9007199254740992", None),
    ("b", "9007199254740993", "9007199254740993"),
    ("c", "0.5", None),
    ("d", "0.1234567890123456789", "0.1234567890123456789"),
    ("e", "1E5", None),
    ("f", "1e999", "1e999"),
    ("g", "12345678901234567890123456789012345678901234567890", "1234567890123456789012345678901234567890"),
]


@pytest.mark.parametrize("whole", [False, True])
def test_no_number_loses_digits(spark: SparkSession, tmp_path: Path, whole: bool) -> None:
    """Spark makes a column that has fractions one of doubles: what no double equals is refused. In columns of
    whole numbers, and in those of which no timer is made, all is well."""
    rows = [
        f'{{"id": "{name}", "due_time": "2090-01-01", "n": {number}, "big": 9007199254740993,'
        f' "payload": {{"list": [{{"n": {number}}}], "big": 9007199254740993}}}}'
        for name, number, _ in NUMBERS
    ]
    (tmp_path / "in.json").write_text("[" + ",\n".join(rows) + "]" if whole else "\n".join(rows))
    source = Source(
        str(tmp_path / "in.json"),
        options={"multiLine": str(whole)},
        columns={"timer_id": "id"},
        constants={"topic": "t"},
    )
    found: dict[str, Any] = {
        bytes(row["__text"]).decode(): row for row in rows_of(spark, source).frame.collect()
    }
    assert list(found) == rows
    for row, (_, number, lost) in zip(found.values(), NUMBERS, strict=True):
        if lost is None:
            document = json.loads(row.payload)
            assert document == {"big": 9007199254740993, "list": [{"n": float(number)}]}
            assert row["__malformed"] is None
        else:
            assert row["__malformed"].startswith(INEXACT.format(number=lost, name="")[: len(lost) + 4])
            assert row.payload is None


def test_what_becomes_text_keeps_its_digits(spark: SparkSession, tmp_path: Path) -> None:
    """In a column that has texts elsewhere, numbers and what is nested are texts, with all their digits."""
    payloads = [
        '[9007199254740993, 0.1234567890123456789, "é"]',
        '[{"n": [1E400, true, null], "é": "\\ud800"}]',
    ]
    rows = [f'{{"timer_id": "a", "due_time": "2090-01-01", "payload": {each}}}' for each in payloads]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    source = Source(str(tmp_path / "in.jsonl"), constants={"topic": "t"})
    first, second = (json.loads(row.payload) for row in rows_of(spark, source).frame.collect())
    assert first == ["9007199254740993", "0.1234567890123456789", "é"]
    assert second == ['{"n":[1E400,true,null],"é":"?"}']


def test_several_documents_in_one_file(spark: SparkSession, tmp_path: Path) -> None:
    """With `multiLine` Spark's own reader takes the first one of a file."""
    texts = ['{"timer_id": "a",\n "due_time": "2090-01-01"}', '{"timer_id": "b"}', '{"timer_id":', "5"]
    (tmp_path / "in.json").write_text("\n".join([texts[0], f"[{texts[1]}, 7]", *texts[2:]]))
    source = Source(str(tmp_path / "in.json"), options={"multiLine": "true"}, constants={"topic": "t"})
    found = [(row.timer_id, row["__malformed"]) for row in rows_of(spark, source).frame.collect()]
    assert found == [("a", None), ("b", None), (None, NO_JSON), (None, NO_JSON)]


@pytest.mark.parametrize("value", [b"x", None])
def test_nothing_is_null(value: bytes | None) -> None:
    assert documents.of(pa.array([None, {"a": value}], pa.struct([("a", pa.binary())]))).to_pylist() == [
        None,
        b'{"a":"eA=="}' if value else b'{"a":null}',
    ]
