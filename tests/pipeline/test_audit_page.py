"""The report: figures in a few characters, plots that hold every value, and nothing that could run."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from relay.core.audit import Promise
from relay.pipeline.audit import page as audit_page
from relay.pipeline.audit import plots

BAD = '<script>"x"</script>&'


def page(**rest: Any) -> audit_page.ReportPage:
    promise = {"verdict": "refuted", "refuted": 2, "doubts": {BAD: 1}}
    row = {"topic": BAD, **{str(int(n)): promise for n in Promise}}
    finding = {
        "topic": BAD,
        "promise": 1,
        "reason": "",
        "timer_id": BAD,
        "what": BAD,
        "at": 5,
        "entry": "2-0",
    }
    timer = {"topic": BAD, "timer_id": BAD, "state": "gone", "due": 1, "heard": None, "entry": BAD}
    hour = {"at": 3_600_000_000, "topic": BAD, "p99_us": None, "max_us": 7}
    counted = (
        "accepted",
        "delivered",
        "committed",
        "dead",
        "retries",
        "duplicates",
        "stale",
        "early",
        "breaks",
        "open",
    )
    given: dict[str, Any] = {
        "verdict": "refuted",
        "counts": {"records": 7, "topics": 1, "lost": 1},
        "lateness": {"p50_us": 1500, "p99_us": None},
        "began": 1_767_225_600_000_000,
        "ended": 1_767_229_200_000_000,
        "verdicts": [row],
        "heat": {(490_896, 9): 10, (490_900, -1): 1},
        "backlog": [(1_767_225_600, 3, 1), (1_767_229_200, 0, 0)],
        "topics": [(BAD, [1000, 2000, 3000, 4_000_000], "12 deliveries")],
        "hours": [{**hour, **dict.fromkeys(counted, 1)}],
        "findings": [{**finding, "earlier_entry": "1-0"}],
        "gaps": [{"topic": BAD, "entry": BAD, "missing": 4, "why": BAD}],
        "lost": [timer],
        "oldest": [timer],
        "unknown": [timer],
        "people": [
            {
                **dict.fromkeys(("principal", "method", "topic", "thing", "before", "after", "note"), BAD),
                "time": datetime(2026, 1, 1, tzinfo=UTC),
                "outcome": "OK",
            }
        ],
    }
    return audit_page.ReportPage(**{**given, **rest})


def test_nothing_in_it_runs_or_is_fetched() -> None:
    """Whatever topics and ids are called."""
    made = audit_page.render(page(), 3)
    assert "<script" not in made
    assert made.count("&lt;script&gt;") >= 18
    assert "2026-01-01 00:00:00" in made
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", made)


def test_every_cell_is_in_the_heat_map() -> None:
    """With its hour, its bucket and its count; what came early stands out."""
    drawn = plots.heat_map({(490_896, 9): 10, (490_900, -1): 1}, 3, 3600)
    cells = [(rect.get("class"), rect[0].text) for rect in ET.fromstring(drawn) if rect.tag == "rect"]
    assert cells == [
        ("h8", "2026-01-01 00:00, 1 ms to 2.15 ms late: 10"),
        ("early", "2026-01-01 04:00, before it was due: 1"),
    ]


@pytest.mark.parametrize(
    "drawn",
    [
        plots.heat_map({(5, 60): 1}, 3, 3600),
        plots.areas([(0, 0, 0)], ("open", "overdue")),
        plots.areas([(0, 1, 1), (10**9, 10**9, 5)], ("open", "overdue")),
        plots.ranges([("t", [0, 0, 0, 0], ""), ("u", [-5, 1, 10**13, 10**13], "")]),
    ],
)
def test_odd_values_are_drawn(drawn: str) -> None:
    """One point, none, huge ones, negative ones: all places are numbers."""
    assert ET.fromstring(drawn).tag == "svg"
    assert "nan" not in drawn
    assert "inf" not in drawn


@pytest.mark.parametrize(
    ("micros", "told"),
    [
        (0, "0"), (7, "7 µs"), (1500, "1.5 ms"), (100e6, "100 s"), (600e6, "10 min"), (9000e6, "2.5 h"),
        (-2000, "−2 ms"), (1e13, "116 d"),
    ],
)  # fmt: skip
def test_lengths_in_a_few_characters(micros: float, told: str) -> None:
    """Each in the unit that people would take."""
    assert plots.length(micros) == told


def test_an_empty_audit_has_a_page() -> None:
    """No record, no delivery."""
    names = ("verdicts", "backlog", "topics", "hours", "findings", "gaps", "lost", "oldest")
    empty: dict[str, Any] = {name: [] for name in names}
    made = audit_page.render(page(**empty, unknown=[], heat={}, began=0, ended=0, lateness={}, people=[]), 3)
    assert "Nobody did anything to these topics" in made
    assert "an empty journal" in made
    assert "<svg" not in made
