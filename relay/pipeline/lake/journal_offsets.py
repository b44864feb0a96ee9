"""The options of `timers_journal`, which say what is read and from where, and offsets, which say how far each
topic was read, or each of its partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from relay.core import validate
from relay.core.errors import InvalidField
from relay.pipeline.spark.redis_target import Target, flag, names_of, whole
from relay.store.journal.scan import JournalScan, JournalStream, Mark, place

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """What to read, from where, and how much at a time. See docs/how-to/pipeline-audit.md."""

    target: Target
    topics: tuple[str, ...]
    files: tuple[str, ...]
    start: str | Mapping[str, Mark]
    most: int
    size: int
    fail: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> JournalOptions:
        """Read the options. Raises `InvalidField` with the option's name."""
        files = names_of("files", given.get("files", ""))
        topics = names_of("topics", given.get("topics", given.get("topic", "")))
        for topic in topics:
            if topic != "*":
                validate.topic("topics", topic)
        if not files and not topics:
            raise InvalidField("topics", "is missing; name topics, or * for all that have a journal")
        return cls(
            target=Target("") if files else Target.from_options(given),
            topics=topics,
            files=files,
            start=_start(given.get("startingOffsets", EARLIEST)),
            most=whole(given, "maxRecordsPerTrigger", 1_000_000, least=1),
            size=whole(given, "recordsPerPartition", 100_000, least=1),
            fail=flag(given, "failOnDataLoss", default=True),
        )


@contextmanager
def scanning(options: JournalOptions) -> Iterator[JournalScan]:
    """Open a reader with connections of its own, for the block."""
    with options.target.server() as server:
        yield JournalScan(server)


def chosen(scan: JournalScan, options: JournalOptions) -> dict[str, JournalStream]:
    """Return the streams of the topics by their names; `*` stands for all topics that have a journal."""
    topics = scan.topics() if "*" in options.topics else options.topics
    return {stream.name: stream for topic in topics for stream in scan.streams(topic)}


def started(scan: JournalScan, options: JournalOptions, stream: str) -> Mark:
    """Return where reading begins."""
    return scan.end(stream) if options.start == LATEST else joined(scan, options, stream)


def joined(scan: JournalScan, options: JournalOptions, stream: str) -> Mark:
    """Return where reading of a stream begins that appears later: nothing of it is left out."""
    known = {} if isinstance(options.start, str) else options.start
    return known[stream] if stream in known else scan.begin(stream)


def to_offset(marks: Mapping[str, Mark]) -> dict[str, Any]:
    """Turn marks into an offset of Spark's."""
    return {stream: {"entry": mark.entry, "last": mark.last} for stream, mark in marks.items()}


def from_offset(offset: Mapping[str, Any]) -> dict[str, Mark]:
    """Turn an offset of Spark's into marks."""
    return {stream: Mark(mark["entry"], mark["last"]) for stream, mark in offset.items()}


def offsets(marks: Mapping[str, Mark]) -> str:
    """Write marks as the option `startingOffsets` takes them."""
    return json.dumps(to_offset(marks))


def _start(text: str) -> str | dict[str, Mark]:
    if text in (EARLIEST, LATEST):
        return text
    try:
        marks = from_offset(json.loads(text))
        for mark in marks.values():
            place(mark.entry)
    except (ValueError, TypeError, KeyError, AttributeError):
        problem = 'is neither earliest, latest, nor {"topic": {"entry": "1767225600000-0", "last": 1}}'
        raise InvalidField("startingOffsets", problem) from None
    return marks
