"""The DAG of examples/airflow, run for a day by Airflow itself."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.conftest import AIRFLOW
from tests.pipeline.streams import live
from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from tests.servers import RunningServer

pytestmark = [
    pytest.mark.checkout,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not AIRFLOW.exists(), reason="make .venv-airflow/stamp installs Airflow"),
]

TWO_DAYS = """
import json
import pendulum
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
bag = DagBag("examples/airflow", include_examples=False)
assert not bag.import_errors, bag.import_errors
sync_bag_to_db(bag, "dags-folder", None)
dag = bag.dags["reminders"]
told = []
for day in (pendulum.datetime(2026, 1, 30), pendulum.datetime(2026, 1, 31)):
    run = dag.test(logical_date=day)
    (task,) = run.get_task_instances()
    told.append((run.state, task.state, task.xcom_pull(task_ids="load")))
print(json.dumps(told))
"""


def test_a_day_is_loaded_and_an_empty_one_fails(valkey: RunningServer, environ: dict[str, str]) -> None:
    """The summary is in XCom. Of a day without rows nothing is written, and it is not tried again."""
    told = {
        **environ,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "false",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }
    done = subprocess.run(
        [str(AIRFLOW), "-c", TWO_DAYS], cwd=ROOT, env=told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    good, bad = json.loads(done.stdout.splitlines()[-1])
    assert good[:2] == ["success", "success"]
    assert (good[2]["written"], good[2]["run_id"]) == (1, "reminders-2026-01-30")
    assert bad == ["failed", "failed", None]
    assert live(valkey, "reminders") == {"r-1": 3786912000.0}
