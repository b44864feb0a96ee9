"""The rule about recurrences: their ticks go through each nominal instant once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relay.core.instants import LATEST, SECOND
from relay.core.journal import JournalRecord


@dataclass(slots=True)
class Chain:
    """The ticks and changes of one recurrence, each from its next nominal instant before to the one after.

    They come in the order of the entries of each partition, and a recurrence may go from one partition to
    another. So it is only counted how often each instant was come to, and left: of an unbroken chain each was
    left as often as it was come to, but for the last one.
    """

    entry: str = ""
    now: int = 0
    _begun: int = 0
    """How often it was put where there was none, or it had ended."""
    _ended: int = 0
    _least: int = LATEST
    """The first instant that was come to."""
    _open: Counter[int] = field(default_factory=Counter)
    """How often each instant was come to, less how often it was left."""

    def add(self, record: JournalRecord) -> None:
        """Take a tick or a change."""
        if record.previous_due == record.due:
            return
        if record.previous_due:
            self._step(record.previous_due, -1)
        else:
            self._begun += 1
        if record.due:
            self._step(record.due, 1)
            self._least = min(self._least, record.due)
        else:
            self._ended += 1

    def _step(self, instant: int, by: int) -> None:
        self._open[instant] += by
        if not self._open[instant]:
            del self._open[instant]

    def faults(self) -> Iterator[str]:
        """Yield what is wrong: instants that were gone through twice, or by nothing."""
        left = sorted(instant for instant, count in self._open.items() for _ in range(-count))
        if self._is_older(left):
            left = left[1:]
        for instant in left:
            yield f"was ticked twice from {instant / SECOND:.6f} on, or came from there without a tick"
        come_to = sum(count for count in self._open.values() if count > 0)
        if come_to > 1 and not left:
            yield f"stands at {come_to} instants at once: a tick between them is missing, or came twice"

    def _is_older(self, left: Sequence[int]) -> bool:
        """Whether it was put before the journal begins: it ended more often than it began; or as often,
        and it left an instant first that nobody has come to."""
        if self._begun != self._ended:
            return self._begun < self._ended
        return not self._begun or (bool(left) and left[0] < self._least)
