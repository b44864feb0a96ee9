"""What alerts: those rules of deploy/prometheus/relay-rules.yaml for which this relay's own numbers do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relay.console.trends import Trend
from relay.core.timers import TopicStats
from relay.telemetry.metrics.gauges import RelayState


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule, by the name that it has there, what it says, and the seconds for which it must hold.
    `grave` is the severity `critical`."""

    name: str
    said: str
    lasts: float = 0.0
    grave: bool = False


OVERDUE, FORGOTTEN_PAUSE, STALLED, BURNS, STEPPED = 60.0, 3600.0, 30.0, 14.4 * 0.01, 1.0
"""The bounds: seconds for which a timer is due, and in a topic that is paused; since a loop has turned; the
share of late first deliveries; seconds by which the clock of Redis has stepped."""

DEAD_WITHIN = 900.0
"""Seconds within which dead letters must not become more."""

RULES = {
    rule.name: rule
    for rule in (
        AlertRule("RelayTimersOverdue", "timers are due, and nobody takes them", 120, grave=True),
        AlertRule("RelayPauseForgotten", "it is paused, and timers have waited for an hour", 120),
        AlertRule("RelayLatenessBurnsFast", "too many of this relay's timers are late", 120, grave=True),
        AlertRule("RelayDeadLettersGrowing", "timers die"),
        AlertRule("RelayLoopStalled", "a loop of this relay does not turn", 30, grave=True),
        AlertRule("RelayRedisUnreachable", "Redis does not answer this relay", 30, grave=True),
        AlertRule("RelayServerClockStepped", "the clock of Redis has stepped"),
    )
}


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """A rule that has held for long enough. `about` is a topic, or a place of Redis where `is_topic` is not
    so, or empty. `since` is in seconds since 1970."""

    rule: AlertRule
    about: str
    is_topic: bool
    since: float


class Alerts:
    """Remembers since when each rule holds. The rules are looked at with each sample."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._since: dict[tuple[str, str, bool], float] = {}

    def look(self, state: RelayState, stats: Sequence[TopicStats], trends: Mapping[str, Trend]) -> None:
        """Look at all rules."""
        now = self._now()
        held = [*_of_relay(state), *_of_topics(stats, trends)]
        self._since = {each: self._since.get(each, now) for each in held}

    def firing(self) -> list[FiringAlert]:
        """Those that alert, the gravest first, then the oldest."""
        now = self._now()
        found = [
            FiringAlert(RULES[name], about, is_topic, since)
            for (name, about, is_topic), since in self._since.items()
            if now - since >= RULES[name].lasts
        ]
        return sorted(found, key=lambda each: (not each.rule.grave, each.since, each.about))


def _of_relay(state: RelayState) -> Iterator[tuple[str, str, bool]]:
    if max(state.heartbeats.values(), default=0.0) > STALLED:
        yield "RelayLoopStalled", "", False
    for place, there in state.connected.items():
        if not there:
            yield "RelayRedisUnreachable", place, False
    for place, step in state.clock_steps.items():
        if abs(step) >= STEPPED:
            yield "RelayServerClockStepped", place, False


def _of_topics(stats: Sequence[TopicStats], trends: Mapping[str, Trend]) -> Iterator[tuple[str, str, bool]]:
    for each in stats:
        late = 0.0 if each.first is None else (each.now - each.first) / 1e6
        if each.paused_until is None and late > OVERDUE:
            yield "RelayTimersOverdue", each.topic, True
        if each.paused_until is not None and late > FORGOTTEN_PAUSE:
            yield "RelayPauseForgotten", each.topic, True
        if (trend := trends.get(each.topic)) is None:
            continue
        if trend.grown(DEAD_WITHIN) > 0:
            yield "RelayDeadLettersGrowing", each.topic, True
        if trend.misses(3600) > BURNS and trend.misses(300) > BURNS:
            yield "RelayLatenessBurnsFast", each.topic, True
