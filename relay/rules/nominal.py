"""What a rule yields: its nominal instants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol


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


class Instants(Protocol):
    """The nominal instants of a rule."""

    def after(self, instant: int) -> Iterator[Nominal]:
        """Those later than `instant` (microseconds since 1970), ascending, each computed when it is asked
        for. The iterator ends where the rule does."""
        ...
