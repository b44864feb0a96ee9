"""An asset of Dagster: the reminders of a day, loaded from that day's file.

`REMINDERS` is the folder of the files, `RELAY_REDIS__URL` is Relay's own variable.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
PASSING = 4
"""The exit code of a Redis that can't be reached."""


def relay_pipeline(
    arguments: Sequence[str], variables: Mapping[str, str], expect: Sequence[str] = ()
) -> dict[str, Any]:
    """Run `relay pipeline` and return its summary. Its errors go to Dagster's log, as the process' own.

    Raises `dagster.Failure` if the command fails. Only where another try may help are retries allowed.
    """
    options = [word for each in expect for word in ("--expect", each)]
    command = ["relay", "pipeline", "--vars", json.dumps(variables), *options, *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    summary: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    if done.returncode:
        raise dg.Failure(
            f"relay pipeline {arguments[0]} ended with {done.returncode}",
            metadata=metadata(summary),
            allow_retries=done.returncode == PASSING,
        )
    return summary


def metadata(summary: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Return the figures of a summary, and its texts."""
    return {
        name: value
        for name, value in summary.items()
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    }


@dg.asset(partitions_def=DAYS, retry_policy=dg.RetryPolicy(max_retries=3, delay=60))
def reminders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Timers of the topic `reminders`. A day that is materialized again inserts nothing twice."""
    folder = os.environ["REMINDERS"]
    summary = relay_pipeline(
        [
            *("schedule", f"{folder}/{{{{ day }}}}.csv", "--topic", "reminders"),
            *("--run-id", "reminders-{{ day }}", "--rejects", f"{folder}/rejects"),
            *("--max-rejects", "1%", "--min-rows", "1"),
        ],
        {"day": context.partition_key},
    )
    return dg.MaterializeResult(metadata=metadata(summary))


defs = dg.Definitions(assets=[reminders])
