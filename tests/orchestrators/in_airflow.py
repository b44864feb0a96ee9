"""Runs the example's DAG in this process, by Airflow's own `dag.test()`: a run for each day and Redis.

python in_airflow.py DAY=REDIS …    with the Python of .venv-orchestrators
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.xcom import XComModel
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from airflow.utils.db import initdb
from airflow.utils.session import create_session

FOLDER = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])


def told(run: Any) -> dict[str, Any]:
    """The state of each task, how often it was tried, and what it left for others."""
    found = {}
    with create_session() as session:
        for task in run.get_task_instances(session=session):
            asked = session.query(XComModel).filter_by(run_id=run.run_id, task_id=task.task_id)
            left = {each.key: XComModel.deserialize_value(each) for each in asked}
            found[task.task_id] = {"state": task.state, "tries": task.try_number, "left": left}
    return {"state": run.state, "tasks": found}


def endless(folder: Path) -> Any:
    """An operator whose job says that it runs, and does not end by itself."""
    from relay_operator import RelayPipelineOperator

    command = folder / "endless"
    command.write_text("#!/bin/sh\necho it runs\nexec sleep 600\n")
    command.chmod(0o755)
    return RelayPipelineOperator(task_id="endless", job=["sweep"], relay=str(command))


def killed(folder: Path) -> list[int]:
    """The exit code of a job that its task has ended."""
    operator = endless(folder)
    begun = threading.Event()
    codes: list[int] = []
    operator.log.info = lambda *_: begun.set()
    thread = threading.Thread(target=lambda: codes.append(operator.run_job()[0]))
    thread.start()
    assert begun.wait(60)
    operator.on_kill()
    thread.join(60)
    return codes


def timed_out(folder: Path) -> int:
    """The exit code of a job whose task takes longer than `execution_timeout`, by Airflow's own alarm."""
    operator = endless(folder)
    operator.log.info = lambda *_: signal.setitimer(signal.ITIMER_REAL, 0.1)  # it runs: soon enough
    try:
        with timeout(600):
            operator.run_job()
    except AirflowTaskTimeout:
        return int(operator._process.returncode)
    raise AssertionError("it ended by itself")


def main() -> None:
    initdb()
    bag = BundleDagBag(dag_folder=FOLDER, bundle_path=FOLDER, bundle_name="dags-folder")
    assert not bag.import_errors, bag.import_errors
    dag = bag.dags["reminders"]
    for each in sys.argv[1:]:
        day, _, redis = each.partition("=")
        os.environ["RELAY_REDIS__URL"] = redis
        run = dag.test(logical_date=datetime.fromisoformat(f"{day}T00:00:00+00:00"))
        print("RUN", json.dumps({day: told(run)}), flush=True)
    home = Path(os.environ["AIRFLOW_HOME"])
    print("RUN", json.dumps({"killed": killed(home), "timed out": timed_out(home)}), flush=True)


main()
