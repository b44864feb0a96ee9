"""Keeps a cold store small: rows that are over are deleted after a while, small files are merged, and small
files of writes and plans go that nothing needs any more.

Nothing here is needed for a sweep to be right, and it may be killed anywhere. Sweeps beside it read the
version of the table that their plan names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f

from relay.core.instants import SECOND
from relay.pipeline.cold import staging
from relay.pipeline.cold.intents import committed, is_taken, newest, rank
from relay.pipeline.cold.store import BEGUN, COMMITS, SETTLED, VERSION_BITS, ColdStore, State, name_of
from relay.pipeline.cold.table import FAILURES, FILE_BYTES, NO_TABLE, one_of, raced

KEEP = 7 * 86_400 * SECOND
"""Microseconds for which rows that are over are kept."""

DEAD = 86_400 * SECOND
"""Microseconds after which a write without a manifest is taken for dead, at the earliest."""

DAILY = 86_400.0
"""Seconds between two looks for files that no version needs."""

SHARE = 8
"""Rows that are over are deleted when they are at least this part of all rows, one in eight: to find them
costs a look at all ids."""

SMALL_FILES = 64
"""The number of files beyond those that the table's size asks for, from which on they are merged."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The counts of an upkeep."""

    rows_removed: int = 0
    writes_removed: int = 0
    plans_removed: int = 0
    files_before: int = 0
    files_after: int = 0


def keep_small(cold: ColdStore, now: int, keep: int = KEEP, least: int = SMALL_FILES) -> Kept:
    """Do what is due of all. `now` is by the clock of Redis, in microseconds; rows that are over are kept for
    `keep`."""
    if cold.table.version() == NO_TABLE:
        return Kept()
    removed = retain(cold, now, keep)
    before = after = cold.table.size()[0]
    merged = compact(cold, least)
    if merged is not None:
        before, after = merged
    cold.table.vacuum(DAILY)
    plans = forget_plans(cold)
    return Kept(removed, forget_writes(cold, now, keep), plans, before, after)


def compact(cold: ColdStore, least: int = SMALL_FILES) -> tuple[int, int] | None:
    """Merge the table's files if there are `least` more than its size asks for. Returns how many there were
    and are; None if nothing was done."""
    before, size = cold.table.size()
    if before < least + 2 * size // FILE_BYTES or before < 2 or not cold.table.optimize():
        return None
    return before, cold.table.size()[0]


# ---------------------------------------------------------------------------------------- rows


def retain(cold: ColdStore, now: int, keep: int = KEEP, share: int = SHARE) -> int:
    """Delete rows of timers that are over; return how many.

    A timer's latest row is over if a plan has taken it or if it is a cancel, and it is older than `keep`, and
    than all writes that are not settled. Then its older rows are over, too: it has replaced them. All go in
    one commit, since an older row would come again without the one that has replaced it.
    """
    state = cold.state()
    limit = min((now - keep) << VERSION_BITS, state.oldest)
    rows = cold.table.rows(state.table)
    ended = _ended(state) & (f.col("version") < limit)
    count = rows.where(ended).count()
    if not count or count * share < rows.count():
        return 0
    timers = rows.where(ended).select("topic", "timer_id").distinct()
    theirs = rows.where(committed(state.known)).join(timers, ["topic", "timer_id"], "left_semi")
    theirs = theirs.select("topic", "timer_id", "version", "due_us", ended.alias("ended"))
    same = (f.col("topic") == f.col("of_topic")) & (f.col("timer_id") == f.col("id"))
    ranked = theirs.join(newest(theirs), same)
    over = ranked.where((rank() < f.col("rank")) | f.col("ended"))
    try:
        return cold.table.delete_all(over.select("topic", "timer_id", "version", "due_us"))
    except FAILURES as failure:
        if not raced(failure):
            raise
        return 0  # the next upkeep does it


def _ended(state: State) -> Column:
    """Whether a settled row is a cancel, or was taken."""
    settled = ~f.expr(one_of("version", state.waiting(state.settled)))
    return settled & (f.col("due_us").isNull() | is_taken(state.done.taken, state.known))


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


# --------------------------------------------------------------------------------- small files


def forget_writes(cold: ColdStore, now: int, keep: int = KEEP) -> int:
    """Remove the small files of writes that a finished plan has seen settled, and take old writes without a
    manifest for dead, with their rows; return how many writes that were."""
    manifests = cold.versions(COMMITS)
    state = cold.state()
    limit = (now - max(keep, DEAD)) << VERSION_BITS
    old = sorted(version for version in state.known.uncommitted if version < limit)
    moving = cold.moving() if old else ()
    dead = [version for version in old if version not in moving and cold.void(version)]
    if dead:
        _delete_dead(cold, state.dead.union(dead))
    over = {number: version for version, number in state.done.known.numbers.items()}
    free = [
        version
        for version, write in state.commits.items()
        if write.settled and version <= state.done.known.last
    ]
    for version in (*over.values(), *free):
        cold.files.remove(f"{BEGUN}/{name_of(version)}")  # first of all: see `store`
        cold.files.remove(f"{COMMITS}/{name_of(version)}")
    for version in manifests - state.known.begun:  # an upkeep was killed
        cold.files.remove(f"{COMMITS}/{name_of(version)}")
    for name in cold.files.names(SETTLED):
        if name[:12].isdigit() and int(name[:12]) <= state.done.settled:
            cold.files.remove(f"{SETTLED}/{name}")
    return len(dead) + len(state.known.begun & {*over.values(), *free})


def _delete_dead(cold: ColdStore, versions: Collection[int]) -> None:
    """Delete the rows of all dead writes: what an earlier upkeep did not come to, or a late writer appended,
    goes along."""
    try:
        cold.table.delete(one_of("version", versions))
    except FAILURES as failure:
        if not raced(failure):
            raise


def forget_plans(cold: ColdStore) -> int:
    """Remove plans before the last one that is done, and rows that were staged for any of them. A job that
    still loads these notices it. Returns how many plans that were."""
    plans = cold.plans
    following = plans.following()
    for name in cold.files.names(staging.FOLDER):
        if int(name.partition("-")[0]) < following:
            cold.files.remove(f"{staging.FOLDER}/{name}")
    old = [number for number in plans.numbers() if number < following - 1]
    for number in old:
        plans.remove(number)
    return len(old)
