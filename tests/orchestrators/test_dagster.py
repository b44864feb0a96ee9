"""The asset of examples/dagster, in Dagster, with real jobs of `relay pipeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.world import ABSENT, BAD, DOWN, GOOD, run
from tests.pipeline.streams import live

if TYPE_CHECKING:
    from pathlib import Path

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.chaos
def test_an_asset_has_each_days_timers(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """Accepted and rejected rows are its metadata, by field. A threshold that is not met fails its check."""
    keyspace.allow("*reminders*")
    days = run("in_dagster.py", tmp_path, valkey.url, (GOOD, BAD))

    (metadata,) = days[GOOD]["metadata"]
    assert metadata.pop("seconds") > 0
    assert metadata == {
        "dagster/partition_row_count": 2,
        "accepted": 2,
        "rejected": 1,
        "rejected for due_time": 1,
        "inserted before": 0,
    }
    assert (days[GOOD]["success"], days[GOOD]["checks"]) == (True, [{"passed": True, "problems": []}])

    (check,) = days[BAD]["checks"]
    assert check == {"passed": False, "problems": ["expected rejected<=1, and rejected is 2"]}
    assert days[BAD]["metadata"][0]["accepted"] == 1, "what was done stands"
    assert live(valkey, "reminders").keys() == {"a", "b"}


@pytest.mark.chaos
def test_what_is_retried(valkey: RunningServer, tmp_path: Path) -> None:
    """What the same command would meet again is not, and a Redis that is away is."""
    days = run("in_dagster.py", tmp_path, valkey.url, (DOWN, ABSENT))
    assert (days[DOWN]["tries"], days[DOWN]["metadata"], days[DOWN]["checks"]) == (3, [], [])
    assert days[ABSENT]["tries"] == 1
    assert "schedule exited with 2: relay: source: " in days[ABSENT]["failed"][0]
