"""What people did to the topics of an audit, in its time: from the action log, which lies in Redis alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from relay.core.errors import StoreError
from relay.core.instants import SECOND
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.actions import Action, joined
from relay.pipeline.spark.redis_target import Target
from relay.store.server.blocking import BlockingServer
from relay.store.timeline.actions import PAGE, read_action

OPEN = "open"
"""What stands in the place of an outcome that is not known."""

_TEXTS = ("principal", "verb", "method", "topic", "thing", "note", "before", "after", "outcome", "entry")
PEOPLE = ", ".join(("time timestamp", *(f"{name} string" for name in _TEXTS)))
"""The columns of the table `people`: a row for each action. `time` is when it ended, or began."""

NOT_ASKED = "This audit has not asked Redis, where the action log lies: run it with --then-redis."


@dataclass(frozen=True, slots=True)
class PeopleDid:
    """What people did, and why that is not known; empty if it is."""

    rows: list[dict[str, Any]]
    unread: str = ""


def done(options: Mapping[str, str], topics: Collection[str], span: tuple[int, int]) -> PeopleDid:
    """Read what was done to these topics, or to all, from one instant to another (microseconds). Without
    `options` Redis is not asked. The log has a bound, `action_log_max_length`, so the driver can hold it."""
    if not options:
        return PeopleDid([], NOT_ASKED)
    try:
        with Target.from_options(options).server() as server:
            entries = [each for each in _entries(server, span[0]) if each.topic in {*topics, EVERY_TOPIC}]
    except StoreError as failure:
        return PeopleDid([], f"The action log can't be read: {failure}")
    told = [each for each in joined(entries) if span[0] <= each.time and each.since <= span[1]]
    return PeopleDid([_row(each) for each in told])


def table(spark: SparkSession, found: PeopleDid) -> DataFrame:
    """The same as a table."""
    return spark.createDataFrame([tuple(row.values()) for row in found.rows], PEOPLE)


def _entries(server: BlockingServer, since: int) -> Iterator[Action]:
    """The entries since an instant. An XRANGE for each `PAGE`."""
    after = f"{max(since // 1_000 - 1, 0)}-0"
    while found := server.ask("XRANGE", server.keys.actions, f"({after}", "+", "COUNT", PAGE):
        for entry, flat in found:
            yield read_action(entry, flat)
        after = found[-1][0].decode()


def _row(action: Action) -> dict[str, Any]:
    told = {name: getattr(action, name) for name in _TEXTS}
    at = datetime.fromtimestamp(action.time // SECOND, UTC).replace(microsecond=action.time % SECOND)
    return {"time": at, **told, "outcome": action.outcome or OPEN}
