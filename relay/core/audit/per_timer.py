"""Applies the rules to timers that are judged one by one: all records of one, then all of the next.

The caller gives what a replay of a whole journal knows about other timers: the number of gaps before a
record, and whether its claim's nonce was used in an earlier entry. Several workers can judge one journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from relay.core.audit.hand_overs import HandOverRules
from relay.core.audit.report import Example, Findings, Promise
from relay.core.audit.state import Living
from relay.core.journal import JournalRecord, RecordKind

Finding = tuple[Promise, str, Example | None]
"""The promise, the reason for a doubt (empty: it is refuted), and an example."""

ELSEWHERE = "-"
"""Stands for the entry of a nonce that another entry has used. It is not an id."""


@dataclass(slots=True)
class StretchTally:
    """The counts of one period."""

    counts: Counter[str] = field(default_factory=Counter)
    checked: Counter[Promise] = field(default_factory=Counter)
    kinds: Counter[RecordKind] = field(default_factory=Counter)


class Told(Findings):
    """Passes each finding on."""

    def __init__(self, tell: Callable[[Finding], None]) -> None:
        super().__init__(0)
        self._tell = tell

    def refute(self, promise: Promise, example: Example) -> None:
        self._tell((promise, "", example))

    def doubt(self, promise: Promise, reason: str, example: Example | None = None, count: int = 1) -> None:
        self._tell((promise, reason, example))


class Apart(HandOverRules):  # see 0056
    """Judges one timer after the other: `other` begins a timer, `see` takes its records in order, `remains`
    returns it if it lives.

    Findings go to `tell`, first deliveries (due time and claim in microseconds) to `late`. `count` sets where
    the next records are counted.
    """

    def __init__(
        self, tell: Callable[[Finding], None], late: Callable[[int, int], None], *, exclusive: bool
    ) -> None:
        super().__init__(Told(tell), exclusive)
        self._late = late
        self._used = False
        self.tally = StretchTally()

    def count(self, tally: StretchTally) -> None:
        """Count what follows here."""
        self.tally = tally
        self.counts, self.findings.checked = tally.counts, tally.checked

    def other(self) -> None:
        """Begin another timer."""
        self.places.clear()
        self.ended.clear()

    def see(self, entry: str, now: int, epoch: int, used: bool, record: JournalRecord) -> None:
        """Take the timer's next record. `epoch` is the number of gaps before it in its partition's journal;
        `used` means that an earlier entry has its nonce."""
        self.begin(entry, now)
        self.place.epoch, self._used = epoch, used
        self.tally.kinds[record.kind] += 1
        self.take(record)

    def remains(self) -> Living | None:
        """Return the timer if it has not ended, from a partition in which it lives, or on its way."""
        return next((timer for _, timer, _, _ in self.remaining()), None)

    def used_before(self, nonce: bytes) -> str | None:
        return ELSEWHERE if self._used else None

    def first_delivery(self, due: int, since: int) -> None:
        self._late(due, since)
