"""Forged journals as files."""

from __future__ import annotations

from pathlib import Path

from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, RecordKind
from relay.journal.v1 import journal_pb2
from relay.store.journal.files import Raw, delimited


def written(path: Path, topic: str, batches: list[JournalBatch]) -> Path:
    """A file as an export makes it."""
    entries = [Raw(batch.entry, encoded(batch), "" if n else topic) for n, batch in enumerate(batches)]
    path.write_bytes(b"".join(delimited(entry) for entry in entries))
    return path


def encoded(batch: JournalBatch) -> bytes:
    """As the scripts write it."""
    message = journal_pb2.Batch(version=1, time=batch.time, first=batch.first, last=batch.last)
    for record in batch.records:
        change = message.changes.add(timer_id=record.timer_id.encode())
        change.kind = int(record.kind)  # type: ignore[assignment]
        fill(change, record)
        if record.kind is RecordKind.CLAIMED:
            message.nonce, message.score = record.nonce, record.score / SECOND
        message.hand_over = record.hand_over or message.hand_over
        message.principal = record.principal or message.principal
    return message.SerializeToString()


def fill(change: journal_pb2.Change, record: JournalRecord) -> None:
    if record.kind is not RecordKind.CLAIMED:
        change.nonce, change.score = record.nonce, record.score / SECOND
    change.due, change.previous_due = record.due / SECOND, record.previous_due / SECOND
    change.expires = record.expires / SECOND
    change.suspect, change.approximate = record.suspect, record.approximate
    for name in ("occurrence", "attempts", "claims", "received", "reason", "dead_id", "previous_dead_id"):
        setattr(change, name, getattr(record, name))
    if record.refused is not None:
        change.refused = int(record.refused)  # type: ignore[assignment]
    if record.adopted is not None:
        change.adopted = int(record.adopted)  # type: ignore[assignment]
