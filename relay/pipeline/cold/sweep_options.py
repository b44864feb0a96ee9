"""How to sweep, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from relay.core.instants import SECOND
from relay.store.bulk.store import BATCH

LOCK = 15 * SECOND
"""Microseconds for which a driver owns a topic's marks; it renews them three times in that time."""

MARKS_TTL = 86_400
"""Seconds after which the marks of a sweep that nobody has run again are removed."""

SILENT = 900 * SECOND
"""The shortest time in microseconds after its beginning for which an unsettled write is left to its
writer."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How to sweep. Times are in microseconds. A `horizon` of None means everything. `wait` is the number of
    seconds to wait for other sweeps' marks. `take_over` gives up a plan of another store that nobody has
    finished."""

    horizon: int | None
    batch: int = BATCH
    rate: float | None = None
    wait: float = 20.0
    lock: int = LOCK
    marks_ttl: int = MARKS_TTL
    silent: int = SILENT
    take_over: bool = False  # see 0060


@dataclass(frozen=True, slots=True)
class Swept:
    """The counts of a sweep's rows."""

    planned: int = 0
    staged: int = 0
    loaded: int = 0
    live: int = 0
    marked: int = 0
    batches: int = 0
    again: int = 0
    abandoned: int = 0
    """The topics of plans whose marks, or whose staged rows, were gone."""
    finished: int = 0
    """The writes that their writers had left unfinished."""

    def plus(self, other: Swept) -> Swept:
        """Add two counts."""
        mine, theirs = asdict(self), asdict(other)
        return Swept(**{name: mine[name] + theirs[name] for name in mine})
