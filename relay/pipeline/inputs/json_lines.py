"""Reads JSON as rows: workers check each document's text, and Spark reads the columns from it.

Spark's own reader drops what follows the first object of a line, and reads whole numbers as doubles if the
column has fractions elsewhere. So a document goes to Spark only if it is one object whose numbers fit its
columns exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from relay.pipeline.inputs.files_found import Rows, found_in, shown
from relay.pipeline.rows.reading import FILE, LINE, MALFORMED, TEXT

NO_JSON = "is not a JSON object"
MORE = "has more text behind its JSON object"
NOT_UTF8 = "is not UTF-8"
NO_COLUMNS = "does not have the types of the columns"
INEXACT = "has {number} in {name}, a column of doubles, and no double has all of these digits"

_READ = "__read"
_CHECKED = t.StructType(
    [
        t.StructField(TEXT, t.BinaryType()),
        t.StructField(MALFORMED, t.StringType()),
        t.StructField(_READ, t.StringType()),
    ]
)


def rows_of_json(
    spark: SparkSession, place: str, options: Mapping[str, str], used: Callable[[str], bool]
) -> Rows:
    """Return the columns that Spark finds in the documents; they are null if a document can't be read. `TEXT`
    has the document, `FILE` its file, and `MALFORMED` says why it can't be read.

    A document that would lose digits in a `used` column can't be read either.
    """
    whole = any(name.lower() == "multiline" and value.lower() == "true" for name, value in options.items())
    own = {**options, "columnNameOfCorruptRecord": MALFORMED}
    lines = spark.read.options(**own).text(place, wholetext=whole)
    folders = lines.schema.fields[1:]
    there = [MALFORMED, *(each.name for each in folders)]
    files = found_in(spark, lines, 1)
    # Spark skips empty files, but when it looks for the columns of whole files a codec fails on them.
    looked_at = [shown(file) for file in files.files] if whole and files.empty else place
    schema = spark.read.format("json").options(**own).load(looked_at).schema
    columns = [each for each in schema.fields if each.name not in there]
    read = lines.select(
        sf.col("value").cast("binary").alias(TEXT),
        sf.col("_metadata.file_path").alias(FILE),
        *(lines[f"`{each.name}`"] for each in folders),
    )
    checks = _Checks(t.StructType(columns), frozenset(filter(used, (each.name for each in columns))), whole)
    out = t.StructType([*_CHECKED.fields, t.StructField(FILE, t.StringType()), *folders])
    into = t.StructType([*columns, t.StructField(MALFORMED, t.StringType())])
    asked = {name: value for name, value in own.items() if name.lower() not in ("mode", "multiline")}
    parsed = read.mapInArrow(checks.rows, out).withColumn(_READ, sf.from_json(_READ, into, asked))
    misfit = sf.col(_READ).isNull() | sf.col(f"{_READ}.{MALFORMED}").isNotNull()
    frame = parsed.select(
        *(sf.col(_READ).getField(each.name).alias(each.name) for each in columns),
        *(sf.col(f"`{each.name}`") for each in folders),
        TEXT,
        FILE,
        sf.lit(None).cast("long").alias(LINE),
        sf.coalesce(MALFORMED, sf.when(misfit, NO_COLUMNS)).alias(MALFORMED),
    )
    return Rows(frame, files.empty)


# -------------------------------------------------------------------------------------- on a worker


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


_READER = json.JSONDecoder(parse_int=_Number, parse_float=_Number)
_SPACE = " \t\r\n"
_Document = tuple[bytes, str | None, bytes | None]
"""A document: its text, why it can't be read, and the text for Spark."""


@dataclass(frozen=True, slots=True)
class _Checks:
    """What a worker needs to know. `used` are the `columns` that must not lose digits; with `whole` a text is
    a whole file."""

    columns: t.StructType
    used: frozenset[str]
    whole: bool

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn texts into a row for each document."""
        for batch in batches:
            found: list[_Document] = []
            source: list[int] = []
            for n, raw in enumerate(batch.column(0).to_pylist()):
                found += self._documents(raw)
                source += [n] * (len(found) - len(source))
            texts, reasons, documents = zip(*found, strict=True) if found else ((), (), ())
            arrays = [
                pa.array(texts, pa.binary()),
                pa.array(reasons, pa.string()),
                pa.array(documents, pa.binary()).cast(pa.string()),
                *(each.take(pa.array(source, pa.int64())) for each in batch.columns[1:]),
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=[*_CHECKED.names, *batch.schema.names[1:]])

    def _documents(self, raw: bytes) -> Iterator[_Document]:
        """Yield the objects of a line or of a whole file, and those in its arrays, one after the other."""
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            yield raw, NOT_UTF8, None
            return
        place, inside = _beyond(text, 0), False
        while place < len(text):
            if self.whole and text[place] in (",]" if inside else "["):
                inside = text[place] != "]"
                place = _beyond(text, place + 1)
                continue
            try:
                value, end = _READER.raw_decode(text, place)
            except (ValueError, RecursionError):
                yield text[place:].encode(), NO_JSON, None  # the beginning of the next one is unknown
                return
            following = _beyond(text, end)
            if not self.whole and following < len(text):
                yield raw, MORE, None
                return
            yield self._document(text[place:end].encode(), value)
            place = following

    def _document(self, text: bytes, value: Any) -> _Document:
        if not isinstance(value, dict):
            return text, NO_JSON, None
        for each in self.columns:
            number = _inexact(value.get(each.name), each.dataType) if each.name in self.used else None
            if number is not None:
                return text, INEXACT.format(name=each.name, number=number[:50]), None
        fitted = _fitted(value, self.columns)
        return text, None, text if fitted is value else _dumped(fitted).encode(errors="replace")


def _beyond(text: str, place: int) -> int:
    """Return the next place that is not white space."""
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


def _inexact(value: Any, kind: t.DataType) -> str | None:
    """Find a number in a column of doubles that no double equals, as it was written."""
    if isinstance(kind, t.DoubleType) and isinstance(value, _Number):
        return value if Decimal(value) != Decimal(repr(float(value))) else None
    return next((found for _, *each in _inner(value, kind) if (found := _inexact(*each)) is not None), None)


def _fitted(value: Any, kind: t.DataType) -> Any:
    """Return the value with texts in columns of text: Spark would turn the numbers into doubles first."""
    if isinstance(kind, t.StringType):
        is_text = value is None or (isinstance(value, str) and not isinstance(value, _Number))
        return value if is_text else _dumped(value)
    changed = {
        key: fitted
        for key, inner, inner_kind in _inner(value, kind)
        if (fitted := _fitted(inner, inner_kind)) is not inner
    }
    if not changed:
        return value
    if isinstance(value, dict):
        return {**value, **changed}
    return [changed.get(n, inner) for n, inner in enumerate(value)]


def _inner(value: Any, kind: t.DataType) -> Iterator[tuple[Any, Any, t.DataType]]:
    """Yield key, value and type of the members of a value."""
    if isinstance(kind, t.StructType) and isinstance(value, dict):
        for each in kind.fields:
            if each.name in value:
                yield each.name, value[each.name], each.dataType
    elif isinstance(kind, t.ArrayType) and isinstance(value, list):
        for n, each in enumerate(value):
            yield n, each, kind.elementType


def _dumped(value: Any) -> str:
    """Write a value as JSON, with numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return f"{{{','.join(f'{_dumped(name)}:{_dumped(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_dumped, value))}]"
    return json.dumps(value, ensure_ascii=False)
