"""The alerts: valid, tested with promtool, each of them with cases and an entry in docs/operations.md."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from relay.telemetry.catalogue import LATENESS
from tests.deploy.queries import ROOT, RULES, rules
from tests.prometheus import promtool

pytestmark = pytest.mark.checkout

TESTS = RULES.with_name("relay-rules-test.yaml")


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_rules_are_valid() -> None:
    promtool("check", "rules", str(RULES))


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", str(TESTS))


def test_each_alert_fires_in_a_case_and_does_not_in_another() -> None:
    cases = [
        (case["alertname"], bool(case.get("exp_alerts")))
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    for rule in alerts():
        assert {fires for name, fires in cases if name == rule["alert"]} == {True, False}, rule["alert"]


def test_each_alert_has_a_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{anchor}"
        assert f"### {rule['alert']}\n" in page
    headings = [line[4:] for line in page.splitlines() if line.startswith("### Relay")]
    assert headings == [rule["alert"] for rule in alerts()]


def test_the_objective_is_a_bucket() -> None:
    """A `le` that is no bound of the histogram would find nothing, and never fire."""
    for rule in rules():
        if "lateness_seconds_bucket" in rule["expr"]:
            assert 'le=~"1|1.0"' in rule["expr"]
    assert 1.0 in LATENESS.bounds
