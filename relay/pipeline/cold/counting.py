"""Counts what rests in a cold store, and leaves the counts in Redis, where forecasts find them.

To count is to compare all rows of a topic, so it is done when the rows have changed, and once a day. What a
plan has taken since is all that was due before an instant: that is left out without a look at the rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import functions as f

from relay.core.recurring.cold_counts import DAY, HOUR, ColdCounts
from relay.pipeline.cold.intents import resting
from relay.pipeline.cold.store import ColdStore, State
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.cold_counts import TellsColdCounts
from relay.store.codec.cold_counts import ToldCounts


def tell_what_rests(cold: ColdStore, target: Target, topics: Iterable[str] | None, now: int) -> int:
    """Tell Redis what rests of some topics, or of all that have rows; return how many timers that are. `now`
    is by the clock of Redis, in microseconds. Raises `StoreError`, and Spark's errors."""
    state = cold.state()
    known = sorted(topics if topics is not None else _topics(cold, state))
    with target.open() as store:
        telling = TellsColdCounts(store.server, cold.name)
        held = telling.read(known)
    kept = {topic: _still(held.get(topic), state, topic, now) for topic in known}
    counts = {topic: each for topic, each in kept.items() if each is not None}
    counts |= _counted(cold, state, sorted(kept.keys() - counts.keys()), now)
    with target.open() as store:  # to count takes longer than a connection may be idle
        TellsColdCounts(store.server, cold.name).tell(state.done.number, _writes(state), counts)
    return sum(each.timers for each in counts.values())


def _topics(cold: ColdStore, state: State) -> list[str]:
    found = cold.table.rows(state.table).select("topic").distinct().collect()
    return [row["topic"] for row in found]


def _writes(state: State) -> str:
    """What is different once further rows count."""
    known = state.known
    waiting = ",".join(map(str, sorted(known.waiting | known.uncommitted)))
    return f"{known.last}:{waiting}" if waiting else str(known.last)


def _still(told: ToldCounts | None, state: State, topic: str, now: int) -> ColdCounts | None:
    """What was counted last, without what plans have taken since; None if it has to be counted again."""
    fresh = told is not None and now - DAY < told.counts.counted <= now
    if told is None or not fresh or told.writes != _writes(state) or state.known.waiting:
        return None
    if told.plan == state.done.number:
        return told.counts
    # Plans since have seen all these writes: each took all that was due before its instant.
    untils = [each.until for each in state.done.taken.of(topic) if each.settled == state.settled]
    until = max(untils, default=0)
    if any(each.start < until < each.end for each in told.counts.spans):
        return None
    return told.counts.without(until)


def _counted(cold: ColdStore, state: State, topics: list[str], now: int) -> dict[str, ColdCounts]:
    """Count the timers of each hour."""
    if not topics:
        return {}
    hour = f.floor(f.col("due_us") / f.lit(HOUR)).cast("long").alias("hour")
    hours: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    for row in resting(cold, topics, state).groupBy("topic", hour).count().toLocalIterator():
        hours[row["topic"]][row["hour"]] = row["count"]
    return {topic: ColdCounts.of_hours(each, now) for topic, each in hours.items()}
