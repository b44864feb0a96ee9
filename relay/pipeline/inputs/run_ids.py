"""A run's id. It is the same for the same files, read in the same way into the same timers."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from relay.core.errors import InvalidField, ServiceError
from relay.pipeline.inputs.sources import TABLE, Source

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def checked(run_id: str) -> str:
    """Check an id that somebody gave, for use in keys and folders' names. Raises `InvalidField`."""
    if not _ID.fullmatch(run_id):
        raise InvalidField(
            "run_id", f"is {run_id!r}; give 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return run_id


class HeldBack(ServiceError):
    """A load has too many rejects or too few rows; nothing was written."""


class TooManyRejects(HeldBack):
    """More rows were refused than `max_rejects` allows; nothing was written."""


class TooFewRows(HeldBack):
    """There are fewer rows than `min_rows` asks for; nothing was written."""


@dataclass(frozen=True, slots=True)
class MaxRejects:
    """How many rows may be refused: `most` rows, or with `percent` `most` percent of all rows."""

    most: float
    percent: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Read `10` or `0.5%`. Raises `InvalidField`."""
        found = re.fullmatch(r"(\d{1,12})|(\d{1,3}(?:\.\d{1,6})?)%", text, re.ASCII)
        if not found or (found[2] and float(found[2]) > 100):
            raise InvalidField("max_rejects", f"is {text!r}; give a number of rows, such as 10, or 0.5%")
        return cls(float(found[1] or found[2]), percent=found[2] is not None)

    def hold(self, rows: int, rejected: int, example: str) -> None:
        """Raises `TooManyRejects` if there are too many."""
        most = rows * self.most / 100 if self.percent else self.most
        if rejected > most:
            raise TooManyRejects(
                f"{rejected:,} of {rows:,} rows can't be timers, and max_rejects allows "
                f"{math.floor(most):,}; nothing was written. One of the reasons: {example}"
            )


def derived(spark: SparkSession, source: Source) -> str:  # see 0070
    """Return the run's id, `run-` and 16 hexadecimal digits: a digest of the input's files, of how they are
    read and mapped, and of the session's time zone.

    A view or a database has no content to compare, so each of its runs has an id of its own.
    """
    files = _files(spark, source)
    if not files:
        return f"run-{secrets.token_hex(8)}"
    how = {name: value for name, value in asdict(source).items() if name not in ("place", "single_line")}
    how["format"] = source.kind
    told = json.dumps(
        [_described(spark, source.place, files), how, spark.conf.get("spark.sql.session.timeZone")],
        sort_keys=True,
        default=str,
    )
    return f"run-{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"


def _files(spark: SparkSession, source: Source) -> list[str]:
    """Return the URLs of the files that Spark reads, without reading them. A view's files are not its
    content."""
    if source.format == TABLE:
        return [] if _is_view(spark, source.place) else sorted(spark.table(source.place).inputFiles())
    try:
        return sorted(spark.read.format("text").options(**source.options).load(source.place).inputFiles())
    except (AnalysisException, IllegalArgumentException):  # not a path: a database, or another data source
        return []
    except Py4JError as failure:
        if "UnsupportedFileSystemException" in str(failure):  # mongodb://…
            return []
        raise


def _is_view(spark: SparkSession, name: str) -> bool:
    try:
        return spark.catalog.getTable(name).tableType in ("VIEW", "TEMPORARY")
    except AnalysisException:  # a path as a table's name, such as parquet.`/data`
        return False


def _described(spark: SparkSession, place: str, files: list[str]) -> list[list[str]]:
    """Return for each file its name below the source, its size, and a fingerprint of its content."""
    paths = [unquote(urlsplit(file).path) for file in files]
    base = _base(unquote(urlsplit(place).path), paths)
    if all(urlsplit(file).scheme in ("", "file") for file in files):
        return [[os.path.relpath(path, base), *_content(Path(path))] for path in paths]
    told = _sizes_and_tags(spark, files)
    return [[os.path.relpath(path, base), *told[file]] for path, file in zip(paths, files, strict=True)]


def _base(place: str, paths: list[str]) -> str:
    """Return the folder that names are relative to: the source's, or for a pattern the common one."""
    whole = os.path.normpath(Path(place).absolute())
    if all(path.startswith(f"{whole}/") for path in paths):
        return whole
    return os.path.commonpath([Path(path).parent for path in paths])


def _content(path: Path) -> tuple[str, str]:
    """Return size and digest of a file on this machine. Reading it is far quicker than loading it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        return str(file.tell()), digest.hexdigest()


def _sizes_and_tags(spark: SparkSession, files: list[str]) -> dict[str, tuple[str, str]]:
    """Return size and ETag of each file, or the time of its last change if the store has no ETags. This makes
    one list call for each folder."""
    jvm = spark._jvm
    assert jvm is not None
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    found: dict[str, tuple[str, str]] = {}
    by_name = {unquote(urlsplit(file).path): file for file in files}
    for folder in sorted({file.rpartition("/")[0] for file in files}):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI.create(folder))
        for status in path.getFileSystem(conf).listStatus(path):
            name = by_name.get(status.getPath().toUri().getPath())
            if name is not None:
                found[name] = (str(status.getLen()), _tag(status))
    return found


def _tag(status: object) -> str:
    try:
        tag = status.getEtag()  # type: ignore[attr-defined]
    except Py4JError:  # a file system without ETags, such as HDFS
        tag = None
    return str(tag or status.getModificationTime())  # type: ignore[attr-defined]
