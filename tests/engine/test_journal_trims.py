"""What journals drop is always counted, and told once a minute."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relay.engine.reports.journal_trims import INTERVAL, JournalTrims
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import FakeClock


async def test_counted_at_once_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """The first line comes at once; the next has all that came between, of its topic."""
    counts, clock = Counts(), FakeClock()
    trims = JournalTrims(counts, clock)
    said: list[Any] = []
    with caplog.at_level(logging.WARNING):
        for wait, topic, count in ((0, "a", 1), (0, "a", 2), (0, "b", 4), (INTERVAL, "a", 8), (1, "a", 16)):
            await clock.advance(wait)
            trims(topic, count)
    for record in caplog.records:
        assert "journal_max_length" in record.message
        said.append((record.__dict__["topic"], record.__dict__["count"]))
    assert said == [("a", 1), ("b", 4), ("a", 10)]
    assert counts.total["journal.trimmed"] == 31
