"""The stored form of payload, headers and content type: FastStream's `BinaryMessageFormatV1`.

    magic 89 'BIN' 0D 0A 1A 0A │ u16 version │ u32 headers start │ u32 body start
    │ u16 header count │ (u16 length, name, u16 length, value)… │ body          (big-endian)

Lengths are byte lengths here. FastStream's writer stores character counts, which agree for ASCII
only; its older forms are a JSON object with `data` and `headers`, and the bare payload; the
timers' own older form is a JSON object with `b`, the payload in hex, and `ct`. All of
them are read, and nothing is refused: bytes that are not an envelope are a payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from struct import Struct, error, pack
from typing import TypeAlias

from relay.core.timers import NO_HEADERS as NONE
from relay.core.timers import Content

MAGIC = b"\x89BIN\x0d\x0a\x1a\x0a"
CONTENT_TYPE = "content-type"

_PREFIX = Struct(">8sHIIH")
_HEADERS_START = 18
_SHORT = Struct(">H")

NO_HEADERS = _PREFIX.pack(MAGIC, 1, _HEADERS_START, _PREFIX.size, 0)
"""The beginning of an envelope that holds only a payload."""
BODY = len(NO_HEADERS)
"""Where the payload begins in such an envelope, and the first header in another one."""
_OURS = NO_HEADERS[:14]
"""The beginning of every envelope that is written here: its version, and where the headers start."""
_MANY = 8
"""The number of envelopes for which it is worthwhile to look for a common layout."""

Columns: TypeAlias = tuple[list[bytes], list[Mapping[str, str]], list[str]]


def encode(payload: bytes, headers: Mapping[str, str], content_type: str) -> bytes:
    """Make an envelope. Names and values have at most 65,535 bytes each."""
    if not headers and not content_type:
        return NO_HEADERS + payload
    items = dict(headers)
    if content_type:
        items[CONTENT_TYPE] = content_type
    parts: list[bytes] = []
    for key, value in items.items():
        for text in (key.encode(), value.encode()):
            parts += (pack(">H", len(text)), text)
    block = b"".join(parts)
    return _PREFIX.pack(MAGIC, 1, _HEADERS_START, _PREFIX.size + len(block), len(items)) + block + payload


def decode(data: bytes) -> Content:
    """Read the content of `data` in any of the forms."""
    return Content(*_read(data))


def decode_all(stored: Sequence[bytes]) -> Columns:
    """Return what `decode` reads of each, by columns: payloads, headers, content types. There is at least
    one."""
    alike = _read_alike(stored) if len(stored) >= _MANY and not stored[0].startswith(NO_HEADERS) else None
    if alike is not None:
        return alike
    # Most are bare, and a call for each of them is expensive.
    payloads, headers, content_types = zip(
        *[(each[BODY:], NONE, "") if each.startswith(NO_HEADERS) else _read(each) for each in stored],
        strict=True,
    )
    return list(payloads), list(headers), list(content_types)


def _read_alike(stored: Sequence[bytes]) -> Columns | None:
    """Read envelopes that have the same names, and values of the same lengths; None if they haven't. Timers
    with trace contexts are such ones most often, and a pass for all takes half of the time."""
    layout = _layout(stored[0])
    if layout is None:
        return None
    names, fields, body = layout
    try:
        columns = list(zip(*map(fields.unpack_from, stored), strict=True))
        if any(column.count(column[0]) < len(stored) for column in columns[::2]):
            return None
        values = [list(map(bytes.decode, column)) for column in columns[1::2]]
    except (error, UnicodeDecodeError):
        return None
    headers: list[Mapping[str, str]] = []
    content_types = []
    for texts in zip(*values, strict=True):
        each = dict(zip(names, texts, strict=True))
        content_types.append(each.pop(CONTENT_TYPE, ""))
        headers.append(each)
    return [data[body:] for data in stored], headers, content_types


def _layout(data: bytes) -> tuple[list[str], Struct, int] | None:
    """Return the names of an envelope's headers, the fields before its payload, and where that begins; None
    if the envelope isn't one of ours. The fields are in turns what lies before a value, and the value."""
    if not data.startswith(_OURS) or len(data) < BODY:
        return None
    _, _, _, body, count = _PREFIX.unpack_from(data)
    if not count or body > len(data) or _headers_by_bytes(data, BODY, body, count) is None:
        return None
    names, lengths = [], []
    before, at = 0, BODY
    for _ in range(count):
        (length,) = _SHORT.unpack_from(data, at)
        value = at + 2 + length + 2
        names.append(data[at + 2 : value - 2].decode())
        (length,) = _SHORT.unpack_from(data, value - 2)
        lengths += [value - before, length]
        before = at = value + length
    return names, Struct("".join(f"{length}s" for length in lengths)), body


def _read(data: bytes) -> tuple[bytes, dict[str, str], str]:
    if data.startswith(NO_HEADERS):
        return data[BODY:], {}, ""
    if data.startswith(MAGIC):
        try:
            return _read_binary(data)
        except (error, ValueError):
            return data, {}, ""
    if data.startswith(b"{"):
        try:
            return _read_json(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return data, {}, ""
    return data, {}, ""


def _read_binary(data: bytes) -> tuple[bytes, dict[str, str], str]:
    _, version, headers_start, body_start, count = _PREFIX.unpack_from(data)
    if version != 1 or not _HEADERS_START <= headers_start < body_start <= len(data):
        raise ValueError("not an envelope")
    if headers_start != _HEADERS_START:
        (count,) = _SHORT.unpack_from(data, headers_start)
    headers = _headers_by_bytes(data, headers_start + 2, body_start, count)
    if headers is None:
        headers = _headers_by_characters(data[headers_start + 2 : body_start], count) or {}
    return data[body_start:], headers, headers.pop(CONTENT_TYPE, "")


def _headers_by_bytes(data: bytes, at: int, end: int, count: int) -> dict[str, str] | None:
    """None if the lengths do not add up to the `end`. Timers with trace contexts pass here, each of them:
    `Struct` would take twice as long for a length."""
    headers = {}
    try:
        for _ in range(count):
            value = at + 2 + (data[at] << 8 | data[at + 1])
            name = data[at + 2 : value].decode()
            at = value + 2 + (data[value] << 8 | data[value + 1])
            headers[name] = data[value + 2 : at].decode()
    except (IndexError, UnicodeDecodeError):
        return None
    return headers if at == end else None


def _headers_by_characters(block: bytes, count: int) -> dict[str, str] | None:
    """The same, where the lengths count characters of UTF-8."""
    texts, at = [], 0
    try:
        for _ in range(2 * count):
            (length,) = _SHORT.unpack_from(block, at)
            # A character takes at most four bytes; cut ones at the end are left out.
            text = block[at + 2 : at + 2 + 4 * length].decode(errors="ignore")[:length]
            at += 2 + len(text.encode())
            texts.append(text)
    except error:
        return None
    return dict(zip(texts[::2], texts[1::2], strict=True)) if at == len(block) else None


def _read_json(data: bytes) -> tuple[bytes, dict[str, str], str]:
    document = json.loads(data)
    if "b" in document:
        return bytes.fromhex(document["b"]), {}, _clean(document.get("ct") or "")
    headers = {
        _clean(str(key)): _clean(value if isinstance(value, str) else json.dumps(value))
        for key, value in (document.get("headers") or {}).items()
    }
    return document["data"].encode(), headers, headers.pop(CONTENT_TYPE, "")


def _clean(text: str) -> str:
    """Return the text without the lone surrogates that JSON can spell and UTF-8 can't."""
    return text.encode(errors="replace").decode()
