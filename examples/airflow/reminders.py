"""A DAG of Airflow: each day its reminders are loaded, from that day's file.

`REMINDERS` is the folder of the files, `RELAY_REDIS__URL` is Relay's own variable.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pendulum
from airflow.sdk import DAG

from examples.airflow.relay_operator import RelayPipelineOperator

FOLDER = os.environ.get("REMINDERS", "/data/reminders")

with DAG(
    "reminders", schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=pendulum.UTC), catchup=False
) as dag:
    RelayPipelineOperator(
        task_id="load",
        arguments=[
            *("schedule", f"{FOLDER}/{{{{ day }}}}.csv", "--topic", "reminders"),
            *("--run-id", "reminders-{{ day }}", "--rejects", f"{FOLDER}/rejects"),
            *("--max-rejects", "1%", "--min-rows", "1"),
        ],
        variables={"day": "{{ data_interval_start | ds }}"},
        retries=3,
        retry_delay=timedelta(minutes=1),
    )
