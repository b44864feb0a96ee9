"""Journals in files: `relay.journal.v1.Entry` messages, each behind its length as a varint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from relay.core.errors import InvalidField, StoreRefused
from relay.core.journal import JournalBatch
from relay.journal.v1 import file_pb2
from relay.store.journal.entries import decode

MOST_BYTES = 64 << 20
"""A length that no entry reaches, since a script's arguments can't be that long."""


class CutShort(InvalidField):
    """A file that ends in the middle of an entry: whoever wrote it was stopped."""

    def __init__(self, name: str) -> None:
        super().__init__("file", f"{name} ends in the middle of an entry: export again, and it goes on there")


@dataclass(frozen=True, slots=True)
class Raw:
    """An entry as it lies in Redis; `end` is where it ends in its file (bytes)."""

    id: str
    batch: bytes
    topic: str = ""
    end: int = 0

    def named(self, topic: str) -> Raw:
        """As the first of a file."""
        return replace(self, topic=topic)


def batches(path: Path, topic: str) -> Iterator[JournalBatch]:
    """Read what a file holds of this topic's journal. Raises `OSError`, and `InvalidField("file", …)` for a
    file that is not a journal of Relay's."""
    with path.open("rb") as file:
        for number, raw in enumerate(entries(file, str(path))):
            if not number and raw.topic != topic:
                raise InvalidField("file", f"{path} is of the topic {raw.topic!r}, not of {topic!r}")
            try:
                yield decode(raw.id, raw.batch)
            except StoreRefused as failure:
                raise InvalidField("file", f"{path}: {failure}") from None


def entries(file: BinaryIO, name: str) -> Iterator[Raw]:
    """All entries from where the file stands. Raises `InvalidField("file", …)`, and `CutShort` at its end."""
    while (size := _size(file, name)) is not None:
        content = file.read(size)
        if len(content) < size:
            raise CutShort(name)
        message = file_pb2.Entry()
        try:
            message.ParseFromString(content)
        except DecodeError:
            raise InvalidField("file", f"{name} is not a journal that Relay exported") from None
        yield Raw(message.id, message.batch.SerializeToString(), message.topic, file.tell())


def _size(file: BinaryIO, name: str) -> int | None:
    """The varint that the file goes on with; None at its end."""
    size = shift = 0
    while byte := file.read(1):
        size |= (byte[0] & 127) << shift
        if size > MOST_BYTES:
            raise InvalidField("file", f"{name} is not a journal that Relay exported")
        if byte[0] < 128:
            return size
        shift += 7
    if shift:
        raise CutShort(name)
    return None


def delimited(raw: Raw) -> bytes:
    """Return an entry behind its length. Raises `StoreRefused`."""
    message = file_pb2.Entry(id=raw.id, topic=raw.topic)
    try:
        message.batch.ParseFromString(raw.batch)
    except DecodeError:
        raise StoreRefused(f"entry {raw.id} of the journal can't be read: it is not Relay's") from None
    content = message.SerializeToString()
    size, head = len(content), bytearray()
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + content
