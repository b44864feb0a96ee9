"""How the data source `timers` writes: a frame at once, or the batches of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.timers import REPLACE
from relay.pipeline.rows.columns import CONSTANT, OP, VERSION
from relay.pipeline.spark.redis_target import Target, flag, on_conflict, rate, spread, whole
from relay.store.bulk.applying import REMEMBERED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from relay.pipeline.rows.reading import Reading
    from relay.pipeline.rows.writing import Load

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""The local properties by which Spark tells tasks of which stream and batch they are."""


@dataclass
class Written(WriterCommitMessage):
    """What one task did; `files` are those of its rejects, which lie in `folder`."""

    written: int
    rejected: int
    files: tuple[str, ...] = ()
    folder: str | None = None


# ------------------------------------------------------------------------------------------- options


def load_of(options: Mapping[str, str], schema: StructType) -> tuple[Load, str | None]:
    """Return what a frame's load is to do, and the folder of its rejects. Raises `InvalidField`."""
    from relay.pipeline.inputs.run_ids import checked
    from relay.pipeline.rows.writing import Load

    rejects, run = options.get("rejects"), options.get("run_id", "")
    if run:
        rejects = rejects and f"{rejects.rstrip('/')}/run_id={checked(run)}"
    stands = on_conflict(options)
    if stands is not REPLACE and not run:
        raise InvalidField("run_id", "is missing; with on_conflict, name a run")
    reading = _reading(options, schema)
    if stands is not REPLACE and (reading.ops or reading.versions):
        raise InvalidField("on_conflict", "is for rows without op and version; leave it or these columns out")
    strict, remember = rejects is None, _remember(options)
    return Load(reading, run, stands, rate(options), strict=strict, remember=remember), rejects


def stream_load_of(options: Mapping[str, str], schema: StructType) -> tuple[Load, str | None]:
    """The same for a stream, whose run and batch its tasks find out. Raises `InvalidField`."""
    from relay.pipeline.rows.writing import Load

    if "run_id" in options:
        raise InvalidField("run_id", "is the stream's own, which its checkpoint keeps; leave it out")
    if "on_conflict" in options:
        raise InvalidField("on_conflict", "is for frames; in a stream the newest row counts, so leave it out")
    rejects = options.get("rejects")
    reading, remember = _reading(options, schema), _remember(options)
    strict = rejects is None
    return Load(reading, max_rate=rate(options), strict=strict, remember=remember), rejects


def _reading(options: Mapping[str, str], schema: StructType) -> Reading:
    """How rows are read. Raises `InvalidField`."""
    from relay.pipeline.inputs.sources import check_types
    from relay.pipeline.rows.reading import COLUMNS, Reading

    known = (*COLUMNS, OP, VERSION)
    unknown = [name for name in schema.fieldNames() if name not in known]
    if unknown:
        raise InvalidField(unknown[0], f"is not a column of a timer; there are {', '.join(known)}")
    check_types(schema)
    if "due_time" not in schema.fieldNames():
        raise InvalidField("due_time", "is missing; it has to be a column")
    constants = {name: options[name] for name in CONSTANT if name in options}
    if "topic" not in schema.fieldNames() and "topic" not in constants:
        raise InvalidField("topic", "is missing; give a column or an option")
    return Reading(
        Target.from_options(options),
        constants,
        make_ids=flag(options, "make_ids", default=False),
        zone=options.get("time_zone"),
        spread=spread(options),
        ops=OP in schema.fieldNames(),
        versions=VERSION in schema.fieldNames(),
    )


def _remember(options: Mapping[str, str]) -> int:
    """For how many microseconds versions are known. Raises `InvalidField`."""
    return whole(options, "version_ttl", REMEMBERED // SECOND, least=1) * SECOND


# ------------------------------------------------------------------------------------------- writers


class TimersWriter(DataSourceArrowWriter):
    """Writes without a guard: see `relay.store.bulk.store`. A task that is run again writes the same rows
    again; in a load with a run's id, it skips those that it has inserted."""

    def __init__(self, load: Load, rejects: str | None) -> None:
        self._load = load
        self._rejects = rejects

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Do one task. Refused rows go into a file of its own; without `rejects` the first one ends the
        task."""
        return _write(iterator, self._load, self._rejects)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note that all tasks are done. The rejects of earlier tries of this run are removed."""
        if self._load.run:
            _keep_rejects(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clean up after a failed task: the rejects of the others are removed, the timers stay, and the load
        can be run again."""
        _remove_rejects(messages)


class TimersStreamWriter(DataSourceStreamArrowWriter):  # see 0105
    """Writes each batch of a stream once. A batch that Spark runs again, since a task, the driver or the
    machine has failed, skips what it has inserted; its rejects replace those of the try before.

    Spark makes one writer for all batches, and tells neither it nor its tasks of which batch they are: only
    the tasks' local properties do.
    """

    def __init__(self, load: Load, rejects: str | None) -> None:
        self._load = load
        self._rejects = rejects

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Do one task of a batch, as `TimersWriter` does. Raises `InvalidField`."""
        from pyspark import TaskContext

        task = TaskContext.get()
        query, batch = (task and task.getLocalProperty(name) for name in (QUERY, BATCH))
        if not query or not batch:
            raise InvalidField("trigger", "is continuous; timers are written in batches, so give another one")
        rejects = self._rejects and f"{self._rejects.rstrip('/')}/run_id={query}/batch_id={batch}"
        return _write(iterator, replace(self._load, run=query, batch=int(batch)), rejects)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Note that all tasks of a batch are done. The rejects of its earlier tries are removed. Its ledger
        stays until the next batch comes, since Spark may die before it has noted this."""
        _keep_rejects(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Clean up after a failed task, as `TimersWriter` does."""
        _remove_rejects(messages)


def _write(batches: Iterator[pa.RecordBatch], load: Load, rejects: str | None) -> Written:
    from relay.pipeline.rows.rejects import RejectsFile
    from relay.pipeline.rows.writing import WriteTally, write

    tally = WriteTally()
    with RejectsFile(rejects) as file:
        for refused in write(batches, load, tally):
            file.add(refused)
    return Written(tally.written, tally.rejected, file.names, rejects)


def _keep_rejects(messages: Iterable[WriterCommitMessage | None]) -> None:
    from relay.pipeline.rows.rejects import keep_only

    done = [each for each in messages if isinstance(each, Written)]
    for folder in {each.folder for each in done if each.folder}:
        keep_only(folder, {name for each in done for name in each.files})


def _remove_rejects(messages: Iterable[WriterCommitMessage | None]) -> None:
    from relay.pipeline.rows.rejects import remove

    for each in messages:
        if isinstance(each, Written):
            remove(each.files)
