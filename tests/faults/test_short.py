"""The table of faults in a short form: whole rows with few timers and few faults, judged as the long ones."""

from __future__ import annotations

import pytest

from chaos.report.page import line_of
from chaos.rows import SHORT, SHORT_RATE, SHORT_TIMERS, row
from chaos.run import run
from tests.chaos import in_long

pytestmark = pytest.mark.slow

SEED = 29


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["relay", *in_long(SHORT.keys() - {"relay"})])
def test_a_row_in_short(name: str) -> None:
    """Nothing is lost, early or undone; the journal agrees; and the row was what it says it is: each kind of
    fault came, timers were moved, cancelled and delivered, recurrences ticked."""
    played = row(name).sized(SHORT_TIMERS, SHORT[name], SHORT_RATE)
    result = run(played, SEED, print)
    assert result["ok"], line_of(result)
    assert result["faults"].keys() == {fault.name for fault in played.faults()}
    verdict = result["verdict"]
    assert verdict["timers"] >= SHORT_TIMERS
    assert verdict["changes"] > 0
    assert verdict["deliveries"] > SHORT_TIMERS / 2
    assert verdict["instants"] > 0
