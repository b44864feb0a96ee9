"""The files of a source, without those that hold nothing: Spark and shell pipelines leave empty ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from relay.core.errors import InvalidField
from relay.pipeline.spark.files import heads

_NAMED = 3


class Rows(NamedTuple):
    """A source's rows, and its files without a byte, packed or not, which have none."""

    frame: DataFrame
    empty: Sequence[str] = ()


class Found(NamedTuple):
    """The URLs of a source's files, sorted: those that hold something, with their first bytes, and the
    empty ones."""

    files: list[str]
    heads: list[bytes]
    empty: list[str]


def found_in(spark: SparkSession, lines: DataFrame, most: int) -> Found:
    """Look at the files of a frame that Spark reads; `most` bytes of each. Raises `InvalidField` if none
    holds anything."""
    files = sorted(lines.inputFiles())
    if not files:
        raise InvalidField("source", "has no files")
    begun = list(zip(files, heads(spark, files, most), strict=True))
    full = [(file, head) for file, head in begun if head]
    empty = [file for file, head in begun if not head]
    if not full:
        raise all_empty(empty)
    return Found([file for file, _ in full], [head for _, head in full], empty)


def all_empty(files: Sequence[str]) -> InvalidField:
    """Return the error for a source of empty files."""
    if len(files) == 1:
        return InvalidField("source", f"holds no records: {shown(files[0])} is empty")
    return InvalidField("source", f"holds no records: all its {len(files):,} files are empty: {_list(files)}")


def skipped(files: Sequence[str]) -> str:
    """Tell of empty files beside others, in a sentence."""
    if len(files) == 1:
        return f"a file is empty, and was skipped: {shown(files[0])}"
    return f"{len(files):,} files are empty, and were skipped: {_list(files)}"


def _list(files: Sequence[str]) -> str:
    more = len(files) - _NAMED
    return ", ".join(map(shown, files[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")


def shown(file: str) -> str:
    """Write a file's URL for people."""
    return unquote(file)
