"""Thresholds of an audit: what it counts can fail a run, by `--expect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.jobs.job import Summary
from tests.audit.forge import Forge
from tests.pipeline.journals import count, put

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


def expecting(*expected: str, audit: tuple[str, ...]) -> tuple[int, dict[str, Any], str]:
    """Exit code, summary, and what was said."""
    asked = [word for each in expected for word in ("--expect", each)]
    ran = CliRunner().invoke(app, ["pipeline", *asked, "audit", *audit, "--json"])
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return ran.exit_code, json.loads(lines[-1]) if lines else {}, ran.output


def journal() -> Forge:
    """Ten timers: nine are done at once; one comes 2 s late, lapses, and comes again."""
    forge = Forge()
    for n in range(10):
        forge.scheduled(f"t{n}", 60.0)
    forge.wait(60)
    for n in range(1, 10):
        forge.claimed(f"t{n}", n, 60.0).acked(f"t{n}", n)
    forge.wait(2).claimed("t0", 10, 60.0).received("t0", 10)
    return forge.wait(31).claimed("t0", 11, 60.0, 1, 2, first=10).received("t0", 11)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_what_an_audit_counts_can_fail_a_run(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One audit with all of its thresholds: those that hold are not told of."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)
    topic, forge = keyspace.topic(), journal()
    put(valkey, topic, forge.batches)
    lake = str(tmp_path / "lake")
    stored = CliRunner().invoke(app, ["pipeline", "journal", "--lake", lake, "--topic", topic])
    assert stored.exit_code == 0, stored.output
    hold = {
        "topics": 1,
        "records": count(forge.batches),
        "missing": 0,
        "accepted": 10,
        "delivered": 11,
        "committed": 9,
        "duplicates": 1,
        "retries": 0,
        "lapsed": 1,
        "dead": 0,
        "cancelled": 0,
        "expired": 0,
        "stale": 0,
        "early": 0,
        "breaks": 0,
        "open": 1,
        "overdue": 1,
        "lost": 0,
        "lateness.lateness_count": 10,
        "lateness.max_us": 2_000_000,
    }
    unmet = ("duplicates<=0", "overdue=0", "lateness.p99_us<1000000")
    met = [f"{name}={number}" for name, number in hold.items()]
    code, told, said = expecting(
        *met, *unmet, audit=("--lake", lake, "--out", str(tmp_path / "out"), "--exclusive")
    )
    assert told["problems"] == [
        "expected duplicates<=0, and duplicates is 1",
        "expected overdue=0, and overdue is 1",
        "expected lateness.p99_us<1000000, and lateness.p99_us is 2,000,000",
    ], said
    assert (told["verdict"], code) == ("can't be said", 2), "it lives, and nobody was asked"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdict", "late", "wanted"),
    [
        ("proved", 3, 6),
        ("proved", None, 0),
        ("refuted", 3, 1),
        ("can't be said", None, 2),
    ],
)
def test_a_verdict_counts_before_a_threshold(
    verdict: str, late: int | None, wanted: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where nothing was delivered, nothing was late."""
    facts = {"verdict": verdict, "lateness": {"p99_us": late}}
    monkeypatch.setattr(audit_job, "run", lambda *_: Summary("audit", facts=facts))
    assert expecting("lateness.p99_us<=2", audit=("--lake", "x", "--out", "y"))[0] == wanted
