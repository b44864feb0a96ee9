"""What a measurement yields."""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, str, str]
"""measure, name, stat"""


@dataclass(frozen=True)
class Row:
    """One figure of one run.

    `measure` is the module's name. `name` says in words what was measured, `stat` which figure of it
    (`p99`, say) where there are several. `value` is None where it could not be measured; `note` says why,
    or under which conditions it was.
    """

    measure: str
    name: str
    value: float | None
    unit: str
    stat: str = ""
    note: str = ""

    @property
    def key(self) -> Key:
        """What the same figure of another run has in common with it."""
        return self.measure, self.name, self.stat


@dataclass(frozen=True)
class Drain:
    """How an application handled timers: seconds from its first handler to its last."""

    timers: int
    seconds: float
    cpu: float
    """Seconds of CPU that the application took for it."""
    lateness: dict[str, float]
    """Milliseconds by quantile, where it was asked for."""

    @property
    def rate(self) -> float:
        """Timers a second."""
        return self.timers / self.seconds
