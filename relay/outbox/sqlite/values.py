"""Instants and lengths as SQLite has them: seconds, an instant's since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = 253_402_214_400
"""9999-12-31, in seconds."""

_SECOND = timedelta(seconds=1)


def instant(value: datetime | None) -> float | None:
    """The seconds of an instant that has a zone."""
    return None if value is None else (value - EPOCH) / _SECOND


def length(value: timedelta | None) -> float | None:
    """The seconds of a length."""
    return None if value is None else value / _SECOND


def to_instant(seconds: float | None) -> datetime | None:
    """The instant, to a microsecond until the year 2242."""
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def to_length(seconds: float | None) -> timedelta | None:
    """The length."""
    return None if seconds is None else timedelta(seconds=seconds)
