"""Nested columns as JSON: one rule, whether Spark writes it or a worker; and JSON lines that are no rows."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from relay.pipeline import documents
from relay.pipeline.sources import NO_JSON, Source, rows_of

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
        row.timer_id or bytes(row["__text"]).decode(): row for row in rows_of(spark, source).collect()
    }
    assert list(found) == ["a", "b", "c", LINES[3], LINES[4]]
    assert bytes(found["a"].payload) == b'{"a":null,"b":1}'
    assert [found[each].due_source for each in "abc"] == ["2090-01-01T00:00:00Z", '{"at": 1}', "5"]
    assert [found[each].due_time is None for each in "abc"] == [False, True, True]
    assert [row["__malformed"] for row in found.values()] == [None, None, None, NO_JSON, NO_JSON]


def test_a_file_that_is_one_document(spark: SparkSession, tmp_path: Path) -> None:
    """An array of objects over many lines, by Spark's own option."""
    rows = [{"timer_id": f"t-{n}", "due_time": "2090-01-01T00:00:00Z"} for n in range(3)]
    (tmp_path / "in.json").write_text(json.dumps(rows, indent=2))
    source = Source(str(tmp_path / "in.json"), options={"multiLine": "true"}, constants={"topic": "t"})
    assert sorted(row.timer_id for row in rows_of(spark, source).collect()) == ["t-0", "t-1", "t-2"]


@pytest.mark.parametrize("value", [b"x", None])
def test_nothing_is_null(value: bytes | None) -> None:
    assert documents.of(pa.array([None, {"a": value}], pa.struct([("a", pa.binary())]))).to_pylist() == [
        None,
        b'{"a":"eA=="}' if value else b'{"a":null}',
    ]
