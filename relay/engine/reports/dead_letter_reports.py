"""Counts and logs timers that died."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relay.core.outcomes import Reason
from relay.telemetry.metrics.catalogue import DEAD, EXPIRED
from relay.telemetry.metrics.instruments import Instruments

MAX_NAMED = 10
"""The most timers that a log line names; all are counted."""

log = logging.getLogger(__name__)


def report_deaths(topic: str, deaths: Sequence[tuple[str, str]], instruments: Instruments) -> None:
    """Count and log timers that died, given with their reasons: one line for each reason, not for each
    timer."""
    by_reason: dict[str, list[str]] = {}
    for timer_id, reason in deaths:
        by_reason.setdefault(reason, []).append(timer_id)
    for reason, timer_ids in by_reason.items():
        if reason == Reason.EXPIRED.value:
            instruments.count(EXPIRED, topic, n=len(timer_ids))
        else:
            instruments.count(DEAD, topic, reason, n=len(timer_ids))
        log.warning(
            "timers are dead",
            extra={
                "topic": topic,
                "reason": reason,
                "count": len(timer_ids),
                "timer_ids": [ascii(name)[1:-1] for name in timer_ids[:MAX_NAMED]],
            },
        )
