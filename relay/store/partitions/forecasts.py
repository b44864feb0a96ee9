"""What falls due in a topic, by Redis: the contract is that of `relay.core.ports.Forecasts`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

from relay.core.partitions import Layout
from relay.core.recurring.cold_counts import ColdCounts, cold_forecast
from relay.core.recurring.forecast import Forecast, Window
from relay.store.codec.cold_counts import counts_of
from relay.store.codec.contents import PLAIN, Contents
from relay.store.codec.kept_recurrences import kept_of, sealed_of
from relay.store.partitions.carrying import asking
from relay.store.partitions.for_each import for_each
from relay.store.server.server import Server
from relay.store.timeline.subjects import Subjects
from relay.store.verbs import people


class RedisForecasts:  # see 0119
    """The `Forecasts` of the topics on a server."""

    def __init__(self, server: Server, contents: Contents = PLAIN) -> None:
        self._server = server
        self._contents = contents
        self._subjects = Subjects(server, contents)

    async def read(self, layout: Layout, window: Window, since: int | None = None) -> Forecast:
        """See `Forecasts.read`. A script call for each partition: the first one says since when, and the
        others are asked all at once. What rests in cold stores is read behind them: a sweep says what it
        takes before it brings it, so no timer is found in both places. One HSCAN, or more for very many
        stores."""
        first, *others = layout.partitions
        found = await self._read(first, window, since)
        rest = await for_each(partial(self._read, window=window, since=found.since), others) if others else []
        counts = await self._cold(layout.topic, found.since if since is None else None)
        cold = cold_forecast(counts, window, found.since)
        return replace(reduce(Forecast.joined, rest, found), cold=cold)

    async def _cold(self, topic: str, now: int | None) -> list[ColdCounts]:
        key, cursor = self._server.keys.key("cold", topic), 0
        fields: dict[bytes, bytes] = {}
        while True:
            cursor, page = await self._server.ask("HSCAN", key, cursor, "COUNT", 1000)
            fields |= page
            if cursor == 0:
                return counts_of(fields, now)

    async def _read(self, partition: str, window: Window, since: int | None = None) -> Forecast:
        with asking(partition):
            reply = await self._server.call(people.forecast(partition, window, since))
        await self._subjects.look(partition, sealed_of(reply.recurrences))
        kept, unread = kept_of(self._contents, partition, reply.recurrences)
        return Forecast(
            reply.since,
            reply.overdue,
            reply.leased,
            tuple(reply.timers),
            reply.later,
            recurrences=tuple(kept),
            until=reply.until,
            unread=len(unread),
        )
