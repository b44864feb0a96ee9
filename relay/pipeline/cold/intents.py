"""The rows of a cold store that count: those that rest, and the latest of each timer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relay.pipeline.cold.plans import Known, Plan
from relay.pipeline.cold.store import ColdStore, State
from relay.pipeline.cold.table import one_of
from relay.pipeline.cold.taken import EVER, Consumed, Reaches

BROADCAST = 200_000
"""The most timers whose ids are sent to all tasks, which then look for rows of them and gather no others."""


def committed(known: Known) -> Column:
    """Whether a row's write is committed."""
    return ~f.expr(one_of("version", known.uncommitted))


def is_taken(taken: Consumed, known: Known) -> Column:
    """Whether a finished plan has taken a row of a settled write that has a due time."""
    topics: dict[Reaches, list[str]] = {}
    for topic, reaches in taken.own.items():
        topics.setdefault(reaches, []).append(topic)
    parts = [f.col("topic").isin(names) & _within(reaches, known) for reaches, names in topics.items()]
    if taken.everywhere:
        everywhere = _within(taken.everywhere, known)
        parts.append(~f.col("topic").isin(list(taken.own)) & everywhere if taken.own else everywhere)
    return _any(parts)


def _within(reaches: Reaches, known: Known) -> Column:
    return _any(
        (f.col("due_us") < each.until)
        & ~f.expr(one_of("version", [v for v, number in known.numbers.items() if number > each.settled]))
        for each in reaches
    )


def _any(parts: Iterable[Column]) -> Column:
    return reduce(Column.__or__, parts, f.lit(False))


def due(cold: ColdStore, state: State, until: int, topics: Collection[str] | None) -> DataFrame:
    """Return the resting rows of settled writes that are due before `until`, of some topics or of all."""
    rows = cold.table.rows(state.table).where(f.col("due_us") < until)
    if topics is not None:
        rows = rows.where(f.col("topic").isin(list(topics)))
    waiting = f.expr(one_of("version", state.waiting(state.settled)))
    return rows.where(~waiting & ~is_taken(state.done.taken, state.known))


def inputs(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return those of the table's rows that the plan takes."""
    kept = rows.where((f.col("due_us") < plan.reach.until) & _of_topics(plan))
    return kept.where(~f.expr(one_of("version", plan.known.waiting)) & ~is_taken(plan.taken, plan.known))


def _of_topics(plan: Plan) -> Column:
    if not plan.every:
        return f.col("topic").isin(list(plan.topics))
    return ~f.col("topic").isin(list(plan.left)) if plan.left else f.lit(True)


def latest(cold: ColdStore, plan: Plan) -> tuple[DataFrame, bool]:
    """Return the plan's rows without those that have a newer row, or a cancel, and whether any timer had more
    than one row.

    A newer row counts from its manifest on, also if a plan has taken it, and if it is not settled: a cancel
    may have been at Redis before there were marks. Few timers have more than one row, so these are found by a
    hash of their ids, and only they are compared.
    """
    table = cold.table.rows(plan.table)
    rows = inputs(table, plan)
    if plan.known.single and plan.oldest >= plan.known.last:
        return rows, False  # all are of the last write, which has no timer twice
    found = table.where(committed(plan.known) & (f.col("version") >= plan.oldest) & _of_topics(plan))
    found = found.select("topic", "timer_id", "version", "due_us")
    if plan.rows <= BROADCAST:
        keys = rows.select(_key().alias("key")).distinct()
        found = found.join(f.broadcast(keys), _key() == f.col("key"), "left_semi")
    contested = found.groupBy(_key().alias("key")).count().where("count > 1").select("key").cache()
    try:
        if contested.isEmpty():
            return rows, False
        winners = newest(found.join(contested, _key() == f.col("key"), "left_semi"))
        alone = rows.join(contested, _key() == f.col("key"), "left_anti")
        same = (f.col("topic") == f.col("of_topic")) & (f.col("timer_id") == f.col("id"))
        won = rows.join(winners, same & (rank() == f.col("rank")), "left_semi")
        return alone.unionAll(won.dropDuplicates(["topic", "timer_id"])), True
    finally:
        contested.unpersist()


def untaken(cold: ColdStore) -> DataFrame:
    """Return the committed rows with a due time that no sweep has taken; some may be replaced."""
    state = cold.state()
    return cold.table.rows(state.table).where(
        committed(state.known) & f.col("due_us").isNotNull() & ~_is_over(state)
    )


def _is_over(state: State) -> Column:
    """Whether a sweep has taken a row: it can take none of a write that is not settled."""
    waiting = f.expr(one_of("version", state.waiting(state.settled)))
    return f.coalesce(is_taken(state.done.taken, state.known), f.lit(False)) & ~waiting


def resting(cold: ColdStore, topics: Collection[str] | None = None, state: State | None = None) -> DataFrame:
    """Return the timers that rest (`topic, timer_id, due_us`): no later row replaces or cancels them, and no
    sweep has taken them."""
    state = state or cold.state()
    rows = cold.table.rows(state.table).where(committed(state.known))
    if topics is not None:
        rows = rows.where(f.col("topic").isin(list(topics)))
    last = f.max_by(f.struct("due_us", _is_over(state).alias("taken")), rank()).alias("last")
    found = rows.groupBy("topic", "timer_id").agg(last).where("last.due_us is not null and not last.taken")
    return found.select("topic", "timer_id", "last.due_us")


def newest(rows: DataFrame) -> DataFrame:
    """Return the rank of each timer's latest row, as `of_topic, id, rank`."""
    timer = f.col("topic").alias("of_topic"), f.col("timer_id").alias("id")
    return rows.groupBy(*timer).agg(f.max(rank()).alias("rank"))


def rank() -> Column:
    """What is largest in the row that counts: among one write's rows of a timer, the soonest."""
    return f.struct("version", f.coalesce(-f.col("due_us"), f.lit(-EVER)))


def _key() -> Column:
    return f.xxhash64("topic", "timer_id")
