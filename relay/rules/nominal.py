"""What a rule yields: its nominal instants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from relay.core.recurring.nominal import Nominal

__all__ = ["Instants", "Nominal"]


class Instants(Protocol):
    """The nominal instants of a rule."""

    def after(self, instant: int) -> Iterator[Nominal]:
        """Those later than `instant` (microseconds since 1970), ascending, each computed when it is asked
        for. The iterator ends where the rule does."""
        ...
