"""Keeps a storm of errors from filling the log: what one place says too often is counted instead."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

SELDOM_HEARD = ("opentelemetry.", "urllib3.", "uvicorn.error", "relay.rpc.unreadable", "relay.web.connection")
"""Loggers whose lines somebody else causes: exporters complain at each try while their collector is away,
and the listeners of whatever a stranger sends."""

BURST, EVERY = 10, 1.0
"""One place may write so many lines at once, and one more with each so many seconds."""

SELDOM = 60.0
"""Seconds between two lines of a place in `SELDOM_HEARD`; it may write one line at once."""

MOST_PLACES = 1_000
"""So many places are remembered; the one that was silent for longest is forgotten, unless it owes a count."""

Place = tuple[str, str, int, str]


@dataclass(slots=True)
class _Said:
    """What a place may still say: `credit` lines as of `at` (unix seconds); `left_out` it has not said."""

    credit: float
    at: float
    left_out: int = 0


class LogLimits(logging.Filter):
    """The first line after some that were left out says how many, as `suppressed`.

    A place is the statement that logs. What is below INFO was asked for, and is never left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[Place, _Said] = {}
        self._lock = threading.Lock()
        self.suppressed = 0
        """How many lines were left out in all."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
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
        # Records without a line, of a C extension for instance, are told apart by their words.
        words = "" if record.lineno else str(record.msg)
        place = record.name, record.pathname, record.lineno, words
        said = self._places.pop(place, None) or _Said(burst, record.created)
        self._places[place] = said  # the last one now: the order is that of speaking
        if len(self._places) > MOST_PLACES:
            quiet = next((each for each, other in self._places.items() if not other.left_out), place)
            del self._places[quiet]
        return said


def suppressed() -> int:
    """How many lines the log has left out since it was set up."""
    filters = (each for handler in logging.getLogger().handlers for each in handler.filters)
    return sum(each.suppressed for each in filters if isinstance(each, LogLimits))
