"""Counts and logs wake hints that Redis refuses."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from relay.engine.clock import Clock
from relay.engine.reports.throttled_log import ThrottledLog
from relay.telemetry.metrics.catalogue import UNHEARD
from relay.telemetry.metrics.instruments import Instruments

INTERVAL = 3600.0
"""Seconds between two log lines for a command: a server that refuses one hint refuses them all."""

Command: TypeAlias = Literal["PUBLISH", "SUBSCRIBE"]

log = logging.getLogger(__name__)


class HintRefusals:
    """Counts every refusal of a command, and logs the first one, and then one each interval."""

    def __init__(self, instruments: Instruments, clock: Clock, command: Command) -> None:
        self._instruments = instruments
        self._throttled = ThrottledLog(clock, INTERVAL)
        self._command = command

    def __call__(self, reason: str) -> None:
        """Note a refusal."""
        self._instruments.count(UNHEARD, self._command)
        if refused := self._throttled.add(self._command):
            log.warning(
                "Redis refuses wake hints: a timer that is scheduled through another relay may be late by up "
                "to max_polling_interval; permit the command on the channels that docs/how-to/redis.md "
                "names, or lower max_polling_interval",
                extra={"command": self._command, "reason": reason, "count": refused},
            )
