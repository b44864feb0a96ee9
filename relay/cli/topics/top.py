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

TITLES = ("topic", "waiting>", "due>", "leased>", "dead>", "change/s>", "oldest due", "paused")


@dataclass(frozen=True, slots=True)
class TopRow:
    """How a topic stands at an instant by the clock of Redis.

    `leased` is None where too many leases stand to look at each: they are among `waiting` then. `change` says
    by how many timers a second the topic has grown since the last look, and is None at the first one.
    """

    info: TopicInfo
    as_of: datetime | None = None
    waiting: int = 0
    leased: int | None = None
    change: float | None = None

    @property
    def rank(self) -> tuple[bool, int, str]:
        """By which the topics that need a look come first: those with due timers, the most first."""
        return not self.info.error, -self.info.due, self.info.topic


class Top:
    """Looks at all topics, and remembers the last look."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._before: dict[str, tuple[datetime, int]] = {}

    async def look(self, topics: Topics) -> tuple[list[TopRow], bool]:
        """Return the rows, and whether there are more topics than the limit."""
        found: list[TopicInfo] = []
        has_more = False
        async for info in topics.list(page_size=min(self._limit + 1, 1000)):
            has_more = len(found) == self._limit
            if has_more:
                break
            found.append(info)
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
        self._before[info.topic] = found.as_of, info.timers
        change = None
        if before is not None and (seconds := (found.as_of - before[0]).total_seconds()) > 0:
            change = (info.timers - before[1]) / seconds
        waiting = max(info.timers - info.due - (found.leased or 0), 0)
        return TopRow(info, found.as_of, waiting, found.leased, change)


def top(connection: RelayConnection, limit: int, every: str | None, as_json: bool) -> None:
    """Show how topics stand, once or at an interval."""
    looking = Top(limit)

    async def render(topics: Topics) -> RenderableType:
        rows, has_more = await looking.look(topics)
        if has_more:
            tables.remark(f"there are more: these are the first {limit} (--limit)")
        return tables.table(TITLES, [cells(row) for row in rows]) if rows else "no topics yet"

    async def print_documents(topics: Topics) -> None:
        for row in (await looking.look(topics))[0]:
            output.document(document(row))

    show_topics(connection, every, print_documents if as_json else None, render)


def cells(row: TopRow) -> tuple[str, ...]:
    """What stands in a row of the table."""
    info = row.info
    if info.error or row.as_of is None:
        return info.topic, "?", "?", "?", "?", "", info.error, ""
    oldest = info.next_claim_time if info.due else None
    leased = "?" if row.leased is None else f"{row.leased:,}"
    return (
        info.topic,
        f"{row.waiting:,}",
        f"{info.due:,}",
        leased,
        f"{info.dead:,}",
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
        "change_per_second": None if row.change is None else round(row.change, 3),
        "oldest_due_time": None if oldest is None else output.iso(oldest),
        "paused": info.paused,
        "paused_until": None if info.paused_until is None else output.iso(info.paused_until),
    }
