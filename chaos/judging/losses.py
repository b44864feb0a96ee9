"""What servers have lost by what was done to them, as the nemesis measured it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from chaos.ledger import Entry

LATE_ANSWER = 2.0
"""Seconds after a loss in which a caller may still hear the answer of before."""

READ = 0.1
"""Seconds by which the moment of a claim may be off, which a server's clock tells."""


@dataclass(frozen=True)
class Loss:
    """What was answered after `safe` and until `at` may be gone (monotonic seconds)."""

    safe: float
    at: float
    why: str
    """`lag` of a replica, `split` (a replaced master kept answering until it learned of that), or what the
    nemesis said."""
    lag: float
    """Seconds for which what servers answered for was not safe."""


class Losses:
    """All of a run."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.all = [
            Loss(entry["safe"], entry["at"], entry["why"], entry["lag"])
            for entry in entries
            if entry["kind"] == "loss"
        ]

    def explain(self, answered: float, seen: float = math.inf) -> bool:
        """Whether what was answered at the first moment may be gone at the second: a server has it until the
        loss, and one of two masters may never have had it."""
        return any(
            each.safe <= answered <= each.at + LATE_ANSWER
            and (each.why == "split" or each.at <= seen + LATE_ANSWER)
            for each in self.all
        )

    def between(self, earlier: float, later: float, within: float = READ) -> bool:
        """Whether what servers did at the first moment, or up to `within` seconds after it, was not known to
        be safe, and may have been undone by the second; or one of both was at a replaced master."""
        return any(
            each.safe <= earlier <= each.at or each.safe <= later <= each.at
            if each.why == "split"
            else each.safe <= earlier + within and earlier <= each.at <= later
            for each in self.all
        )

    @property
    def lags(self) -> dict[str, float]:
        """The longest lag (seconds) of each kind."""
        found: dict[str, float] = {}
        for each in self.all:
            found[each.why] = max(found.get(each.why, 0.0), round(each.lag, 3))
        return found
