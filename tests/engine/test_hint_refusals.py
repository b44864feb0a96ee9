"""Wake hints that Redis refuses are always counted, and told now and then."""

from __future__ import annotations

import logging

import pytest

from relay.engine.reports.hint_refusals import INTERVAL, HintRefusals
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import FakeClock


async def test_counted_at_once_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """The first line comes at once, also soon after the start; the next has all that came between."""
    counts, clock = Counts(), FakeClock()
    refusals = HintRefusals(counts, clock, "PUBLISH")
    with caplog.at_level(logging.WARNING):
        for wait in (0, 1, INTERVAL - 2, 1, 1):
            await clock.advance(wait)
            refusals("NOPERM")
    said = [(record.__dict__["command"], record.__dict__["count"]) for record in caplog.records]
    assert said == [("PUBLISH", 1), ("PUBLISH", 3)]
    assert "docs/how-to/redis.md" in caplog.records[0].message
    assert counts.total["wake_hints.refused PUBLISH"] == 5
