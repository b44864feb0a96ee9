"""Checks of what a caller passes in, made before any call.

They cover what is plainly wrong whatever the relay's settings are: types, empty names, naive
datetimes. Limits that are settings (the size of a payload) are left to the relay. Every check
raises `InvalidArgument` with the field name that the relay would use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.client.errors import InvalidArgument

Seconds: TypeAlias = float | timedelta
"""A span of time: a number of seconds, or a `timedelta`."""

MAX_NOTE_BYTES = 1_024
MAX_NAME_BYTES = 256
MAX_HEADER_BYTES = 64 * 1024
MAX_OUTSTANDING = 100_000
_MAX_SECONDS = 315_576_000_000  # what a protobuf Duration holds: 10,000 years
_MAX_TIME = timedelta(seconds=_MAX_SECONDS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RESOLVED = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):")
"""The schemes that gRPC itself can resolve."""
_OCCURRENCE = re.compile(r"[0-9a-f]{32}")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")


def check_target(value: str) -> str:
    """Require what gRPC can dial: `host:port`, `unix:/path`, or a name for one of its resolvers.

    Raises `InvalidArgument`, whose message does not repeat the value: a URL of Redis may hold a password.
    """
    wanted = "give the relay's gRPC address as host:port or unix:/path, such as 127.0.0.1:7451"
    if not isinstance(value, str):
        raise InvalidArgument(f"target must be a str, not {_kind(value)}; {wanted}", field="target")
    if _RESOLVED.match(value):
        return value
    scheme, is_url, _ = value.partition("://")
    if is_url:
        raise InvalidArgument(f"target must not begin with {scheme}://; {wanted}", field="target")
    host, _, port = value.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise InvalidArgument(f"target has no port from 1 to 65535; {wanted}", field="target")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidArgument(f"target has an IPv6 address without [brackets]; {wanted}", field="target")
    return value


def check_name(value: str, field: str) -> None:
    """Require a topic or timer_id: 1 to 256 bytes of UTF-8 without control characters or braces."""
    size = check_text(value, field)
    if size == 0:
        raise InvalidArgument(f"{field} must not be empty", field=field)
    if size > MAX_NAME_BYTES:
        raise InvalidArgument(f"{field} has {size} bytes; at most {MAX_NAME_BYTES} are allowed", field=field)
    if _FORBIDDEN.search(value):
        raise InvalidArgument(f"{field} must not contain control characters or braces", field=field)


def check_occurrence_id(value: str, timer_id: str) -> None:
    """Require the timer_id, a slash, and 32 hexadecimal digits. Raises `InvalidArgument`."""
    check_text(value, "occurrence_id")
    before, _, digits = value.rpartition("/")
    if before != timer_id or not _OCCURRENCE.fullmatch(digits):
        wanted = "the timer_id, a slash, and 32 lower-case hexadecimal digits, as uuid.uuid4().hex has them"
        raise InvalidArgument(f"occurrence_id must be {wanted}", field="occurrence_id")


def check_text(value: str, field: str) -> int:
    """Require a str that can be encoded; return its length in bytes of UTF-8. Raises `InvalidArgument`."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{field} must be a str, not {_kind(value)}", field=field)
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{field} must be encodable as UTF-8", field=field) from None


def check_note(value: str) -> str:
    """Require at most 1,024 bytes of text. Raises `InvalidArgument`."""
    if (size := check_text(value, "note")) > MAX_NOTE_BYTES:
        raise InvalidArgument(f"note has {size} bytes; at most {MAX_NOTE_BYTES:,} are allowed", field="note")
    return value


def check_payload(value: bytes | bytearray | memoryview) -> bytes:
    """Require bytes. Raises `InvalidArgument` for a str: whoever reads the payload must know how it was
    encoded."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"payload must be bytes, not {_kind(value)}; encode it first, as with text.encode()",
        field="payload",
    )


def check_headers(value: Mapping[str, str]) -> dict[str, str]:
    """Require names and values of type str, at most 64 KiB together. Raises `InvalidArgument`."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"headers must be a mapping, not {_kind(value)}", field="headers")
    size = 0
    for name, text in value.items():
        size += check_text(name, "headers") + check_text(text, "headers")
    if size > MAX_HEADER_BYTES:
        raise InvalidArgument(
            f"headers have {size} bytes; at most {MAX_HEADER_BYTES} are allowed", field="headers"
        )
    return dict(value)


def check_count(value: object, field: str, low: int, high: int) -> None:
    """Require a whole number from `low` to `high`. Raises `InvalidArgument`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{field} must be a whole number from {low:,} to {high:,}", field=field)


def to_timeout(value: float) -> float:
    """Require more than 0 seconds. Raises `InvalidArgument`."""
    if not value > 0:
        raise InvalidArgument("timeout must be more than 0 seconds", field="timeout")
    return value


def to_micros(value: Seconds, field: str) -> int:
    """Turn seconds or a `timedelta`, 0 or more, into microseconds, rounded up. Raises `InvalidArgument`."""
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidArgument(f"{field} must not be negative", field=field)
        if value > _MAX_TIME:
            raise InvalidArgument(f"{field} must not be longer than 10,000 years", field=field)
        return value // _MICROSECOND
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{field} must be seconds or a timedelta, not {_kind(value)}", field=field)
    if not math.isfinite(value) or not 0 <= value <= _MAX_SECONDS:
        raise InvalidArgument(f"{field} must be a finite number of seconds and not negative", field=field)
    whole = int(value)
    # Rounded up, so that the sum is never shorter than what was asked for.
    return whole * 1_000_000 - (-math.ceil((value - whole) * 1e9) // 1_000)


def to_instant(value: datetime, field: str) -> int:
    """Turn an aware datetime from 1970 on into microseconds since then. Raises `InvalidArgument`."""
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{field} must be a datetime, not {_kind(value)}", field=field)
    if value.utcoffset() is None:
        raise InvalidArgument(
            f"{field} is a naive datetime; give it a time zone, as with datetime.now(UTC)",
            field=field,
        )
    since = value - _EPOCH
    if since < timedelta(0):
        raise InvalidArgument(f"{field} must not be before 1970", field=field)
    return since // _MICROSECOND


def to_duration(value: Seconds, field: str) -> Duration:
    """Turn seconds or a `timedelta` into a Duration; see `to_micros`. Raises `InvalidArgument`."""
    return duration(to_micros(value, field))


def to_timestamp(value: datetime, field: str) -> Timestamp:
    """Turn an aware datetime into a Timestamp; see `to_instant`. Raises `InvalidArgument`."""
    return timestamp(to_instant(value, field))


def duration(micros: int) -> Duration:
    """Turn microseconds into a Duration."""
    seconds, rest = divmod(micros, 1_000_000)
    return Duration(seconds=seconds, nanos=rest * 1_000)


def timestamp(micros: int) -> Timestamp:
    """Turn microseconds since 1970 into a Timestamp."""
    seconds, rest = divmod(micros, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000)


def to_datetime(value: Timestamp | int) -> datetime:
    """Turn a Timestamp, whose nanoseconds are cut off, or microseconds since 1970 into an aware datetime in
    UTC."""
    if isinstance(value, int):
        return from_micros(value)
    return from_micros(value.seconds * 1_000_000 + value.nanos // 1_000)


def from_micros(value: int) -> datetime:
    """Turn microseconds since 1970 into an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=value)


def _kind(value: object) -> str:
    return type(value).__name__
