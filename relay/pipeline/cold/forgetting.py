"""Erases what a cold store holds of some timers."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from relay.pipeline.cold.store import ColdStore


def forget(cold: ColdStore, timers: Column, *, dry_run: bool = False) -> int:
    """Delete all rows of timers, named by a condition over `topic` and `timer_id`; return how many. A dry run
    only counts them.

    Cancel the timers first: a sweep under way may have read their rows, and a cancel reaches it. The cancels
    go as well, but for those that a write under way still has to be compared with; upkeep deletes them later.
    Files of older versions of the table, and with them the content, go by `VACUUM` within 8 days if sweeps
    run. Raises Spark's errors: if a merge of files was quicker, run it again.
    """
    oldest = cold.state().oldest
    free = f.col("due_us").isNotNull() | (f.col("version") < oldest)
    if dry_run:
        return cold.table.rows().where(timers & free).count()
    return cold.table.delete(timers & free)
