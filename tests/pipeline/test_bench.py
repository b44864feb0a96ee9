"""The pipeline's bench measures what its targets ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OF_LARGE_TABLES = 4
"""Targets of tables of many millions of rows, which small ones have no figures for."""


@pytest.mark.checkout
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_small_measures_reach_a_figure_for_each_target(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server of their own, which they empty. How large the figures are is the bench's to say."""
    from bench.pipeline import world
    from bench.pipeline.measures import MEASURES
    from bench.pipeline.publish import TARGETS

    monkeypatch.setattr(world, "CALM", 0.0)
    plan = world.Plan(
        timers=3_000, payload=20, beside=0.5, ingested=(2_000,), cold_rows=(3_000,), journal_rows=(3_000,)
    )
    found = {}
    with world.server() as server:
        bench = world.World(plan, spark, server, tmp_path, {})
        for measure in MEASURES.values():
            for row in measure(bench):
                assert row.value or row.stat == "CPU", row
                found[row.measure, row.name, row.stat] = row.value or 0.0
        assert bench.count() == 0
    missing = [target.name for target in TARGETS if target.of(found) is None]
    assert len(missing) == OF_LARGE_TABLES, missing
