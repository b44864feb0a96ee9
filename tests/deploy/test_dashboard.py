"""The dashboard: whole, readable by Prometheus, and about what a relay has."""

from __future__ import annotations

import pytest
import yaml

from relay.outbox.mover import MoverCounts
from relay.outbox.running import OutboxMetrics
from relay.outbox.status import OutboxStatus
from relay.telemetry.metrics.catalogue import ALL
from tests.deploy.queries import dashboard, dashboard_queries, metrics_in, panels, rule_queries
from tests.prometheus import promtool
from tests.telemetry.test_metrics import exposed_names

pytestmark = pytest.mark.checkout


def test_panels_are_whole() -> None:
    """Each has a title, a description, a unit and a place of its own, and asks the chosen data source."""
    places = set()
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
    assert len(places) == len(list(panels()))
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_queries_are_promql(tmp_path: object) -> None:
    """promtool reads them as rules."""
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(dashboard_queries())]
    text = yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    path = f"{tmp_path}/dashboard.yaml"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    promtool("check", "rules", path)


def test_every_metric_exists_and_every_one_of_topics_is_shown() -> None:
    """What is asked for is in the catalogue; a heat map shows lateness, by its buckets."""
    asked = metrics_in([*dashboard_queries(), *rule_queries()])
    of_movers = {each.name for each in OutboxMetrics(MoverCounts(), OutboxStatus(0, 0, 0, 0.0)).collect()}
    assert asked <= of_movers | {name for spec in ALL for name in exposed_names(spec)}
    heat = [panel for panel in panels() if panel["type"] == "heatmap"]
    assert ["relay_lateness_seconds_bucket" in panel["targets"][0]["expr"] for panel in heat] == [True]
