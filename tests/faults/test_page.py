"""docs/reliability.md says what its results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos import __main__ as command
from chaos.report.page import PAGE, RESULTS, line_of, page, zero
from chaos.report.results import read
from chaos.rows import FEW, MANY, ROWS, row

VERDICT = {
    "acknowledged": 30_000,
    "timers": 20_000,
    "changes": 3_000,
    "deliveries": 25_000,
    "lost": 0,
    "lost_explained": 0,
    "early": 0,
    "undone": 0,
    "undone_explained": 0,
    "twice": 7,
    "uncounted": 3,
    "uncounted_explained": 2,
    "overcounted": 1,
    "stretch": 1.25,
    "redelivered": 4,
    "redelivery_first": 2.5,
    "redelivery": 8.25,
    "instants": 500,
    "instants_lost": 0,
    "instants_double": 0,
    "lags": {},
    "errors": {"UNAVAILABLE": 12},
    "examples": ["lost: a"],
}


def result_of(name: str, *, ok: bool = True, **verdict: Any) -> dict[str, Any]:
    part = {"median": 0.5, "most": 1.0}
    return {
        "row": name,
        "seed": 7,
        "ok": ok,
        "faults": {"relay killed": 5},
        "verdict": {**VERDICT, **verdict},
        "second": {"verdict": "proved", "refuted": [], "unsaid": [], "differences": []},
        "asked": {"sync": row(name).sync},
        "topology": row(name).topology,
        "level": row(name).level,
        "machine": {"busy": part, "stolen": part, "waiting": part, "server": "valkey-9.1"},
        "seconds": 120.0,
        "when": "2026-11-25T23:00:00+00:00",
    }


@pytest.mark.checkout
def test_the_page_is_made_from_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read(RESULTS))


def test_a_zero_has_its_bound() -> None:
    assert zero(0, 20_000) == "0 (<0.015 %)"
    assert zero(3, 20_000) == "3"
    assert zero(0, 20_000, 12) == "0 (<0.015 %); 12 explained"


def test_a_row_says_what_was_seen() -> None:
    (line,) = (line for line in page([result_of("relay")]).splitlines() if "30,000" in line)
    zeros = "| 0 (<0.015 %) | 0 (<0.012 %) | 0 (<0.1 %) |"
    assert f"{zeros} 7 | 3; 2 explained | 1 | 1.2 s | 2.5 to 8.2 s | 0, 0 of 500 |" in line


def test_a_row_names_what_its_servers_need() -> None:
    """In the table, and where what was lost is explained."""
    text = page([result_of("power-replicas", lags={"split": 10.0})])
    assert "| master, 2 replicas, 3 Sentinels, `min-replicas-to-write 2` | `replicas:2` |" in text
    assert "3 Sentinels, `replicas:2`, `appendfsync everysec`, `min-replicas-to-write 2`): 0 changes" in text


def test_a_row_that_failed_says_so() -> None:
    failed = result_of("relay", ok=False, lost=1)
    assert "**failed**: relays killed" in page([failed])
    assert "FAILED" in line_of(failed)
    assert "lost: a" in line_of(failed)


def test_what_was_lost_is_explained() -> None:
    text = page([result_of("failover", lost_explained=9, lags={"lag": 0.24, "split": 8.5})])
    assert "9 changes lost; the replica lagged by 0.24 s at most" in text


def test_rows_that_were_not_run_are_named() -> None:
    text = page([result_of(each.name) for each in ROWS[1:]])
    assert text.count("this row was not run") == 1


def test_faults_that_a_row_did_not_have_are_named() -> None:
    """Such as those that were added after it ran."""
    result = result_of("application")
    names = [each.name for each in row("application").faults()]
    assert f"In the row `application`, when it ran last: {', '.join(names)}." in page([result])
    result["faults"] = dict.fromkeys(names, 1)
    assert "when it ran last" not in page([result])


def test_the_table_has_a_bound_on_its_rows() -> None:
    assert len(ROWS) <= 30
    assert len({each.name for each in ROWS}) == len(ROWS)
    assert {each.number for each in ROWS} <= {0, FEW, MANY}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are in the file are not played again; others are, and are appended."""
    file = tmp_path / "faults.jsonl"
    file.write_text(json.dumps(result_of("relay")) + "\n", encoding="utf-8")
    played: list[tuple[str, int]] = []

    def run(each: Any, seed: int, *_: Any, **__: Any) -> dict[str, Any]:
        played.append((each.name, seed))
        return result_of(each.name, ok=each.name != "replica")

    monkeypatch.setattr(command, "run", run)
    rows = ["--row", "relay", "--row", "slots", "--row", "replica"]
    assert command.main(["--resume", str(file), "--seed", "7", *rows]) == 1, "one has failed"
    assert played == [("slots", 7), ("replica", 7)]
    assert [each["row"] for each in read(file)] == ["relay", "slots", "replica"]
    assert command.main(["--resume", str(file), "--row", "slots"]) == 0
    assert len(played) == 2
