"""The data source `timers_journal`: the journals of topics, as a stream, as a batch, or from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from relay.core.errors import InvalidField, StoreRefused
from relay.pipeline.lake import journal_rows
from relay.pipeline.lake.journal_offsets import (
    JournalOptions,
    chosen,
    from_offset,
    joined,
    scanning,
    started,
    to_offset,
)
from relay.store.journal import files as journal_file
from relay.store.journal.entries import decode
from relay.store.journal.scan import EntryGap, JournalStream, Mark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from relay.core.journal import JournalBatch

_START = Mark()


@dataclass(frozen=True)
class Stretch(InputPartition):
    """The part of one task: a part of one stream, or a file. `topic` is empty if there is nothing to read."""

    topic: str = ""
    partition: int | None = None
    after: Mark = _START
    until: Mark = _START
    file: str = ""

    @property
    def stream(self) -> JournalStream:
        return JournalStream(self.topic, self.partition)


class JournalSource(DataSource):
    """`timers_journal`; the columns are those of `relay.pipeline.lake.journal_rows`."""

    @classmethod
    def name(cls) -> str:
        return "timers_journal"

    def schema(self) -> str:
        return journal_rows.SCHEMA

    def reader(self, schema: StructType) -> JournalBatchReader:
        return JournalBatchReader(JournalOptions.of(self.options))

    def streamReader(self, schema: StructType) -> JournalStreamReader:
        """Return a reader for a stream. Raises `InvalidField` if files are named."""
        options = JournalOptions.of(self.options)
        if options.files:
            raise InvalidField("files", "can't be read as a stream; read them as a batch")
        return JournalStreamReader(options)


class _Reading:
    """The reader of one task. It opens its connection where it runs."""

    def __init__(self, options: JournalOptions) -> None:
        self.options = options

    def read(self, stretch: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one part. Raises `StoreError`, and `StoreRefused` at a gap unless
        `failOnDataLoss` is false."""
        assert isinstance(stretch, Stretch)
        if stretch.file:
            yield from _file_rows(stretch)
        elif stretch.topic:
            with scanning(self.options) as scan:
                found = scan.read(stretch.stream.name, stretch.after, stretch.until)
                rows = self._whole(stretch, found)
                yield from journal_rows.arrow(stretch.topic, rows, stretch.partition)

    def _whole(
        self, stretch: Stretch, found: Iterator[JournalBatch | EntryGap]
    ) -> Iterator[JournalBatch | EntryGap]:
        for each in found:
            if isinstance(each, EntryGap) and self.options.fail:
                raise StoreRefused(_lost(stretch.stream.name, each))
            yield each


def _lost(stream: str, gap: EntryGap) -> str:
    went = f"{gap.missing} records are missing" if gap.missing > 0 else "the journal went back"
    return (
        f"the journal of topic {stream!r} is not whole: {went} before entry {gap.entry}. Set "
        "failOnDataLoss to false (--go-on) to go on, with a row of the kind GAP in its place"
    )


def _file_rows(stretch: Stretch) -> Iterator[pa.RecordBatch]:
    with Path(stretch.file).open("rb") as file:
        found = (decode(raw.id, raw.batch) for raw in journal_file.entries(file, stretch.file))
        yield from journal_rows.arrow(stretch.topic, found)


def _file_topic(name: str) -> str:
    """Return the topic that a file names. Raises `InvalidField("files", …)`."""
    try:
        with Path(name).open("rb") as file:
            first = next(journal_file.entries(file, name), None)
    except OSError as failure:
        raise InvalidField("files", f"{name} can't be read: {failure.strerror}") from None
    return first.topic if first is not None else ""


class JournalBatchReader(_Reading, DataSourceReader):
    """Reads all that there is now, from `startingOffsets` on."""

    def partitions(self) -> Sequence[InputPartition]:
        if self.options.files:
            return [Stretch(_file_topic(name), file=name) for name in self.options.files]
        with scanning(self.options) as scan:
            found: list[InputPartition] = []
            for name, stream in chosen(scan, self.options).items():
                after, until = started(scan, self.options, name), scan.end(name)
                _forward(name, after, until)
                found += [Stretch(*stream, *part) for part in scan.cut(name, after, until, self.options.size)]
            return found or [Stretch()]


class JournalStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads as the journals grow. An offset says how far each stream was read: `{"entry": id, "last":
    number}`."""

    def __init__(self, options: JournalOptions) -> None:
        super().__init__(options)
        self._target: dict[str, Mark] | None = None

    def initialOffset(self) -> dict[str, Any]:
        with scanning(self.options) as scan:
            streams = chosen(scan, self.options)
            return to_offset({stream: started(scan, self.options, stream) for stream in streams})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.most)

    def prepareForTriggerAvailableNow(self) -> None:
        with scanning(self.options) as scan:
            self._target = {stream: scan.end(stream) for stream in chosen(scan, self.options)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Share the records of one trigger evenly among the streams that have any. Raises
        `NotImplementedError` for another kind of limit."""
        marks = from_offset(start)
        with scanning(self.options) as scan:
            if self._target is not None:
                ends = self._target
            else:
                ends = {stream: scan.end(stream) for stream in chosen(scan, self.options)}
            waiting: dict[str, Mark] = {}
            for stream, end in ends.items():
                after = marks[stream] = marks.get(stream) or joined(scan, self.options, stream)
                _forward(stream, after, end)
                if end.place > after.place:
                    waiting[stream] = end
            if isinstance(limit, ReadMaxRows) and waiting:
                share = max(limit.max_rows // len(waiting), 1)
                waiting = {
                    stream: scan.ahead(stream, marks[stream], end, share) for stream, end in waiting.items()
                }
            elif not isinstance(limit, ReadAllAvailable | ReadMaxRows):
                raise NotImplementedError(f"{limit} is not supported")
        return to_offset({**marks, **waiting})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch. A stored batch that is planned again after a crash may be gone from Redis: its reader
        notices that, if it is read."""
        before, found = from_offset(start), []
        with scanning(self.options) as scan:
            for name, until in from_offset(end).items():
                after = before.get(name) or joined(scan, self.options, name)
                if until.place > after.place:
                    stream = scan.stream(name)
                    parts = scan.cut(name, after, until, self.options.size)
                    found += [Stretch(*stream, *part) for part in parts]
        return found


def _forward(stream: str, after: Mark, end: Mark) -> None:
    if after.entry and end.place < after.place:
        raise StoreRefused(
            f"the journal of topic {stream!r} ends before {after.entry}, which was read already: its key was "
            "removed, or Redis went back. Go on with a new checkpoint, and keep the old lake"
        )
