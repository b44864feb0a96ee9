"""Each day's file of reminders becomes timers, and a second task reads what the load says of itself."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task
from relay_operator import RelayPipelineOperator

RELAY = os.environ.get("RELAY_COMMAND", "relay")
EXPORTS = os.environ.get("EXPORTS", "/exports")
RETRY_SECONDS = float(os.environ.get("RETRY_SECONDS", "300"))

with DAG(
    dag_id="reminders",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=RETRY_SECONDS)},
) as dag:
    load = RelayPipelineOperator(
        task_id="load",
        relay=RELAY,
        job=[
            "schedule",
            f"{EXPORTS}/{{{{ ds }}}}.csv",
            *("--topic", "reminders"),
            *("--rejects", f"{EXPORTS}/rejects"),
            *("--run-id", "reminders-{{ ds }}"),
        ],
        expect=["rejected<=1"],
    )

    @task
    def report(summary: dict[str, Any]) -> str:
        """Say it in a sentence."""
        refused = {field: count for field, count in summary["rejected_by"].items() if count}
        return f"{summary['written']} reminders are scheduled; rejected: {refused or 'none'}"

    report(load.output)
