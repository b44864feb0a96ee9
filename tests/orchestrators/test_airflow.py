"""The operator of examples/airflow, in Airflow: a DAG's runs, with real jobs of `relay pipeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.world import ABSENT, BAD, DOWN, GOOD, run
from tests.pipeline.streams import live

if TYPE_CHECKING:
    from pathlib import Path

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = [pytest.mark.checkout, pytest.mark.chaos, pytest.mark.timeout(1800)]


def test_a_dag_loads_each_days_file(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """Figures go on to the next task. A job ends with its task."""
    keyspace.allow("*reminders*")
    days = run("in_airflow.py", tmp_path, valkey.url, (GOOD, BAD))

    assert days[GOOD]["state"] == "success"
    load, report = days[GOOD]["tasks"]["load"], days[GOOD]["tasks"]["report"]
    assert (load["state"], load["tries"]) == ("success", 1)
    assert load["left"]["return_value"] == load["left"]["summary"]
    assert (load["left"]["summary"]["written"], load["left"]["summary"]["rejected"]) == (2, 1)
    said = "2 reminders are scheduled; rejected: {'due_time': 1}"
    assert report["left"]["return_value"] == said

    load = days[BAD]["tasks"]["load"]
    assert (days[BAD]["state"], load["state"], load["tries"]) == ("failed", "failed", 1)
    assert load["left"]["summary"]["problems"] == ["expected rejected<=1, and rejected is 2"]
    assert live(valkey, "reminders").keys() == {"a", "b"}
    assert (days["killed"], days["timed out"]) == ([-15], -15)


def test_what_is_retried(valkey: RunningServer, tmp_path: Path) -> None:
    """What the same command would meet again is not, and a Redis that is away is."""
    days = run("in_airflow.py", tmp_path, valkey.url, (DOWN, ABSENT))
    retried, absent = days[DOWN]["tasks"]["load"], days[ABSENT]["tasks"]["load"]
    assert (retried["state"], retried["tries"], retried["left"]) == ("failed", 3, {})
    assert (absent["state"], absent["tries"]) == ("failed", 1)
