"""Each day's file of reminders becomes timers: an asset, whose thresholds are a check."""

import json
import os
import subprocess
from typing import Any

import dagster as dg

RELAY = os.environ.get("RELAY_COMMAND", "relay")
EXPORTS = os.environ.get("EXPORTS", "/exports")
RETRY_SECONDS = float(os.environ.get("RETRY_SECONDS", "300"))

EXPECTED = ("rejected<=1",)
UNMET = 6
NEVER_AGAIN = (2, 5)
"""Wrong input, and too many rejects: the same command ends the same way."""


def relay_pipeline(*job: str, expect: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a job of `relay pipeline` to its end, and return its summary, also if a figure is not as expected.

    Any other end is a `Failure`, which the asset's policy retries unless `NEVER_AGAIN` has it.
    """
    expected = [word for each in expect for word in ("--expect", each)]
    command = [RELAY, "pipeline", *expected, *job, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, UNMET):
        said = done.stderr.rstrip().rpartition("\n")[2]
        again = done.returncode not in NEVER_AGAIN
        raise dg.Failure(f"{job[0]} exited with {done.returncode}: {said}", allow_retries=again)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-01-01"),
    check_specs=[dg.AssetCheckSpec("as_expected", asset="reminders", blocking=True)],
    retry_policy=dg.RetryPolicy(max_retries=2, delay=RETRY_SECONDS),
)
def reminders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """The timers of one day's file. What the load did stands, whether the check holds or not."""
    day = context.partition_key
    summary = relay_pipeline(
        "schedule",
        f"{EXPORTS}/{day}.csv",
        *("--topic", "reminders"),
        *("--rejects", f"{EXPORTS}/rejects"),
        *("--run-id", f"reminders-{day}"),
        expect=EXPECTED,
    )
    refused = {f"rejected for {field}": count for field, count in summary["rejected_by"].items() if count}
    return dg.MaterializeResult(
        metadata={
            "dagster/partition_row_count": summary["written"],
            "accepted": summary["written"],
            "rejected": summary["rejected"],
            **refused,
            "inserted before": summary["skipped_by_ledger"],
            "seconds": summary["seconds"],
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="as_expected",
                passed=not summary["problems"],
                metadata={"problems": summary["problems"]},
            )
        ],
    )


defs = dg.Definitions(assets=[reminders])
