"""Reads other people's tables as rows of timers: Parquet, JSON, CSV or a table, with columns mapped by
SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from relay.core.errors import InvalidField
from relay.pipeline.inputs import csv_files, json_lines
from relay.pipeline.inputs.files_found import Rows
from relay.pipeline.rows import documents
from relay.pipeline.rows.columns import OP, SEAL_WITH, VERSION
from relay.pipeline.rows.reading import COLUMNS, FILE, LINE, PROVENANCE, RECORD, REJECTS, TEXT

FORMATS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".orc": "orc",
}
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""The microseconds of each unit of time."""

_NESTED = (t.StructType, t.ArrayType, t.MapType)
_TIMES = (t.TimestampType, t.TimestampNTZType, t.NullType), "give a timestamp"
_TYPES: Mapping[str, tuple[tuple[type[t.DataType], ...], str]] = {
    "due_time": _TIMES,
    "expire_time": _TIMES,
    "payload": (
        (t.BinaryType, t.StringType, t.NullType, *_NESTED),
        "give bytes, text or a struct, as cast(… as string) makes of it",
    ),
    "op": ((t.StringType, t.NullType), "give a text: schedule, cancel or move"),
    "version": (
        (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.TimestampType, t.TimestampNTZType, t.NullType),
        "give a whole number or a timestamp",
    ),
    "headers": (
        (t.MapType, t.NullType),
        "give a map of strings, as from_json(…, 'map<string,string>') makes of JSON",
    ),
}

TABLE, CSV, JSON = "table", "csv", "json"

MAPPED = (*COLUMNS, OP, VERSION)
"""The columns that can be mapped. Those of a timer also come by their names; `op` and `version`, which many
tables have for purposes of their own, do not."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from. `place` is a path, or a table's name with the format `table`; `options` are those
    of Spark's reader. `columns` map our columns to expressions over theirs; a column that is not mapped has
    our name there, unless that is `op` or `version`. `unit` is that of times that are numbers: s, ms or us.
    """

    place: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    single_line: bool = False
    """For CSV: whether no value spans lines, so that Spark may split large files."""

    @property
    def kind(self) -> str:
        """Return the format by its name, or by the name of the file. Raises `InvalidField`."""
        kind = self.format or FORMATS.get(PurePosixPath(self.place.rstrip("/")).suffix.lower(), "")
        if not kind:
            raise InvalidField("format", f"can't be told from {self.place!r}; name one, such as parquet")
        return kind

    @property
    def conf(self) -> Mapping[str, str]:
        """Return the configuration of Spark's SQL that rows of this source need wherever they are used."""
        return csv_files.WHOLE_FILES if self.kind == CSV and not self.single_line else {}


def rows_of(spark: SparkSession, source: Source) -> Rows:
    """Return the columns of `MAPPED` that exist, with `TOLD` and `PROVENANCE`.

    Raises `InvalidField`.
    """
    check_map(source)
    try:
        frame, empty = _load(spark, source)
        there = {name.lower() for name in frame.columns}
        chosen = {
            name: sf.expr(source.columns[name]) if name in source.columns else sf.col(f"`{name}`")
            for name in MAPPED
            if name in source.columns or (name in there and name in COLUMNS)
        }
        named = frame.select(*(column.alias(name) for name, column in chosen.items()), *_provenance(frame))
    except (AnalysisException, ParseException) as failure:
        raise InvalidField("source", str(failure).partition("\n")[0]) from None
    _complete(named, source)
    carried = [named[name] for name in PROVENANCE if name in named.columns]
    rows = named.select(*(each for name in chosen for each in _columns(named, name, source)), *carried)
    check_types(rows.schema)
    return Rows(rows, empty)


def check_map(source: Source) -> None:
    """Raises `InvalidField` for a mapped column that no timer has."""
    unknown = [name for name in source.columns if name not in MAPPED]
    if unknown:
        raise InvalidField("map", f"{unknown[0]} is not a column of a timer; there are {', '.join(MAPPED)}")


def check_types(schema: t.StructType) -> None:
    """Raises `InvalidField` for a column of a type that no timer has."""
    for name, (kinds, advice) in _TYPES.items():
        if name in schema.names and not isinstance(kind := schema[name].dataType, kinds):
            raise InvalidField(name, f"has the type {kind.simpleString()}; {advice}")


def _provenance(frame: DataFrame) -> list[Column]:
    """Add the whole record, so that a reject keeps it, and its file if there is one. A table of rejects has
    both from the load that refused its rows."""
    if set(REJECTS.names) - {SEAL_WITH} <= set(frame.columns):  # which older rejects do not have
        return [frame[name].alias(own) for name, own in (("record", TEXT), ("file", FILE), ("line", LINE))]
    carried = [frame[name] for name in PROVENANCE if name in frame.columns]
    if LINE in frame.columns:
        return carried  # with the texts of all records
    own = [each for each in frame.schema.fields if each.name not in PROVENANCE]
    whole = sf.struct(*(_for_arrow(frame, each) for each in own)).alias(RECORD)
    if FILE in frame.columns:
        return [whole, *carried]
    try:
        file = sf.col("_metadata.file_path")
        frame.select(file)
    except AnalysisException:  # a view has no files
        return [whole]
    return [whole, file.alias(FILE)]


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _for_arrow(frame: DataFrame, each: t.StructField) -> Column:
    """Turn columns that Arrow has no type for into text."""
    column = frame[_quoted(each.name)]
    try:
        to_arrow_type(each.dataType, timezone="UTC")
        fits = "void" not in each.dataType.simpleString()  # its writer miscounts voids in structs
    except (PySparkException, ValueError):
        fits = False
    if not fits:
        return column.cast("string").alias(each.name)
    return column


