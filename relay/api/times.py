"""Instants and lengths of time, between protobuf messages and whole microseconds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.core.errors import InvalidField
from relay.core.instants import SECOND


def timestamp(instant: int) -> Timestamp:
    """Turn microseconds since 1970 into a Timestamp."""
    seconds, rest = divmod(instant, SECOND)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def instant(field: str, message: Timestamp) -> int:
    """Turn a Timestamp into microseconds since 1970, rounded up. Raises `InvalidField`."""
    nanos = message.nanos
    if not 0 <= nanos < 1_000_000_000:
        raise InvalidField(field, "has nanos outside 0 to 999,999,999")
    return message.seconds * SECOND + -(-nanos // 1000)


def length(field: str, message: Duration) -> int:
    """Turn a Duration into microseconds, rounded up. Raises `InvalidField` if it is negative."""
    seconds, nanos = message.seconds, message.nanos
    if seconds < 0 or nanos < 0:
        raise InvalidField(field, "is negative; give 0 or more")
    if nanos >= 1_000_000_000:
        raise InvalidField(field, "has nanos above 999,999,999")
    return seconds * SECOND + -(-nanos // 1000)
