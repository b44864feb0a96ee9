"""Reads a topic's journal: the stream's entries as values. `lua/lib/journal.lua` writes them."""

from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from relay.core.errors import InvalidField, StoreRefused
from relay.core.instants import from_score
from relay.core.journal import (
    BY_CALLERS,
    BY_HAND,
    HAND_OVERS,
    Adoption,
    HandOver,
    JournalBatch,
    JournalRecord,
    RecordKind,
    in_short,
)
from relay.journal.v1 import journal_pb2
from relay.store.codec.lease_record import text_of
from relay.store.server.server import Server

VERSION = 1
MAX_BATCHES = 1000
"""The most entries that one call reads."""

_ENTRY = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


class JournalReader:
    """Reads the journals of all topics on a Redis or Valkey server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, topic: str, after: str = "", *, count: int = 100) -> list[JournalBatch]:
        """Return up to `count` batches behind the entry `after`, the oldest first; an empty `after` means the
        beginning.

        This is one XRANGE. Raises `InvalidField("from", …)` for an invalid entry id, and `StoreError`.
        """
        start = f"({checked('from', after)}" if after else "-"
        return await self._page("XRANGE", topic, start, "+", count)

    async def newest(self, topic: str, *, count: int = 1) -> list[JournalBatch]:
        """Return the last `count` batches, the oldest first. This is one XREVRANGE. Raises `StoreError`."""
        return (await self._page("XREVRANGE", topic, "+", "-", count))[::-1]

    async def _page(self, command: str, topic: str, start: str, end: str, count: int) -> list[JournalBatch]:
        key = self._server.keys.key("journal", topic)
        found = await self._server.ask(command, key, start, end, "COUNT", min(count, MAX_BATCHES))
        return [decode(name.decode(), fields.get(b"b", b"")) for name, fields in found]


def decode(entry: str, raw: bytes) -> JournalBatch:
    """Return the batch in the stream's entry with this id. Raises `StoreRefused` if it holds none."""
    message = journal_pb2.Batch()
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise StoreRefused(f"entry {entry} of the journal can't be read: it is not Relay's") from None
    if message.version != VERSION:
        raise StoreRefused(
            f"entry {entry} of the journal has version {message.version}; this Relay reads {VERSION}"
        )
    try:
        records = tuple(_record(change, message) for change in message.changes)
    except ValueError:
        raise StoreRefused(f"entry {entry} of the journal has a kind that this Relay doesn't know") from None
    if any(record.kind in HAND_OVERS for record in records):
        try:
            HandOver.parse(message.hand_over)
        except ValueError as problem:
            raise StoreRefused(f"entry {entry} of the journal can't be read: {problem}") from None
    return JournalBatch(entry, message.time, message.first, message.last, records, message.relay)


def _record(change: journal_pb2.Change, batch: journal_pb2.Batch) -> JournalRecord:
    kind = RecordKind(change.kind)
    claimed, handed_over = kind is RecordKind.CLAIMED, kind in HAND_OVERS
    # A turn that people asked for arms no other instant than stood there.
    asked = (
        kind in BY_HAND
        or kind in BY_CALLERS
        or (kind is RecordKind.TICKED and change.due == change.previous_due)
    )
    return JournalRecord(
        kind=kind,
        timer_id=text_of(change.timer_id)[0],
        nonce=batch.nonce if claimed else change.nonce,
        occurrence=change.occurrence or (batch.nonce if claimed else b""),
        due=from_score(change.due),
        score=from_score(batch.score if claimed else change.score),
        attempts=change.attempts,
        claims=change.claims,
        received=change.received,
        suspect=change.suspect,
        approximate=change.approximate,
        expires=from_score(change.expires),
        previous_due=from_score(change.previous_due),
        reason=change.reason,
        refused=RecordKind(change.refused) if change.refused else None,
        adopted=Adoption(change.adopted) if change.adopted else None,
        dead_id=change.dead_id,
        count=change.count,
        hand_over=batch.hand_over if handed_over else "",
        previous_dead_id=change.previous_dead_id,
        principal=batch.principal if asked else "",
        error=in_short(change.error),
    )


def checked(field: str, entry: str) -> str:
    """Return the id of an entry; `field` is what the caller calls it. Raises `InvalidField`."""
    if not _ENTRY.fullmatch(entry):
        raise InvalidField(field, "is not an entry of a journal, such as 1767225600000-0")
    return entry