def _load(spark: SparkSession, source: Source) -> Rows:
    kind = source.kind
    if source.single_line and kind != CSV:
        raise InvalidField("single_line", f"is for CSV; leave it out for {kind}")
    if kind == TABLE:
        return Rows(spark.table(source.place))
    if kind == CSV:
        return csv_files.rows_of_csv(spark, source.place, source.options, single_line=source.single_line)
    if kind == JSON:
        return json_lines.rows_of_json(spark, source.place, source.options, partial(_is_used, source))
    return Rows(spark.read.format(kind).options(**source.options).load(source.place))


def _is_used(source: Source, column: str) -> bool:
    """Whether a timer may be made of this column of theirs: an expression names it, or it has one of our
    names. Raises `InvalidField`."""
    name = column.lower()
    return name in COLUMNS or any(name in each.lower() or "*" in each for each in source.columns.values())


def _complete(named: DataFrame, source: Source) -> None:
    if "due_time" not in named.columns:
        raise InvalidField("due_time", "is not a column there; map it, as in --map due_time=eta")
    if "topic" not in named.columns and "topic" not in source.constants:
        raise InvalidField("topic", "is not a column there; name it, or map one")


def _columns(named: DataFrame, name: str, source: Source) -> list[Column]:
    """Return one of our columns in a type that `reading` takes."""
    column, kind = named[name], named.schema[name].dataType
    if name == "due_time":
        instant = _instant(column, kind, name, source.unit).alias(name)
        return [instant] if isinstance(kind, t.TimestampType) else [instant, _text(column, "due_source")]
    if name == "expire_time":
        instant = _instant(column, kind, name, source.unit).alias(name)
        return [instant] if isinstance(kind, t.TimestampType) else [instant, _text(column, "expire_source")]
    if name == "payload" and isinstance(kind, _NESTED):
        return [sf.to_json(column, documents.SPARK).cast("binary").alias(name), *_json_kind(named, source)]
    if name == "content_type":
        implied = "payload" in named.columns and isinstance(named.schema["payload"].dataType, _NESTED)
        return [] if implied else [_text(column, name)]
    if name in ("topic", "timer_id", OP, SEAL_WITH):
        return [_text(column, name)]
    if name == VERSION and isinstance(kind, t.StringType):
        return [column.try_cast("bigint").alias(name)]
    if name == "headers" and isinstance(kind, t.StructType):
        entries = [
            sf.struct(sf.lit(each.name).alias("key"), _text(column.getField(each.name), "value"))
            for each in kind.fields
        ]
        there = sf.filter(sf.array(*entries), lambda entry: entry["value"].isNotNull())
        return [sf.map_from_entries(there).alias(name)]
    return [column.alias(name)]


def _text(column: Column, name: str) -> Column:
    return column.cast("string").alias(name)


def _json_kind(named: DataFrame, source: Source) -> list[Column]:
    """Return the content type of a payload that was made JSON here."""
    own = [named["content_type"].cast("string")] if "content_type" in named.columns else []
    fixed = [sf.lit(source.constants["content_type"])] if "content_type" in source.constants else []
    return [sf.coalesce(*own, *fixed, sf.lit("application/json")).alias("content_type")]


def _instant(column: Column, kind: t.DataType, name: str, unit: str | None) -> Column:
    """Return a column as a timestamp, null if a value is not one. Texts and times without a zone are in the
    session's. Raises `InvalidField`."""
    if isinstance(kind, (t.TimestampType, t.NullType)):
        return column.cast("timestamp")
    if isinstance(kind, (t.TimestampNTZType, t.DateType)):
        return column.cast("timestamp")
    if isinstance(kind, t.NumericType):
        if unit is None:
            raise InvalidField(name, "is a number; name its unit: s, ms or us since 1970")
        return _from_number(column, kind, unit)
    if isinstance(kind, t.StringType):
        if unit is not None:
            number = t.DecimalType(38, 9)
            return _from_number(column.try_cast(number), number, unit)
        return column.try_cast("timestamp")
    raise InvalidField(name, f"has the type {kind.simpleString()}; give a time, a number or a text")


def _from_number(column: Column, kind: t.DataType, unit: str) -> Column:
    """Turn numbers into times. Fractions of a microsecond are rounded up, as for due times; those of a float
    are meaningless. Raises `InvalidField`."""
    if unit not in UNITS:
        raise InvalidField("due_unit", f"is {unit!r}; give one of {', '.join(UNITS)}")
    if isinstance(kind, (t.DoubleType, t.FloatType)):
        exact = sf.round(column.cast("double") * UNITS[unit])
    else:
        exact = sf.ceil(column.cast("decimal(38,9)") * sf.lit(UNITS[unit]).cast("decimal(8,0)"))
    fits = exact.between(-(2**62), 2**62)
    return sf.timestamp_micros(sf.when(fits, exact.cast("long")))
