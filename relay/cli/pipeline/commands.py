"""`relay pipeline …`, with the commands of all jobs: each job's file adds its own to `group`."""

from __future__ import annotations

from relay.cli.pipeline import audit, jars, journal, lakes, schedule, snapshot, sweep, views
from relay.cli.pipeline.shared import PIPELINE, group

__all__ = ["PIPELINE", "audit", "group", "jars", "journal", "lakes", "schedule", "snapshot", "sweep", "views"]
