"""The asset of examples/dagster, materialized by Dagster itself."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.conftest import ORCHESTRATORS
from tests.pipeline.streams import live
from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from tests.servers import RunningServer

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(600)]

TWO_DAYS = """
import json
import dagster as dg
from examples.dagster.reminders import reminders
told = []
for day in ("2026-01-30", "2026-01-31"):
    done = dg.materialize([reminders], partition_key=day, raise_on_error=False)
    shown = [
        {name: value.value for name, value in each.metadata.items()}
        for event in done.get_asset_materialization_events()
        for each in [event.event_specific_data.materialization]
    ]
    failed = [event.event_specific_data.error_display_string for event in done.get_step_failure_events()]
    told.append((done.success, shown, failed))
print(json.dumps(told))
"""


def test_a_day_is_materialized_and_an_empty_one_is_not(
    valkey: RunningServer, environ: dict[str, str]
) -> None:
    """Its figures are the metadata. Of a day without rows nothing is written, and it is not tried again."""
    done = subprocess.run(
        [str(ORCHESTRATORS), "-c", TWO_DAYS],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (good, shown, _), (bad, nothing, failed) = json.loads(done.stdout.splitlines()[-1])
    assert (good, bad, nothing) == (True, False, [])
    assert (shown[0]["written"], shown[0]["run_id"]) == (1, "reminders-2026-01-30")
    assert "relay pipeline schedule ended with 5" in failed[0]
    assert live(valkey, "reminders") == {"r-1": 3786912000.0}
