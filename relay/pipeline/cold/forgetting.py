"""Erases what a cold store holds of some timers."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.cold.store import ColdStore


def forget(cold: ColdStore, topic: str, timer_ids: Collection[str] = (), prefix: str = "") -> int:
    """Delete all rows of a topic's timers, named by their ids or by how these begin; return how many.

    Cancel the timers first: a sweep under way may have read their rows, and a cancel reaches it. The cancels
    go as well, but for those that a write under way still has to be compared with; upkeep deletes them later.
    Files of older versions of the table, and with them the content, go by `VACUUM` within 8 days if sweeps
    run. Raises `InvalidField`, and Spark's errors: if a merge of files was quicker, run it again.
    """
    if not timer_ids and not prefix:
        raise InvalidField("timer_id", "is missing; name timers, or how their ids begin")
    oldest = cold.state().oldest
    named = f.col("timer_id").isin(list(timer_ids))
    if prefix:
        named = named | f.col("timer_id").startswith(prefix)
    free = f.col("due_us").isNotNull() | (f.col("version") < oldest)
    return cold.table.delete((f.col("topic") == topic) & named & free)
