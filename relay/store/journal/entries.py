"""Reads a topic's journal: the stream's entries as values. `lua/lib/journal.lua` writes them."""

from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from relay.core.errors import InvalidField, StoreRefused
from relay.core.instants import from_scores
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
from relay.store.codec.lease_record import texts_of
from relay.store.server.server import Server

VERSION = 1
MAX_BATCHES = 1000
"""The most entries that one call reads."""

_KINDS = {int(kind): kind for kind in RecordKind}
_ADOPTIONS = {int(each): each for each in Adoption}
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
        records = _records(message)
    except KeyError:
        raise StoreRefused(f"entry {entry} of the journal has a kind that this Relay doesn't know") from None
    if any(record.kind in HAND_OVERS for record in records):
        try:
            HandOver.parse(message.hand_over)
        except ValueError as problem:
            raise StoreRefused(f"entry {entry} of the journal can't be read: {problem}") from None
    return JournalBatch(entry, message.time, message.first, message.last, records, message.relay)


def _records(batch: journal_pb2.Batch) -> tuple[JournalRecord, ...]:
    """The changes of a batch, field by field: half of what a lake's ingest costs is here. Raises `KeyError`
    for a kind that is not known."""
    changes = list(batch.changes)
    kinds = [_KINDS[each.kind] for each in changes]
    nonces = [each.nonce for each in changes]
    scores = [each.score for each in changes]
    occurrences = [each.occurrence for each in changes]
    hand_overs, principals = [""] * len(kinds), [""] * len(kinds)
    if batch.nonce or batch.score or batch.hand_over or batch.principal:  # which the batch says for some
        for at, (kind, change) in enumerate(zip(kinds, changes, strict=True)):
            if kind is RecordKind.CLAIMED:
                nonces[at], scores[at] = batch.nonce, batch.score
                occurrences[at] = occurrences[at] or batch.nonce
            elif kind in HAND_OVERS:
                hand_overs[at] = batch.hand_over
            elif _is_asked_for(kind, change):
                principals[at] = batch.principal
    columns = (  # in the order of a record's fields
        kinds,
        texts_of([each.timer_id for each in changes])[0],
        nonces,
        occurrences,
        from_scores([each.due for each in changes]),
        from_scores(scores),
        [each.attempts for each in changes],
        [each.claims for each in changes],
        [each.received for each in changes],
        [each.suspect for each in changes],
        [each.approximate for each in changes],
        from_scores([each.expires for each in changes]),
        from_scores([each.previous_due for each in changes]),
        [each.reason for each in changes],
        [_KINDS[each.refused] if each.refused else None for each in changes],
        [_ADOPTIONS[each.adopted] if each.adopted else None for each in changes],
        [each.dead_id for each in changes],
        [each.count for each in changes],
        hand_overs,
        [each.previous_dead_id for each in changes],
        principals,
        [in_short(each.error) if each.error else "" for each in changes],
    )
    return tuple(map(JournalRecord._make, zip(*columns, strict=True)))


def _is_asked_for(kind: RecordKind, change: journal_pb2.Change) -> bool:
    """Whether a change has a principal, if its batch has one."""
    # A turn that people asked for arms no other instant than stood there.
    turned = kind is RecordKind.TICKED and change.due == change.previous_due
    return kind in BY_HAND or kind in BY_CALLERS or turned


def checked(field: str, entry: str) -> str:
    """Return the id of an entry; `field` is what the caller calls it. Raises `InvalidField`."""
    if not _ENTRY.fullmatch(entry):
        raise InvalidField(field, "is not an entry of a journal, such as 1767225600000-0")
    return entry
