"""Materializes the example's asset in this process: for each day and Redis.

python in_dagster.py DAY=REDIS …    with the Python of .venv-orchestrators
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import dagster as dg
from reminders import defs, reminders


def told(day: str) -> dict[str, Any]:
    """How it ended, the metadata, the check, and how often it was tried."""
    result = dg.materialize([reminders], partition_key=day, raise_on_error=False)
    made = [event.materialization for event in result.get_asset_materialization_events()]
    checks = result.get_asset_check_evaluations()
    tries = [each for each in result.all_events if each.event_type_value in ("STEP_START", "STEP_RESTARTED")]
    failures = [event.step_failure_data for event in result.get_step_failure_events()]
    return {
        "success": result.success,
        "metadata": [{name: each.value for name, each in one.metadata.items()} for one in made],
        "checks": [{"passed": one.passed, "problems": one.metadata["problems"].value} for one in checks],
        "tries": len(tries),
        "failed": [each.user_failure_data.description for each in failures if each.user_failure_data],
    }


assert defs.resolve_all_asset_specs()
for each in sys.argv[1:]:
    day, _, os.environ["RELAY_REDIS__URL"] = each.partition("=")
    print("RUN", json.dumps({day: told(day)}), flush=True)
