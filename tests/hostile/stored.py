"""What lies in Redis, in files of a journal or in an outbox, as foreign writers may have left it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from relay.cli.journal import people
from relay.core.errors import InvalidField, StoreRefused
from relay.core.partitions import partition_numbers, place_of, topic_of, under
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.core.trust.actions import joined
from relay.journal.v1 import journal_pb2
from relay.outbox.sqlite.reading import outbox_row
from relay.store.codec import envelope, lease_record
from relay.store.codec.contents import PLAIN
from relay.store.codec.kept_recurrences import kept_of
from relay.store.codec.recurrence_text import read_rule, read_standing, write_rule, write_standing
from relay.store.journal import entries, files
from relay.store.keys import KeyNames
from relay.store.partitions.entry_ids import EntryId
from relay.store.timeline.actions import read_action
from relay.store.timeline.redis_store import _read_cursor, _write_cursor
from relay.v1 import timer_service_pb2


def _envelope(data: bytes) -> None:
    """Anything is a payload, and one by one they are read as they are together."""
    alone = envelope.decode(data)
    filled = envelope.encode(b"p", {"a": "b"}, "text/plain")
    for others in ([filled] * 8, [envelope.encode(b"p", {}, "")] * 8, [data] * 8):
        payloads, headers, kinds = envelope.decode_all([*others, data])
        assert (payloads[-1], headers[-1], kinds[-1]) == (alone.payload, alone.headers, alone.content_type)
    for name, value in alone.headers.items():
        (name + value).encode()
    alone.content_type.encode()


def _lease_record(data: bytes) -> None:
    due = lease_record.due_of(data)
    assert due is None or 0 <= due <= 253_402_300_799_000_000
    text, readable = lease_record.text_of(data)
    assert text.encode(errors="surrogateescape") == data
    assert lease_record.texts_of([data, b"a"]) == ([text, "a"], [readable, True])


def _layout(data: bytes) -> None:
    text = data.decode(errors="replace")
    layout = KeyNames().read_layout("t", data)
    assert layout.text == text
    assert len(layout.partitions) <= 1024


def _partition_name(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert text.startswith(topic_of(text))
    place_of(text), under(text)
    assert partition_numbers([data], 8)[0] in range(8)


def _hand_over(data: bytes) -> None:
    change = journal_pb2.Change(kind=journal_pb2.KIND_LEFT, timer_id=b"a")
    batch = journal_pb2.Batch(version=1, changes=[change], hand_over=data.decode(errors="replace"))
    entries.decode("1-0", batch.SerializeToString())


def _cursor(data: bytes) -> None:
    score, timer_id = _read_cursor(data.decode(errors="surrogateescape"))
    if score:
        assert _read_cursor(_write_cursor(score.encode(), timer_id)) == (score, timer_id)


def _entry_id(data: bytes) -> None:
    text = data.decode(errors="replace")
    entry = EntryId.parse("page_token", text, 4)
    assert EntryId.parse("page_token", str(entry), 4) == entry
    for number in range(4):
        entry.before(number)


def _journal_entry(data: bytes) -> None:
    entries.decode("1-0", data)


def _journal_file(data: bytes) -> None:
    for raw in files.entries(BytesIO(data), "journal"):
        files.delimited(raw)


def _action(data: bytes) -> None:
    """Whatever fields an entry of the action log has, it is a line and a document."""
    parts = data.split(b"\x00")
    found = read_action(b"1767225600000-0", parts[: len(parts) // 2 * 2])
    assert people.line(found).isprintable()
    assert people.fields(found)["time"]
    assert found.since >= 0
    joined([found, found])


def _recurrence(data: bytes) -> None:
    """What can't be read is named, and its neighbour is read."""
    rule, _, standing = data.partition(b"\x00")
    good = [b"good", RULE, STANDING, b"1"]
    kept, unread = kept_of(PLAIN, "topic", [b"odd", rule, standing, b"1", *good])
    assert kept[-1].recurrence.recurrence_id == "good"
    assert len(kept) + len(unread) == 2
    for each in kept:
        assert read_standing(write_standing(each.standing)) == each.standing
        assert read_rule(each.recurrence.recurrence_id, write_rule(each.recurrence)) == each.recurrence


