"""Reads CSV files as rows in Spark's workers: `csv_text` splits what Spark's text source reads.

If values may span lines, one task reads a whole file, since only the text before a line break says whether it
is inside quotes. By default Spark splits files at any line break: see `WHOLE_FILES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from relay.core.errors import InvalidField
from relay.pipeline.inputs.csv_text import OPTIONS, Dialect, Records, Splitter, header, without_bom
from relay.pipeline.inputs.files_found import Rows, found_in, shown
from relay.pipeline.rows.reading import FILE, LINE, MALFORMED, TEXT

WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": str(1 << 40),
    "spark.sql.files.openCostInBytes": str(1 << 40),
}
"""This must hold wherever such rows are used: a file is then one partition of Spark's."""

_PASSED = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath")
"""The options of Spark's file sources that select files."""

_HEAD = 1 << 20
"""The most bytes of a header."""

_CARRIED = t.StructType(
    [
        t.StructField(TEXT, t.BinaryType()),
        t.StructField(FILE, t.StringType()),
        t.StructField(LINE, t.LongType()),
        t.StructField(MALFORMED, t.StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class CsvPlan:
    """What a worker needs to know. `crlf` is as in `Splitter`; `partitions` are columns that folders name."""

    dialect: Dialect
    width: int
    crlf: bool | None
    partitions: tuple[str, ...]
    names: tuple[str, ...]
    """The columns of a worker's rows."""


def rows_of_csv(spark: SparkSession, place: str, options: Mapping[str, str], *, single_line: bool) -> Rows:
    """Return all columns as text, with those that folders name; a missing value is null. `TEXT` has the
    record, `FILE` and `LINE` say where it is, `MALFORMED` says why it can't be split: its columns are null
    then.

    Raises `InvalidField` if the files' headers differ.
    """
    known = {**OPTIONS, **dict.fromkeys(_PASSED)}
    for name, value in options.items():
        if name.lower() == "header" and value.lower() == "true":
            continue
        if name.lower() not in known:
            raise InvalidField("read-option", f"{name} is not known for CSV; there are {', '.join(OPTIONS)}")
    own = {name: value for name, value in options.items() if name.lower() in OPTIONS}
    finding = {name: value for name, value in options.items() if name.lower() in _PASSED}
    dialect = Dialect.of(own, single_line=single_line)
    lines = spark.read.options(**finding).option("lineSep", "\n").text(place)
    found = found_in(spark, lines, _HEAD)
    names, crlf = _headers(found.files, found.heads, dialect)
    partitions = lines.schema.fields[1:]
    fields = [*(t.StructField(name, t.StringType()) for name in names), *partitions, *_CARRIED.fields]
    told = tuple(each.name for each in partitions)
    plan = CsvPlan(dialect, len(names), crlf, told, tuple(each.name for each in fields))
    read = lines.select(
        sf.col("value").cast("binary").alias("value"),
        sf.col("_metadata.file_path").alias("file"),
        sf.col("_metadata.file_block_start").alias("start"),
        *(lines[f"`{each.name}`"] for each in partitions),
    )
    if not single_line:
        # Thousands of small files would be as many tasks.
        read = read.coalesce(4 * spark.sparkContext.defaultParallelism)
    return Rows(read.mapInArrow(partial(_rows, plan), t.StructType(fields)), found.empty)


# ------------------------------------------------------------------------------------- on the driver


def _headers(files: list[str], heads: list[bytes], dialect: Dialect) -> tuple[list[str], bool | None]:
    """Return the common header of all files, and whether their lines end in CR LF; None if only some do.
    Raises `InvalidField`."""
    found = [_header(file, head, dialect) for file, head in zip(files, heads, strict=True)]
    names, crlf = found[0]
    for file, (others, _) in zip(files, found, strict=True):
        if others != names:
            raise InvalidField("header", f"of {shown(file)} {_difference(names, others)} ({shown(files[0])})")
    if all(each == crlf for _, each in found):
        return names, crlf
    if dialect.single_line:
        odd = next(file for file, (_, each) in zip(files, found, strict=True) if each != crlf)
        raise InvalidField(
            "single_line",
            f"needs files with equal line ends, and {shown(odd)} differs from {shown(files[0])};"
            " leave --single-line out",
        )
    return names, None


def _header(file: str, head: bytes, dialect: Dialect) -> tuple[list[str], bool]:
    try:
        return header(head, dialect, whole=len(head) < _HEAD)
    except InvalidField as problem:
        raise InvalidField(problem.field, f"of {shown(file)} {problem.problem}") from None


def _difference(names: list[str], others: list[str]) -> str:
    """Say how the second header differs from the first, as a part of a sentence that then names the first
    file."""
    if len(names) != len(others):
        return f"has {len(others)} columns, not the {len(names)} of the first file"
    n = next(n for n, (one, two) in enumerate(zip(names, others, strict=True)) if one != two)
    return f"calls column {n + 1} {others[n]!r}, not {names[n]!r} as the first file"


# -------------------------------------------------------------------------------------- on a worker


class _File:
    """One file, or a part of one, whose lines come in batches. Raises `RuntimeError` if Spark has cut the
    file."""

    def __init__(self, plan: CsvPlan, file: str, start: int, told: list[Any]) -> None:
        if start and not plan.dialect.single_line:
            raise RuntimeError(f"Spark has cut {file}; {WHOLE_FILES} has to be set")
        self.file, self.start = file, start
        self._plan, self._told = plan, told
        self._first = start == 0
        self._begun = not self._first
        self._splitter = Splitter(plan.dialect, plan.width, crlf=plan.crlf, line=None if start else 1)

    def rows(self, lines: list[bytes], *, last: bool) -> pa.RecordBatch:
        """Return the records that end here."""
        piece = b"\n".join([*lines, b""])
        if not self._begun and lines:
            self._begun, piece = True, without_bom(piece, self._plan.dialect)
        try:
            found = self._splitter.split(piece, last=last)
        except (InvalidField, UnicodeError) as problem:
            at = f"{shown(self.file)}, from line {self._splitter.line}"
            raise InvalidField("source", f"{at}: {getattr(problem, 'problem', problem)}") from None
        if self._first and found.values:
            self._first = False
            for each in (found.values, found.texts, found.lines, found.reasons):
                del each[0]  # the header, which the driver has seen
        return self._batch(found)

    def _batch(self, found: Records) -> pa.RecordBatch:
        size = len(found.values)
        columns = zip(*found.values, strict=True) if size else ((),) * self._plan.width
        arrays = [
            *(pa.array(each, pa.binary()).cast(pa.string()) for each in columns),
            *(pa.repeat(each, size) for each in self._told),
            pa.array(found.texts, pa.binary()),
            pa.repeat(pa.scalar(self.file, pa.string()), size),
            pa.array(found.lines, pa.int64()),
            pa.array(found.reasons, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._plan.names))


def _rows(plan: CsvPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn lines into rows. The lines of a file come one after the other, as text sources read them."""
    current: _File | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        for first, end in _runs(batch):
            file, start = batch.column("file")[first].as_py(), batch.column("start")[first].as_py()
            if current is None or (current.file, current.start) != (file, start):
                if current is not None:
                    yield current.rows([], last=True)
                current = _File(plan, file, start, [batch.column(each)[first] for each in plan.partitions])
            lines = batch.column("value")[first:end].to_pylist()
            yield current.rows(lines, last=False)
    if current is not None:
        yield current.rows([], last=True)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Find runs of lines from the same part of the same file."""
    file = batch.column("file").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    start = batch.column("start").to_numpy(zero_copy_only=False)
    cuts = np.flatnonzero((np.diff(file) != 0) | (np.diff(start) != 0)) + 1
    bounds = [0, *cuts.tolist(), batch.num_rows]
    yield from pairwise(bounds)
