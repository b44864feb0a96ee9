"""Keeps a storm of errors from filling the log: lines that one place writes too often are only counted."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

SELDOM_HEARD = ("opentelemetry.", "urllib3.", "uvicorn.error", "relay.rpc.unreadable", "relay.web.connection")
"""Loggers whose lines somebody else causes: exporters complain at each try while their collector is away, and
listeners complain about whatever a stranger sends."""

BURST, EVERY = 10, 1.0
"""The lines that one place may write at once, and the seconds after which it may write one more."""

SELDOM = 60.0
"""Seconds between two lines of a place in `SELDOM_HEARD`, which may write one line at once."""

MOST_PLACES = 1_000
"""The number of places that are remembered. The one that was silent for longest is forgotten, unless it owes
a count."""

Place = tuple[str, str, int, str]


@dataclass(slots=True)
class _Said:
    """What a place may still write: `credit` lines as of `at` (unix seconds). `left_out` lines were left
    out."""

    credit: float
    at: float
    left_out: int = 0


class LogLimits(logging.Filter):
    """A filter that leaves out lines. The first line after that says how many were left out, as `suppressed`.

    A place is the statement that logs. Lines below INFO were asked for, and are never left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[Place, _Said] = {}
        self._lock = threading.Lock()
        self.suppressed = 0
        """The number of lines that were left out in all."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno < logging.INFO:
            return True
        burst, every = (1, SELDOM) if record.name.startswith(SELDOM_HEARD) else (BURST, EVERY)
        with self._lock:
            said = self._at(record, burst)
            since = max(record.created - said.at, 0.0)
            said.credit, said.at = min(said.credit + since / every, burst), record.created
            if said.credit < 1.0:
                said.left_out += 1
                self.suppressed += 1
                return False
            said.credit -= 1.0
            if said.left_out:
                record.suppressed = said.left_out
                said.left_out = 0
            return True

    def _at(self, record: logging.LogRecord, burst: int) -> _Said:
        # Records without a line number, of a C extension for instance, are distinguished by their words.
        words = "" if record.lineno else str(record.msg)
        place = record.name, record.pathname, record.lineno, words
        said = self._places.pop(place, None) or _Said(burst, record.created)
        self._places[place] = said  # it moves to the end: the places are in the order of their last line
        if len(self._places) > MOST_PLACES:
            quiet = next((each for each, other in self._places.items() if not other.left_out), place)
            del self._places[quiet]
        return said


def suppressed() -> int:
    """Return how many lines the log has left out since it was set up."""
    filters = (each for handler in logging.getLogger().handlers for each in handler.filters)
    return sum(each.suppressed for each in filters if isinstance(each, LogLimits))
