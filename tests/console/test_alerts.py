"""What alerts on the overview: the rules that deploy/ ships, on a relay's own numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from relay.console import alerts
from relay.console.alerts import RULES, Alerts
from relay.console.trends import EVERY, SERIES, Trend
from relay.core.instants import SECOND
from relay.core.timers import TopicStats
from relay.telemetry.metrics.gauges import RelayState
from tests.deploy.queries import RULES as SHIPPED

NOW = 1_800_000_000 * SECOND


def stats(*, late: float | None = None, paused: bool = False) -> TopicStats:
    first = None if late is None else NOW - round(late * SECOND)
    return TopicStats("orders", NOW, 9, 0, first, 0, None, NOW + 1 if paused else None)


def trend(*rows: tuple[float, float, float]) -> dict[str, Trend]:
    """Samples of dead letters, first deliveries, and late ones."""
    made = Trend()
    for dead, delivered, late in rows:
        made.add((0.0, 0.0, 0.0, dead, *(0.0 for _ in SERIES[3:]), delivered, late))
    return {"orders": made}


HOUR = round(3600 / EVERY)

HOLDING: dict[str, tuple[RelayState, list[TopicStats], dict[str, Trend]]] = {
    "RelayTimersOverdue": (RelayState(), [stats(late=61)], {}),
    "RelayPauseForgotten": (RelayState(), [stats(late=3601, paused=True)], {}),
    "RelayLatenessBurnsFast": (RelayState(), [stats()], trend(*[(0, 100, 15)] * HOUR)),
    "RelayDeadLettersGrowing": (RelayState(), [stats()], trend((4, 0, 0), (5, 0, 0))),
    "RelayLoopStalled": (RelayState(heartbeats={"lease_keeper": 31.0}), [], {}),
    "RelayRedisUnreachable": (RelayState(connected={"a:1": True, "b:2": False}), [], {}),
    "RelayServerClockStepped": (RelayState(clock_steps={"": -1.0}), [], {}),
}

QUIET = [
    (RelayState(heartbeats={"lease_keeper": 29.0}, clock_steps={"": 0.9}), [stats(late=59)], {}),
    (RelayState(), [stats(late=3599, paused=True)], trend((5, 0, 0), (4, 0, 0))),
    (RelayState(), [stats(late=-5)], trend(*[(0, 100, 15)] * (HOUR - 20), *[(0, 100, 14)] * 20)),
    (RelayState(), [stats()], trend((4, 0, 0), *[(5, 0, 0)] * (round(alerts.DEAD_WITHIN / EVERY) + 1))),
]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_alerts_when_it_has_held_for_long_enough(name: str) -> None:
    now = 1_000.0
    looked = Alerts(lambda: now)
    looked.look(*HOLDING[name])
    lasts = RULES[name].lasts
    assert [each.rule.name for each in looked.firing()] == ([] if lasts else [name])
    now += lasts
    looked.look(*HOLDING[name])
    assert [(each.rule.name, each.since) for each in looked.firing()] == [(name, 1_000.0)]
    looked.look(RelayState(), [], {})
    looked.look(*HOLDING[name])  # it begins again
    assert [each.rule.name for each in looked.firing()] == ([] if lasts else [name])


@pytest.mark.parametrize("seen", QUIET)
def test_what_is_within_its_bounds_is_quiet(
    seen: tuple[RelayState, list[TopicStats], dict[str, Trend]],
) -> None:
    now = 0.0
    looked = Alerts(lambda: now)
    looked.look(*seen)
    now = 1e6
    looked.look(*seen)
    assert looked.firing() == []


def test_the_rules_are_those_that_are_shipped() -> None:
    """The same names, severities, bounds and waits."""
    groups = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["groups"]
    shipped: dict[str, Any] = {
        rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule
    }
    bounds = {
        "RelayTimersOverdue": f"> {alerts.OVERDUE:.0f} unless",
        "RelayPauseForgotten": f"> {alerts.FORGOTTEN_PAUSE:.0f} and",
        "RelayLatenessBurnsFast": "ratio_rate1h > 14.4 * 0.01 and relay:lateness_misses:ratio_rate5m > ",
        "RelayDeadLettersGrowing": f"relay_topic_dead[{alerts.DEAD_WITHIN / 60:.0f}m])) > 0",
        "RelayLoopStalled": f"> {alerts.STALLED:.0f}",
        "RelayRedisUnreachable": "== 0",
        "RelayServerClockStepped": f">= {alerts.STEPPED:.0f}",
    }
    for name, rule in RULES.items():
        assert bounds[name] in " ".join(shipped[name]["expr"].split()), name
        number, unit = re.fullmatch(r"(\d+)([sm])", shipped[name].get("for", "0s")).groups()  # type: ignore[union-attr]
        assert rule.lasts == int(number) * {"s": 1, "m": 60}[unit], name
        assert rule.grave == (shipped[name]["labels"]["severity"] == "critical"), name
    assert alerts.BURNS == 14.4 * 0.01
