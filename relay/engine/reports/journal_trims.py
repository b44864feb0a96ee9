"""Counts and logs that journals have dropped their oldest records."""

from __future__ import annotations

import logging

from relay.engine.clock import Clock
from relay.engine.reports.throttled_log import ThrottledLog
from relay.telemetry.metrics.catalogue import JOURNAL_TRIMMED
from relay.telemetry.metrics.instruments import Instruments

INTERVAL = 60.0
"""Seconds between two log lines for a topic; a journal at its limit is trimmed by every call."""

log = logging.getLogger(__name__)


class JournalTrims:
    """Counts every trim, and logs trims for each topic at an interval."""

    def __init__(self, instruments: Instruments, clock: Clock) -> None:
        self._instruments = instruments
        self._throttled = ThrottledLog(clock, INTERVAL)

    def __call__(self, topic: str, count: int) -> None:
        """Note that `count` records were dropped."""
        self._instruments.count(JOURNAL_TRIMMED, topic, n=count)
        if dropped := self._throttled.add(topic, count):
            log.warning(
                "the journal has dropped its oldest records, as journal_max_length asks",
                extra={"topic": topic, "count": dropped},
            )
