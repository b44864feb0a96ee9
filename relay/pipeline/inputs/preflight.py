"""Finds mistakes of a load before Spark starts: after a second, instead of a minute."""

from __future__ import annotations

import asyncio
import difflib
import glob
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.parquet as pq

from relay.core.errors import InvalidField, WrongKeyType
from relay.pipeline.inputs.files_found import all_empty
from relay.pipeline.inputs.sources import CSV, FORMATS, JSON, TABLE, UNITS, Source, check_map
from relay.pipeline.spark.redis_target import Target
from relay.settings import Settings
from relay.store.examine import foreign_types
from relay.store.partitions.layouts import look_up
from relay.store.server.explain import explained
from relay.store.server.fitness import check_server
from relay.store.server.server import Server

KNOWN = {*FORMATS.values(), "text", "avro", "xml", "jdbc", "binaryFile", "delta", "iceberg", TABLE}
_MASTER = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|(spark|k8s|local-cluster|mesos)(://|\[).+|yarn|k8s.*")
_OFFSET = re.compile(r"(UTC|GMT|UT)?([+-]\d{1,2}(:\d\d){0,2})?|Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {
    "null",
    "true",
    "false",
    "_metadata",
    "current_date",
    "current_time",
    "current_timestamp",
    "localtimestamp",
}
_WORDS |= {"current_user", "session_user", "user"}
"""The names in SQL that need not be columns."""


def check_options(*, master: str | None, time_zone: str | None) -> None:
    """Check master and time zone, which Spark would refuse when it starts. Raises `InvalidField`."""
    if master is not None and not _MASTER.fullmatch(master):
        raise InvalidField("master", f"is {master!r}; give local[2], spark://host:7077, k8s://… or yarn")
    if time_zone is None or (time_zone and _OFFSET.fullmatch(time_zone)):
        return
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidField(
            "time_zone", f"is {time_zone!r}; give a zone such as Europe/Berlin, or an offset such as +02:00"
        ) from None


def check_source(source: Source, target: Target, conf: Mapping[str, str]) -> None:
    """Check topic, unit and columns, and that files on this machine exist. `conf` is Spark's. Raises
    `InvalidField`."""
    check_map(source)
    if "topic" in source.constants:
        target.admit(source.constants["topic"])
    if source.unit is not None and source.unit not in UNITS:
        raise InvalidField("due_unit", f"is {source.unit!r}; give one of {', '.join(UNITS)}")
    kind = _format(source)
    if kind == TABLE or not _is_here(source.place, conf):
        return
    files = _files(source.place) if kind in {*FORMATS.values(), "text"} else []
    if kind in (CSV, JSON) and files and not any(file.stat().st_size for file in files):
        raise all_empty([str(file) for file in files])
    names = _columns(files[0], kind, source.options) if files else None
    if names is not None:
        _check_columns(source, names)


def check_folder(option: str, path: str | None) -> None:
    """Require that a folder for output is not a file. Raises `InvalidField`."""
    if path is not None and urlsplit(path).scheme in ("", "file") and _local(path).is_file():
        raise InvalidField(option, f"{path} is a file; name a folder")


def check_keyring(target: Target, topic: str | None) -> None:
    """Require that the keyring of a sealed topic can be read here. Raises `InvalidField`."""
    if target.rules(topic or "").sealing:
        target.contents()


def check_redis(settings: Settings, topic: str | None) -> None:
    """Refuse a server that a relay would refuse, and keys of the topic, or of its partitions, that hold
    something else. Raises `StoreError`, `UnfitServer` and `InvalidField`."""
    with ThreadPoolExecutor(1) as other:  # this thread may have an event loop already, as a notebook's has
        other.submit(asyncio.run, _check_redis(settings, topic)).result()


async def _check_redis(settings: Settings, topic: str | None) -> None:
    target, redis = Target.of(settings), settings.redis
    timeout = redis.command_timeout
    async with Server(redis.location, target.keys, connections=1, timeout=timeout) as server:
        async with explained():
            await check_server(server, allow_eviction=redis.allow_eviction)
        if topic is None:
            return
        layout = await look_up(server, topic)
        journal = target.rules(topic).journal_keeps > 0
        for name in layout.partitions:
            for key, held, wanted in await foreign_types(server, name, journal=journal):
                raise WrongKeyType(
                    f"{key} holds a {held}, not a {wanted}; move it away or set another key prefix"
                )


def _format(source: Source) -> str:
    """Return the source's format. A misspelt one is refused with a guess. Raises `InvalidField`."""
    if source.format is None:
        return source.kind
    near = difflib.get_close_matches(source.format, KNOWN, 1, 0.6)
    if source.format not in KNOWN and source.format.lower() not in FORMATS.values() and near:
        raise InvalidField("format", f"is {source.format!r}; did you mean {near[0]}?")
    return source.format


def _is_here(place: str, conf: Mapping[str, str]) -> bool:
    """Whether the path is on this machine: it has the scheme file, or none and Hadoop has no other
    default."""
    scheme = urlsplit(place).scheme
    elsewhere = {"SPARK_ENV_LOADED", "HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys()
    return scheme == "file" or not (scheme or elsewhere or "spark.hadoop.fs.defaultFS" in conf)


def _local(place: str) -> Path:
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme else Path(place)


def _files(place: str) -> list[Path]:
    """Return the files that Spark would read, sorted; empty if only Spark understands the pattern. Raises
    `InvalidField` if there are none."""
    path = _local(place)
    if "{" in place and not path.exists():
        return []
    found = [path] if path.exists() else [Path(each) for each in glob.glob(str(path))]  # noqa: PTH207 (absolute)
    if not found:
        raise InvalidField("source", f"{place} does not exist")
    files = [
        file
        for each in found
        for file in ([each] if each.is_file() else each.rglob("*"))
        if file.is_file() and not any(map(_is_hidden, file.relative_to(each).parts or (file.name,)))
    ]
    if not files:
        raise InvalidField("source", f"{place} holds no files")
    return sorted(files)


def _is_hidden(name: str) -> bool:
    """Whether Spark skips a file or folder of this name, such as the log of a Delta table."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _columns(file: Path, kind: str, options: Mapping[str, str]) -> list[str] | None:
    """Return the columns of a Parquet file and those that its folders name; None if only Spark can tell.
    Raises `InvalidField`."""
    if kind != "parquet" or options:
        return None
    try:
        names = list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as problem:
        raise InvalidField(
            "source", f"{file} is not a Parquet file: {str(problem).splitlines()[0]}"
        ) from None
    return names + [part.partition("=")[0] for part in file.parts if "=" in part]


def _check_columns(source: Source, names: list[str]) -> None:
    """Check that needed columns exist, and those that a mapping names as they are. Raises `InvalidField`."""
    there = {name.lower() for name in names}
    for name, expression in source.columns.items():
        bare = expression.strip()
        if _NAME.fullmatch(bare) and bare.lower() not in there | _WORDS:
            raise InvalidField(
                "map", f"{name}={bare}: there is no column {bare}; there are {', '.join(names)}"
            )
    for name, advice in (("due_time", "map it, as in --map due_time=eta"), ("topic", "name it, or map one")):
        if name not in there and name not in source.columns and name not in source.constants:
            raise InvalidField(name, f"is not a column there; {advice}. There are {', '.join(names)}")
