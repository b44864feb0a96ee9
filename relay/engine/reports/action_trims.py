"""Counts and logs that the action log has dropped its oldest entries."""

from __future__ import annotations

import logging

from relay.engine.clock import Clock
from relay.engine.reports.throttled_log import ThrottledLog
from relay.telemetry.metrics.catalogue import ACTIONS_TRIMMED
from relay.telemetry.metrics.instruments import Instruments

INTERVAL = 60.0
"""Seconds between two log lines; a record at its limit is trimmed by every call."""

log = logging.getLogger(__name__)


class ActionTrims:
    """Counts every trim, and logs trims at an interval."""

    def __init__(self, instruments: Instruments, clock: Clock) -> None:
        self._instruments = instruments
        self._throttled = ThrottledLog(clock, INTERVAL)

    def __call__(self, count: int) -> None:
        """Note that `count` entries were dropped."""
        self._instruments.count(ACTIONS_TRIMMED, n=count)
        if dropped := self._throttled.add("", count):
            log.warning(
                "the action log has dropped its oldest entries, as action_log_max_length asks",
                extra={"count": dropped},
            )
