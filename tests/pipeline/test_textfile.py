"""`relay pipeline --metrics FILE`: what a job did, as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.errors import InvalidField
from relay.pipeline.jobs import textfile
from relay.pipeline.jobs.job import Summary

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


def figures(path: Path) -> dict[str, float]:
    """Each sample by its name and the labels beside the job."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            (job,) = [value for label, value in sample.labels.items() if label == "job"]
            others = [value for label, value in sample.labels.items() if label != "job"]
            found[":".join([job, sample.name.removeprefix("relay_pipeline_"), *others])] = sample.value
    return found


def test_a_load_leaves_its_figures(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Rows by kind, and the seconds of each phase, which are those of the whole."""
    topic, rows, metrics = keyspace.topic(), tmp_path / "rows.csv", tmp_path / "made" / "load.prom"
    rows.write_text("timer_id,due_time\na,2099-01-01T00:00:00Z\nb,soon\n")
    asked = ["schedule", str(rows), "--topic", topic, "--rejects", str(tmp_path / "rejects")]
    done = CliRunner().invoke(
        app, ["pipeline", "--metrics", str(metrics), *asked], env={"RELAY_REDIS__URL": valkey.url}
    )
    assert done.exit_code == 0, done.output

    found = figures(metrics)
    assert found["schedule:ok"] == 1
    assert found["schedule:count:rejected"] == 1
    assert found["schedule:phase_seconds:loading"] > 0
    phases = sum(value for name, value in found.items() if ":phase_seconds:" in name)
    assert phases <= found["schedule:seconds"]
    assert found["schedule:last_success_timestamp_seconds"] == found["schedule:last_run_timestamp_seconds"]


def test_a_job_that_fails_says_when_it_last_ended_well(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """So that an alert can count from there."""
    metrics = tmp_path / "load.prom"
    textfile.write(metrics, "schedule", Summary("schedule"), 1000.0)
    asked = ["schedule", str(tmp_path / "nothing.csv"), "--topic", keyspace.topic()]
    done = CliRunner().invoke(
        app, ["pipeline", "--metrics", str(metrics), *asked], env={"RELAY_REDIS__URL": valkey.url}
    )
    assert done.exit_code == 2

    found = figures(metrics)
    assert found["schedule:ok"] == 0
    assert found["schedule:last_success_timestamp_seconds"] == 1000.0
    assert found["schedule:last_run_timestamp_seconds"] > 1000.0


def test_problems_are_no_success(tmp_path: Path) -> None:
    metrics = tmp_path / "sweep.prom"
    textfile.write(metrics, "sweep", Summary("sweep", problems=["a topic was not swept"]), 1000.0)

    found = figures(metrics)
    assert (found["sweep:ok"], found["sweep:problems"]) == (0, 1)
    assert "sweep:last_success_timestamp_seconds" not in found


def test_a_file_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="can't be written to") as told:
        textfile.write(tmp_path, "sweep", Summary("sweep"), 1000.0)
    assert told.value.field == "metrics"
