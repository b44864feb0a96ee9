"""Counts for `relay doctor` how many timers each partition has, and at which place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.partitions import Layout
from relay.core.ports import MAX_PER_CALL
from relay.core.timers import TopicStats
from relay.store.partitions.layouts import look_up
from relay.store.server.server import Server
from relay.store.timeline.topics import RedisTopics


@dataclass(frozen=True, slots=True)
class Counted:
    """How a partition stands, and where it is. `stats` is None if it could not be read."""

    layout: Layout
    partition: str
    place: str
    stats: TopicStats | None

    @property
    def timers(self) -> int:
        """How many timers it has, as far as is known."""
        return self.stats.timers if self.stats is not None else 0


async def census(server: Server, topics: Iterable[str], answering: Collection[str]) -> list[Counted]:
    """Count the timers of each partition. Takes one GET for each topic, and one script call for each
    partition, `MAX_PER_CALL` of them in a pipeline.

    `answering` are the places that are up. The others are not asked, so that they cost no wait; nor is one
    again that does not tell a topic's layout. A topic whose layout can't be read counts as one partition that
    can't be read.
    """
    up = set(answering)
    layouts: list[Layout] = []
    unread: list[Counted] = []
    for topic in topics:
        place = server.places.of(topic)
        layout: Layout | None = None
        with suppress(StoreError):
            try:
                layout = await look_up(server, topic) if place in up else None
            except StoreUnavailable:
                up.discard(place)
        if layout is None:
            unread.append(Counted(Layout(topic), topic, place, None))
        else:
            layouts.append(layout)
    places = {name: server.places.of(name) for layout in layouts for name in layout.partitions}
    stats = await _stats(server, [name for name, place in places.items() if place in up])
    counted = [
        Counted(layout, name, places[name], stats.get(name))
        for layout in layouts
        for name in layout.partitions
    ]
    return counted + unread


async def _stats(server: Server, partitions: Sequence[str]) -> dict[str, TopicStats]:
    """How those stand that can be read."""
    found: dict[str, TopicStats] = {}
    for start in range(0, len(partitions), MAX_PER_CALL):
        with suppress(StoreError):
            read = await RedisTopics(server).overview(partitions[start : start + MAX_PER_CALL])
            found |= {each.topic: each for each in read}
    return found
