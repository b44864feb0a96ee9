"""The rules for input. Each failure raises an `InvalidField` that says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from relay.core.errors import InvalidField
from relay.core.instants import LATEST

MAX_NAME_BYTES = 256
_OCCURRENCE, _NO_OCCURRENCE = re.compile("[0-9a-f]{32}"), 32 * "0"
_PLAIN = re.compile(r"[ -z|~]+")
MAX_HEADER_BYTES = 64 * 1024
MOST_PAYLOAD_BYTES = 64 << 20
"""The largest value of `max_payload_bytes`."""
SEALED = "relay-sealed"
"""The header by which a stored content says that it is sealed, and with which key. Callers may not."""
SUBJECT = "relay-seal-with"
"""The header by which the sealed content of a recurrence says whose it is. Callers may not, either."""
MAX_OUTSTANDING = 100_000
MAX_REASON_BYTES = 1024
MAX_NOTE_BYTES = 1024


def name(field: str, value: str) -> str:
    """Check a topic or a timer_id: 1 to 256 bytes of UTF-8, no control characters, no braces. Raises
    `InvalidField`.

    Braces would decide a key's slot in Redis Cluster, so the keys of one topic could be in several slots.
    """
    if not value:
        raise InvalidField(field, "is empty; give it 1 to 256 bytes")
    if len(value) <= MAX_NAME_BYTES and _PLAIN.fullmatch(value):
        return value  # most names are of this kind
    size = _size(field, value)
    if size > MAX_NAME_BYTES:
        raise InvalidField(field, f"is {size} bytes long; at most {MAX_NAME_BYTES} are allowed")
    for char in value:
        if char in "{}":
            raise InvalidField(field, "contains a brace; leave out { and }")
        if ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F:
            raise InvalidField(field, f"contains the control character U+{ord(char):04X}; leave it out")
    return value


def topic(field: str, value: str) -> str:
    """Check a topic's name: that of `name`, without a `#`, which divides topic and partition in the names of
    keys. Raises `InvalidField`."""
    if "#" in value:
        raise InvalidField(field, "contains a #, which names partitions; leave it out")
    return name(field, value)


def plain_names(values: Sequence[str]) -> bool:
    """Whether there are names, and all are of the usual kind. This takes a fifth of what `name` takes for
    each. False does not mean that one is invalid."""
    lengths = list(map(len, values))
    fit = min(lengths, default=0) > 0 and max(lengths) <= MAX_NAME_BYTES
    return fit and _PLAIN.fullmatch("".join(values)) is not None


def _size(field: str, text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidField(field, "contains half a character; give valid Unicode text") from None


def payload(value: bytes, limit: int, field: str = "payload") -> bytes:
    """Check that a payload has at most `limit` bytes. Raises `InvalidField`."""
    if len(value) > limit:
        raise InvalidField(field, f"is {len(value)} bytes long; max_payload_bytes of this topic is {limit}")
    return value


def headers(value: Mapping[str, str]) -> Mapping[str, str]:
    """Check that names are not empty nor Relay's own, and that names and values have at most 64 KiB of UTF-8
    together. Raises `InvalidField`."""
    if not value:
        return value
    size = 0
    for key, text in value.items():
        if not key:
            raise InvalidField("headers", "has an empty name; name every header")
        if key in (SEALED, SUBJECT):
            raise InvalidField("headers", f"has {key}, which is Relay's own; give it another name")
        size += _size("headers", key) + _size("headers", text)
    if size > MAX_HEADER_BYTES:
        raise InvalidField("headers", f"are {size} bytes long; at most {MAX_HEADER_BYTES} are allowed")
    return value


def note(value: str) -> str:
    """Check what a person says about a change: at most 1,024 bytes, or nothing. Raises `InvalidField`."""
    if (size := _size("note", value)) > MAX_NOTE_BYTES:
        raise InvalidField("note", f"is {size} bytes long; at most {MAX_NOTE_BYTES:,} are allowed")
    return value


def due(value: int, field: str = "due_time") -> int:
    """Check microseconds since 1970, until the year 9999. Raises `InvalidField`."""
    if value < 0:
        raise InvalidField(field, "is before 1970; give a time from 1970 to 9999")
    if value > LATEST:
        raise InvalidField(field, "is after 9999; give a time from 1970 to 9999")
    return value


def delay(value: int, field: str = "delay") -> int:
    """Check a delay in microseconds: 0 or more, and not past the year 9999. Raises `InvalidField`."""
    if value < 0:
        raise InvalidField(field, "is negative; give 0 or more, or a due_time that is past")
    if value > LATEST:
        raise InvalidField(field, "ends after the year 9999; give a shorter one")
    return value


def times(values: Sequence[int]) -> bool:
    """Whether `due` and `delay` accept all of them; there must be at least one."""
    return min(values) >= 0 and max(values) <= LATEST


def seal_with(value: str, *, sealed: bool) -> str:
    """The subject that a timer names, which only one of a `sealed` topic may."""
    if not value:
        return ""
    if not sealed:
        raise InvalidField(
            "seal_with", "is set, and the topic is not sealed; leave it out, or set sealing for the topic"
        )
    return name("seal_with", value)


def occurrence_id(value: str, timer_id: str, field: str = "occurrence_id") -> bytes:  # see 0124
    """Check an occurrence_id as deliveries have it, and return its 16 bytes; empty for none.

    It is the timer_id as the caller gave it, a slash, and 32 lower-case hexadecimal digits that are not all
    zero. Raises `InvalidField`.
    """
    if not value:
        return b""
    if not timer_id:
        raise InvalidField("timer_id", f"is empty; give one with {field}, which begins with it")
    before, _, digits = value.rpartition("/")
    if before != timer_id or not _OCCURRENCE.fullmatch(digits) or digits == _NO_OCCURRENCE:
        raise InvalidField(
            field, "is not the timer_id, a slash, and 32 hexadecimal digits; give timer_id/ and a UUID's"
        )
    return bytes.fromhex(digits)


def content_type(value: str) -> str:
    """Check a content type: empty, or at most 256 bytes without control characters."""
    if value:
        name("content_type", value)
    return value
