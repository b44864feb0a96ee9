"""What the files for Prometheus and Grafana ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "relay-rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "relay-dashboard.json"


def rules() -> list[dict[str, Any]]:
    """Alerts and recorded series."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def rule_queries() -> list[str]:
    return [rule["expr"] for rule in rules()]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels(within: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """All panels, those in rows too."""
    for panel in (within or dashboard())["panels"]:
        if panel["type"] == "row":
            yield from panels({"panels": panel.get("panels", [])})
        else:
            yield panel


def dashboard_queries() -> list[str]:
    """As Prometheus would get them: variables stand for something."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    replaced = {"$__rate_interval": "5m", "$__interval": "1m", "$__range": "1h"}
    for name, value in replaced.items():
        asked = [query.replace(name, value) for query in asked]
    return [re.sub(r"\$\w+", "x", query) for query in asked]


def metrics_in(queries: Iterable[str]) -> set[str]:
    """The names of metrics, without those that the rules record."""
    return {name for query in queries for name in re.findall(r"\b(?:relay|process)_[a-z_]+\b", query)}