def _outbox_row(data: bytes) -> None:
    """Of a file of SQLite. What is read can be said to a relay, and nothing else is."""
    headers, _, timer_id = data.decode("utf-8", "surrogateescape").partition("\x00")
    texts = ("0" * 32, "schedule", "topic", timer_id, b"", headers, "")
    row = outbox_row((1, *texts, None, 60.0, None, None, None, "", 0.0))
    if not row.fault:
        said = timer_service_pb2.ScheduleColumnsRequest(timer_ids=[row.timer_id], headers=row.headers)
        assert said.headers == row.headers


def _batch(**fields: Any) -> bytes:
    change = journal_pb2.Change(timer_id=b"a", nonce=b"n" * 16, due=5.5, attempts=1, **fields)
    return journal_pb2.Batch(version=1, time=5, first=1, last=1, changes=[change]).SerializeToString()


BATCHES = (_batch(kind=1), _batch(kind=3), _batch(kind=10, dead_id="1-0"), _batch(kind=19, refused=6))
RULE = write_rule(Recurrence("r", Rule(cron="0 3 * * *", zone="Europe/Berlin"), b"p", {"a": "b"}))
STANDING = write_standing(Standing(version=1, next=5, settled=4, last="r@2026-01-01T00:00:00Z"))

_ENVELOPES = (
    envelope.encode(b"payload", {}, ""),
    envelope.encode(b"payload", {"traceparent": "00-1-2-01", "a": "ü"}, "application/json"),
    b'{"data": "text", "headers": {"content-type": "text/plain", "n": 1}}',
    b'{"b": "6869", "ct": "text/plain"}',
    b"a bare payload",
)
_ENVELOPE_WORDS = (
    envelope.MAGIC,
    b"\xff\xff",
    b"\x00\x12",
    b'"data"',
    b'"b"',
    b"[" * 3_000,
    b'{"a":' * 3_000,
)
_RECORD_WORDS = (b"\x02\x01", b"\x00\x00\x00\x00\x00\x00\xf0\x7f", b"\x00\x00\x00\x00\x00\x00\xf8\x7f")
_CURSORS = (_write_cursor(b"1767225600.5", b"order-1"), _write_cursor(b"inf", b"\xff"), "")

TARGETS: dict[str, tuple[Any, ...]] = {
    "envelope": (_envelope, _ENVELOPES, (), _ENVELOPE_WORDS, 4_000),
    "lease_record": (_lease_record, (lease_record.fresh(5.5, 9.0)[1], b"order-1"), (), _RECORD_WORDS, 4_000),
    "layout": (_layout, (b"", b"1 8", b"2 8 16", b"2 8 4"), (StoreRefused,), (b" ", b"1024", b"2048"), 4_000),
    "partition_name": (_partition_name, (b"t", b"t#3 1 8", b"t#3 1 8 16 leaving", b"d@2026-11-24T08:00:00Z")),
    "hand_over": (_hand_over, (b"2:1>3:1767225600000000",), (StoreRefused,), (b":", b">")),
    "page_token": (_cursor, tuple(map(str.encode, _CURSORS)), (InvalidField,), (b"=", b"_w==", b"bmFuIGE=")),
    "entry_id": (_entry_id, (b"1767225600000-0#3", b"0-0#0"), (InvalidField,), (b"#", b"-")),
    "journal_entry": (_journal_entry, BATCHES, (StoreRefused,), (b"\x08\x01",), 4_000),
    "action": (
        _action,
        (b"time\x001767225600000000\x00principal\x00token:a\x00began\x001-0\x00note\x00why",),
        (),
        (b"\x00", b"time\x00", b"began\x00", b"outcome\x00", "²".encode(), b"9" * 18),
    ),
    "journal_file": (
        _journal_file,
        tuple(files.delimited(files.Raw("1-0", batch, "t")) for batch in BATCHES),
        (InvalidField,),
        (b"\x80" * 30, b"\xff\xff\xff\x1f"),
        4_000,
    ),
    "outbox_row": (
        _outbox_row,
        (b'{"a": "b"}\x00order-1', '{"a": "ü"}\x00ü'.encode(), b"{}\x00"),
        (),
        (b"null", b"[]", b'"\\ud800"', b'"\\udc80"', b"1" * 5_000, b"[" * 5_000, b'{"a":' * 5_000, b"\xff"),
    ),
    "recurrence_text": (
        _recurrence,
        (RULE + b"\x00" + STANDING,),
        (),
        (b"null", b"[]", b"{}", b'"1"', b"true", b"1e5", b"[" * 5_000, b'{"a":' * 5_000),
        3_000,
    ),
}
