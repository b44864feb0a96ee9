"""The alerts: valid, tested with promtool, each of them with cases and an entry in docs/how-to/runbook.md."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from relay.telemetry.metrics.catalogue import LATENESS
from tests.deploy.queries import ROOT, RULES, rules
from tests.docs import pages
from tests.prometheus import promtool

pytestmark = pytest.mark.checkout

TESTS = RULES.with_name("relay-rules-test.yaml")


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_rules_are_valid() -> None:
    promtool("check", "rules", str(RULES))


@pytest.mark.slow
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
    """It names a page of docs/, and on that page the alert's own section. There is no link, which might lead
    nowhere: the file does not know where the docs are read."""
    page = (ROOT / "docs" / "how-to" / "runbook.md").read_text(encoding="utf-8")
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert "://" not in str(rule["annotations"])
        name, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor == rule["alert"].lower()
        assert anchor in pages.anchors(name)
    headings = [line[4:] for line in page.splitlines() if line.startswith("### Relay")]
    assert headings == [rule["alert"] for rule in alerts()]


def test_the_runbooks_become_links_as_the_page_says(tmp_path: Path) -> None:
    """The command of docs/how-to/runbook.md makes a valid file, in which every alert has a link."""
    (command,) = (block.text for block in pages.run_by(__file__))
    subprocess.run(
        ["sh", "-c", command.replace("> relay-rules.yaml", f"> {tmp_path}/rules.yaml")], cwd=ROOT, check=True
    )
    found = (tmp_path / "rules.yaml").read_text(encoding="utf-8")
    assert found.count("runbook_url: https://wiki.example/relay/how-to/runbook.html#") == len(alerts())
    assert "runbook: " not in found
    promtool("check", "rules", str(tmp_path / "rules.yaml"))


def test_the_objective_is_a_bucket() -> None:
    """A `le` that is no bound of the histogram would find nothing, and never fire."""
    for rule in rules():
        if "lateness_seconds_bucket" in rule["expr"]:
            assert 'le=~"1|1.0"' in rule["expr"]
    assert 1.0 in LATENESS.bounds
