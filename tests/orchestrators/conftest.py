"""These run in .venv-pipeline, which has `relay pipeline`; what they test has venvs of its own."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import pytest

from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RunningServer

SPARK = ROOT / ".venv-pipeline" / "bin"
ORCHESTRATORS = ROOT / ".venv-orchestrators" / "bin" / "python"
AIRFLOW = ROOT / ".venv-airflow" / "bin" / "python"

if importlib.util.find_spec("pyspark") is None or not ORCHESTRATORS.exists():
    collect_ignore_glob = ["test_*.py"]  # `make test-orchestrators` runs them


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reminders of two days, one of which are none."""
    (tmp_path / "2026-01-30.csv").write_text("timer_id,due_time\nr-1,2090-01-01T00:00:00Z\n")
    (tmp_path / "2026-01-31.csv").write_text("timer_id,due_time\nr-2,soon\n")
    return tmp_path


@pytest.fixture
def environ(valkey: RunningServer, folder: Path) -> dict[str, str]:
    """That of a scheduler's worker: `relay` is on its path, and has a Python of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {
        **kept,
        "PATH": f"{SPARK}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RELAY_REDIS__URL": valkey.url,
        "REMINDERS": str(folder),
        "DAGSTER_HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
    }
