"""`top`: how all topics stand, again and again, the ones that need a look first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from relay.cli.terminal import output, tables
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.topics.topic_calls import distance, how_long, show_topics
from relay.client.calls.topics import Forecast, TopicInfo, Topics
from relay.client.errors import CallError

if TYPE_CHECKING:
    from rich.console import RenderableType

AT_ONCE = 20
"""Topics that are asked for at once."""

RANKED = 1_000
"""The most topics that are read and ranked, those whose names come first: one page, a script call for each
partition."""

TITLES = (
    *("topic", "waiting>", "due>", "leased>", "dead>"),
    *("in/s>", "out/s>", "change/s>", "oldest due", "paused"),
)


@dataclass(frozen=True, slots=True)
class TopRow:
    """How a topic stands at an instant by the clock of Redis.

    `leased` is None where too many leases stand to look at each: they are among `waiting` then. `change` says
    by how many timers a second the topic has grown since the last look, `come` and `gone` how many were
    scheduled through this relay and how many deliveries have begun at it; all are None at the first look.
    """

    info: TopicInfo
    as_of: datetime | None = None
    waiting: int = 0
    leased: int | None = None
    change: float | None = None
    come: float | None = None
    gone: float | None = None

    @property
    def rank(self) -> tuple[bool, int, str]:
        """See `rank_of`."""
        return rank_of(self.info)


def rank_of(info: TopicInfo) -> tuple[bool, int, str]:
    """By which the topics that need a look come first: those that can't be read, then those with due timers,
    the most first."""
    return not info.error, -info.due, info.topic


class Top:
    """Looks at all topics, and remembers the last look."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.others = 0
        """The topics of the last look that were ranked and not shown."""
        self._before: dict[str, tuple[datetime, TopicInfo]] = {}

    async def look(self, topics: Topics) -> tuple[list[TopRow], bool]:
        """Return the rows of the topics that rank first, and whether there are some that were not ranked."""
        ranked: list[TopicInfo] = []
        has_more = False
        async for info in topics.list(page_size=RANKED):
            has_more = len(ranked) == RANKED
            if has_more:
                break
            ranked.append(info)
        found = sorted(ranked, key=rank_of)[: self._limit]
        self.others = len(ranked) - len(found)
        gate = asyncio.Semaphore(AT_ONCE)

        async def forecast(info: TopicInfo) -> Forecast | None:
            async with gate:
                try:
                    return await topics.forecast(info.topic, horizon=1, resolution=1)
                except CallError:
                    return None  # the listing says why of most, and the next look tells more

        forecasts = await asyncio.gather(*map(forecast, found))
        rows = [self._row(info, each) for info, each in zip(found, forecasts, strict=True)]
        return sorted(rows, key=lambda row: row.rank), has_more

    def _row(self, info: TopicInfo, found: Forecast | None) -> TopRow:
        if found is None or info.error:
            return TopRow(info)
        before = self._before.get(info.topic)
        self._before[info.topic] = found.as_of, info
        change = come = gone = None
        if before is not None and (seconds := (found.as_of - before[0]).total_seconds()) > 0:
            change = (info.timers - before[1].timers) / seconds
            come = _rate(before[1].scheduled_here, info.scheduled_here, seconds)
            gone = _rate(before[1].delivered_here, info.delivered_here, seconds)
        waiting = max(info.timers - info.due - (found.leased or 0), 0)
        return TopRow(info, found.as_of, waiting, found.leased, change, come, gone)


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    """What was counted a second; None if the relay does not count, or was started since."""
    return None if before is None or now is None or now < before else (now - before) / seconds


def top(connection: RelayConnection, limit: int, every: str | None, as_json: bool) -> None:
    """Show how topics stand, once or at an interval."""
    looking = Top(limit)

    async def render(topics: Topics) -> RenderableType:
        rows, has_more = await looking.look(topics)
        if has_more:
            tables.remark(f"there are more: only the first {RANKED:,} by their names are ranked")
        elif looking.others:
            tables.remark(f"there are {looking.others:,} more, with less that is due (--limit)")
        return tables.table(TITLES, [cells(row) for row in rows]) if rows else "no topics yet"

    async def print_documents(topics: Topics) -> None:
        for row in (await looking.look(topics))[0]:
            output.document(document(row))

    show_topics(connection, every, print_documents if as_json else None, render)


def cells(row: TopRow) -> tuple[str, ...]:
    """What stands in a row of the table."""
    info = row.info
    if info.error or row.as_of is None:
        return info.topic, "?", "?", "?", "?", "", "", "", info.error, ""
    oldest = info.next_claim_time if info.due else None
    leased = "?" if row.leased is None else f"{row.leased:,}"
    return (
        info.topic,
        f"{row.waiting:,}",
        f"{info.due:,}",
        leased,
        f"{info.dead:,}",
        *("" if rate is None else f"{rate:,.1f}" for rate in (row.come, row.gone)),
        "" if row.change is None else f"{row.change:+,.1f}",
        distance(oldest - row.as_of) if oldest is not None else "",
        how_long(info) if info.paused else "",
    )


def document(row: TopRow) -> dict[str, Any]:
    """Return a row for scripts."""
    info = row.info
    if row.as_of is None:
        return {"topic": info.topic, "error": info.error or "can't be read"}
    oldest = info.next_claim_time if info.due else None
    return {
        "topic": info.topic,
        "as_of_time": output.iso(row.as_of),
        "waiting": row.waiting,
        "due": info.due,
        "leased": row.leased,
        "dead": info.dead,
        "in_per_second": None if row.come is None else round(row.come, 3),
        "out_per_second": None if row.gone is None else round(row.gone, 3),
        "change_per_second": None if row.change is None else round(row.change, 3),
        "oldest_due_time": None if oldest is None else output.iso(oldest),
        "paused": info.paused,
        "paused_until": None if info.paused_until is None else output.iso(info.paused_until),
    }
