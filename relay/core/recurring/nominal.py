"""Nominal instants: what a rule yields, and how they are written."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from relay.core.recurring.rule import EPOCH


class Nominal(NamedTuple):
    """An instant at which a rule fires, or says why it does not."""

    instant: int
    """Microseconds since 1970, UTC."""
    offset: int
    """Seconds by which the local time is ahead of UTC at this instant."""
    left_out: str = ""
    """Why it does not fire: `gap`, `calendar`; empty where it fires."""
    shifted: int = 0
    """Seconds by which it fires later than the rule says, since its zone leaves that time out."""


def write_instant(instant: int) -> str:
    """Write microseconds since 1970 as `2026-11-24T08:00:00Z`, with `.ffffff` unless they are whole
    seconds."""
    return f"{(EPOCH + timedelta(microseconds=instant)).isoformat()}Z"
