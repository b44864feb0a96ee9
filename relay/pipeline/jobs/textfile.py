"""A job's figures as a file for node_exporter's textfile collector.

By it an alert can tell of a job that nobody watches, such as a nightly sweep that no longer ends well.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from relay.core.errors import InvalidField
from relay.pipeline.jobs.job import Summary

SUCCESS = "relay_pipeline_last_success_timestamp_seconds"


def write(path: Path, job: str, summary: Summary | None, now: float) -> None:
    """Replace the file. A `summary` of None is that of a job that raised; `now` is in unix seconds. Raises
    `InvalidField("metrics", …)` if it can't be written."""
    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, ("job", *labels), registry=registry)

    well = summary is not None and not summary.problems
    ended = "When the job last ended, well or not, in unix seconds."
    gauge("relay_pipeline_last_run_timestamp_seconds", ended).labels(job).set(now)
    gauge("relay_pipeline_ok", "1 if the last run ended well, else 0.").labels(job).set(well)
    success = now if well else _last_success(path, job)
    if success is not None:
        gauge(SUCCESS, "When the job last ended well, in unix seconds.").labels(job).set(success)
    if summary is not None:
        gauge("relay_pipeline_seconds", "How long the last run took.").labels(job).set(summary.seconds)
        problems = "What went wrong in the last run, such as a topic that could not be swept."
        gauge("relay_pipeline_problems", problems).labels(job).set(len(summary.problems))
        phases = gauge("relay_pipeline_phase_seconds", "How long each phase of the last run took.", "phase")
        for phase, seconds in summary.phases.items():
            phases.labels(job, phase).set(seconds)
        counts = gauge(
            "relay_pipeline_count", "The counts of the last run, by name as in its summary.", "name"
        )
        for name, count in summary.counts.items():
            counts.labels(job, name).set(count)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(path), registry)  # aside, then renamed
    except OSError as failure:
        raise InvalidField("metrics", f"can't be written to {path}: {failure.strerror}") from None


def _last_success(path: Path, job: str) -> float | None:
    """What the file of the run before says; None if it says nothing."""
    with suppress(OSError, ValueError):
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
            for sample in family.samples:
                if sample.name == SUCCESS and sample.labels.get("job") == job:
                    return float(sample.value)
    return None
