"""What the judge says of a run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Verdict:
    """The columns of a row. What a loss explains, as the nemesis measured it, is counted apart."""

    acknowledged: int
    """Calls that were answered OK."""
    timers: int
    """Timers with such a call."""
    changes: int
    """Moves and cancels that were answered OK."""
    deliveries: int
    lost: int
    lost_explained: int
    """Timers, and recurrences."""
    early: int
    undone: int
    """Old intents that were delivered after a newer one was acknowledged, what earlier tries of a call did
    after its answer, and what nobody had asked for."""
    undone_explained: int
    twice: int
    uncounted: int
    uncounted_explained: int
    """Attempts whose receipt may have been lost with the relay that held it, or with a server."""
    overcounted: int
    stretch: float
    """The longest time without a delivery (seconds)."""
    redelivered: int
    redelivery_first: float
    """The longest time from a relay's death to the first delivery of what it held (seconds)."""
    redelivery: float
    """The same to the last one. What was in flight comes one by one, see 0003."""
    instants: int
    instants_lost: int
    instants_double: int
    lags: dict[str, float]
    """The longest time (seconds) for which what servers answered was not safe when it was lost, by its
    reason; see `chaos.judging.losses`."""
    errors: dict[str, int]
    by_hand: int = 0
    """Timers that waited for a retry by the clock of before, and were run by hand."""
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> int:
        """How many promises were broken that hold whatever happens."""
        return self.lost + self.early + self.undone + self.instants_lost + self.instants_double
