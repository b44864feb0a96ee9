"""What other people's rules say of what we ship: trivy, hadolint, promtool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.test_render import everything
from tests.kubernetes.tools import CHART, CI, ROOT, names, one, rendered, run, tool
from tests.missing import need

pytestmark = [pytest.mark.checkout, pytest.mark.xdist_group("rendered")]  # one worker renders it all, once

IGNORED = ROOT / "deploy" / ".trivyignore"


def findings(place: Path, *options: str | Path) -> list[str]:
    ran = run(
        *(tool("trivy"), "config", "--quiet", "--skip-check-update", "--format", "json", *options),
        place,
    )
    assert ran.code == 0, ran.err
    results = json.loads(ran.out).get("Results", [])
    assert results, "something was looked at"
    return [
        f"{result['Target']}: {found['ID']} {found['Message']}"
        for result in results
        for found in result.get("Misconfigurations", [])
    ]


@pytest.mark.slow
def test_trivy_finds_nothing(tmp_path: Path) -> None:
    """In all that is rendered and in the Dockerfile; what is ignored is still found without the list."""
    for name, docs in everything("helm4").items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(docs))
    (tmp_path / "Dockerfile").write_bytes((ROOT / "Dockerfile").read_bytes())
    assert findings(tmp_path, "--ignorefile", IGNORED) == []
    lax = tmp_path / "lax"
    lax.mkdir()
    (lax / "Dockerfile").write_text("FROM python:3.12-slim\nUSER root\n")
    assert findings(lax, "--ignorefile", IGNORED) != []


def test_what_is_ignored_has_a_reason() -> None:
    lines = IGNORED.read_text(encoding="utf-8").splitlines()
    rules = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert rules
    assert all(lines[number - 1].startswith("# ") for number in rules)


def test_hadolint_finds_nothing() -> None:
    ran = run(tool("hadolint"), ROOT / "Dockerfile")
    assert (ran.code, ran.out) == (0, "")


def test_the_rules_in_the_chart_are_valid(tmp_path: Path) -> None:
    """As Prometheus reads them, once out of the object that carries them, and their templates unharmed. The
    runbooks are links to where the values say."""
    rule: dict[str, Any] = one(rendered("helm4", CI[names(CI).index("exposed")]), "PrometheusRule")
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    ran = run(need("promtool"), "check", "rules", file)
    assert ran.code == 0, ran.err
    source = (CHART / "files" / "relay-rules.yaml").read_text(encoding="utf-8")
    link = "runbook_url: https://wiki.example/relay/how-to/runbook.html#"
    assert rule["spec"] == yaml.safe_load(source.replace("runbook: docs/how-to/runbook.md#", link))
    assert source.count("runbook: docs/how-to/runbook.md#") == source.count("- alert: ") > 0


def test_no_alert_has_a_link_that_nobody_gave() -> None:
    """Without the value the alerts name the page as the file does."""
    docs = rendered("helm4", {"monitoring": {"prometheusRule": {"enabled": True}}})
    source = (CHART / "files" / "relay-rules.yaml").read_text(encoding="utf-8")
    assert one(docs, "PrometheusRule")["spec"] == yaml.safe_load(source)
    assert "runbook_url" not in str(docs)


def test_the_dashboard_in_the_chart_is_the_file(tmp_path: Path) -> None:
    docs = rendered("helm4", CI[names(CI).index("exposed")])
    text = one(docs, "ConfigMap", "timers-dashboard")["data"]["relay.json"]
    assert json.loads(text) == json.loads(
        (CHART / "files" / "relay-dashboard.json").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("version", ["helm3", "helm4"])
def test_the_package_holds_what_a_release_needs(version: str, tmp_path: Path) -> None:
    """Rules, dashboard and schema are in it, values of tests are not; it renders the same."""
    ran = run(tool(version), "package", CHART, "--destination", tmp_path)
    assert ran.code == 0, ran.err
    (package,) = tmp_path.glob("*.tgz")
    listed = run("tar", "-tzf", package).out.split()
    assert {
        "relay/files/relay-rules.yaml",
        "relay/files/relay-dashboard.json",
        "relay/values.schema.json",
    } <= {*listed}
    assert not [name for name in listed if "/ci/" in name]
    exposed = CI[names(CI).index("exposed")]
    assert rendered(version, exposed, chart=package) == rendered(version, exposed)
