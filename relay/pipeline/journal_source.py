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
from relay.store.journal.scan import EntryGap, Mark
from relay.store.server.blocking import NO_PARTITIONS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from relay.core.journal import JournalBatch

_START = Mark()


@dataclass(frozen=True)
class Stretch(InputPartition):
    """The part of one task: a part of one topic's journal, or a file."""

    topic: str = ""
    after: Mark = _START
    until: Mark = _START
    file: str = ""


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
                found = scan.read(stretch.topic, stretch.after, stretch.until)
                yield from journal_rows.arrow(stretch.topic, self._whole(stretch, found))

    def _whole(
        self, stretch: Stretch, found: Iterator[JournalBatch | EntryGap]
    ) -> Iterator[JournalBatch | EntryGap]:
        for each in found:
            if isinstance(each, EntryGap) and self.options.fail:
                raise StoreRefused(_lost(stretch.topic, each))
            yield each


def _lost(topic: str, gap: EntryGap) -> str:
    went = f"{gap.missing} records are missing" if gap.missing > 0 else "the journal went back"
    return (
        f"the journal of topic {topic!r} is not whole: {went} before entry {gap.entry}. Set "
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
    if first is not None and "#" in first.id:
        raise InvalidField("files", f"{name}: {NO_PARTITIONS.format(first.topic)}")
    return first.topic if first is not None else ""


class JournalBatchReader(_Reading, DataSourceReader):
    """Reads all that there is now, from `startingOffsets` on."""

    def partitions(self) -> Sequence[InputPartition]:
        if self.options.files:
            return [Stretch(_file_topic(name), file=name) for name in self.options.files]
        with scanning(self.options) as scan:
            found: list[InputPartition] = []
            for topic in chosen(scan, self.options):
                after, until = started(scan, self.options, topic), scan.end(topic)
                _forward(topic, after, until)
                found += [Stretch(topic, *part) for part in scan.cut(topic, after, until, self.options.size)]
            return found or [Stretch()]


class JournalStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads as the journals grow. An offset says how far each topic was read: `{"entry": id, "last":
    number}`."""

    def __init__(self, options: JournalOptions) -> None:
        super().__init__(options)
        self._target: dict[str, Mark] | None = None

    def initialOffset(self) -> dict[str, Any]:
        with scanning(self.options) as scan:
            topics = chosen(scan, self.options)
            return to_offset({topic: started(scan, self.options, topic) for topic in topics})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.most)

    def prepareForTriggerAvailableNow(self) -> None:
        with scanning(self.options) as scan:
            self._target = {topic: scan.end(topic) for topic in chosen(scan, self.options)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Share the records of one trigger evenly among the topics that have any. Raises
        `NotImplementedError` for another kind of limit."""
        marks = from_offset(start)
        with scanning(self.options) as scan:
            if self._target is not None:
                ends = self._target
            else:
                ends = {topic: scan.end(topic) for topic in chosen(scan, self.options)}
            waiting: dict[str, Mark] = {}
            for topic, end in ends.items():
                after = marks[topic] = marks.get(topic) or joined(scan, self.options, topic)
                _forward(topic, after, end)
                if end.place > after.place:
                    waiting[topic] = end
            if isinstance(limit, ReadMaxRows) and waiting:
                share = max(limit.max_rows // len(waiting), 1)
                waiting = {
                    topic: scan.ahead(topic, marks[topic], end, share) for topic, end in waiting.items()
                }
            elif not isinstance(limit, ReadAllAvailable | ReadMaxRows):
                raise NotImplementedError(f"{limit} is not supported")
        return to_offset({**marks, **waiting})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch. A stored batch that is planned again after a crash may be gone from Redis: its reader
        notices that, if it is read."""
        before, found = from_offset(start), []
        with scanning(self.options) as scan:
            for topic, until in from_offset(end).items():
                after = before.get(topic) or joined(scan, self.options, topic)
                if until.place > after.place:
                    found += [
                        Stretch(topic, *part) for part in scan.cut(topic, after, until, self.options.size)
                    ]
        return found


def _forward(topic: str, after: Mark, end: Mark) -> None:
    if after.entry and end.place < after.place:
        raise StoreRefused(
            f"the journal of topic {topic!r} ends before {after.entry}, which was read already: its key was "
            "removed, or Redis went back. Go on with a new checkpoint, and keep the old lake"
        )
