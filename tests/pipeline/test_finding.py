"""A row is found by its timer's id: the other row groups are not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from relay.pipeline.cold import table, upkeep
from tests.chaos import in_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.pipeline.cold_world import ColdWorld

pytestmark = pytest.mark.slow

TIMERS = 1200
SCATTERED = f"(id * 7919 % {TIMERS} + 7200) * 1000000"
"""Due times whose order says nothing of the ids."""


@pytest.mark.parametrize("old", [False, *in_long([True])])
def test_a_look_up_reads_the_row_groups_that_may_have_the_id(
    world: ColdWorld, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """As the rows were written, merged, and after a deletion. In a table of Relay's now a user may merge; one
    from before there were filters gets them by what Relay writes."""
    if old:
        with monkeypatch.context() as before:
            before.setattr(table, "FILES", {})
            world.cold.table._create()
    monkeypatch.setitem(table.FILES, "parquet.block.size", "8192")
    world.write_many(TIMERS, SCATTERED)
    assert_found(world, TIMERS)

    world.write([("one", 0)])
    if old:
        assert upkeep.compact(world.cold, 2) == (2, 1)
    else:
        world.spark.sql(f"optimize delta.`{world.cold.table.path}`")
    assert_found(world, TIMERS + 1)

    if old:
        world.cold.table.delete("timer_id = 'one'")
        assert_found(world, TIMERS)


def assert_found(world: ColdWorld, rows: int) -> None:
    """There is one file, each row group has a filter, and most are passed over by it."""
    read = DeltaTable(str(world.path / "timers"))
    (place,) = read.file_uris()
    groups = [*row_groups(place)]
    assert sum(size for size, _ in groups) == rows
    assert all(length for _, length in groups)
    assert len(groups) > 4

    named = f"topic = '{world.topic}' and timer_id = 't77'"
    found = world.cold.table.rows().where(named)
    assert [row.timer_id for row in found.collect()] == ["t77"]
    assert 0 < read_by_spark(found) < rows / 2
    assert 0 < read_by_rust(read, named) < len(groups) / 2


def row_groups(place: str) -> Iterator[tuple[int, int | None]]:
    """The rows of each in a file, and the bytes of its filter of ids."""
    about = pq.read_metadata(place)
    for n in range(about.num_row_groups):
        group = about.row_group(n)
        columns = {group.column(c).path_in_schema: group.column(c) for c in range(group.num_columns)}
        yield group.num_rows, columns["timer_id"].bloom_filter_length


def read_by_spark(found: Any) -> int:
    """How many rows Spark's scan has handed on."""
    plan = found._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    return int(plan.collectLeaves().head().metrics().apply("numOutputRows").value())


def read_by_rust(read: DeltaTable, condition: str) -> int:
    """How many row groups are left by their filters, in Rust's reader."""
    query = QueryBuilder().register("cold", read)
    told = pa.table(query.execute(f"explain analyze select * from cold where {condition}"))
    plan = str(told["plan"].to_pylist())
    (left,) = re.findall(r"row_groups_pruned_bloom_filter=\d+ total → (\d+) matched", plan)
    return int(left)
