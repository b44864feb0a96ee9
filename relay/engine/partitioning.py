"""Sends what producers ask for to the partitions that have their timers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import anyio

from relay.core.errors import OtherLayout, ServiceError
from relay.core.partitions import Layout
from relay.core.ports import AGAIN, Layouts
from relay.core.timers import NewTimers, Scheduled
from relay.engine.redis_health import RedisHealth

T = TypeVar("T")

Results: TypeAlias = list[Scheduled | ServiceError]

Submit: TypeAlias = Callable[[Mapping[str, NewTimers]], Awaitable[dict[str, Results]]]
"""Writes timers, which are given by partition, all partitions at once. Each timer has a result or an error of
its own."""


class Partitioning:
    """Makes each call by the layout of its topic, which is asked for where it is not known.

    A call that Redis refuses because the topic has another layout (`OtherLayout`) has done nothing, and the
    layout is known then: the call is begun again.
    """

    def __init__(self, layouts: Layouts, redis_health: RedisHealth) -> None:
        self._layouts = layouts
        self._redis_health = redis_health

    async def begin(self, topic: str, work: Callable[[Layout], Awaitable[T]]) -> T:
        """Make a call by the topic's layout; return its answer or raise its error."""
        begun = 0
        while True:
            layout = self._layouts.known(topic) or await self._ask(topic)
            try:
                return await work(layout)
            except OtherLayout:
                begun += 1
                if begun > AGAIN:
                    raise

    async def _ask(self, topic: str) -> Layout:
        return await self._redis_health.noted(topic, self._layouts.ask(topic))

    async def schedule(self, timers: Mapping[str, NewTimers], submit: Submit) -> dict[str, Results]:
        """Write timers, which are given by topic. Each has a result or an error of its own, in the order in
        which they came."""
        layouts = self._known(timers)
        results = await self._written(timers, layouts, submit)
        for _ in range(AGAIN):
            # Where the layout is still the same, as it is as a rule, the results need not be read.
            others = [topic for topic, layout in layouts.items() if self._layouts.known(topic) != layout]
            places = {topic: there for topic in others if (there := _refused(results[topic]))}
            if not places:
                break
            left = {topic: timers[topic].only(there) for topic, there in places.items()}
            layouts = self._known(left)
            for topic, some in (await self._written(left, layouts, submit)).items():
                _put(results[topic], places[topic], some)
        return results

    def _known(self, topics: Iterable[str]) -> dict[str, Layout | None]:
        return {topic: self._layouts.known(topic) for topic in topics}

    async def _written(
        self, timers: Mapping[str, NewTimers], layouts: Mapping[str, Layout | None], submit: Submit
    ) -> dict[str, Results]:
        """Write once. A topic whose layout has to be asked for keeps no other waiting."""
        known = [layout for layout in layouts.values() if layout is not None]
        if len(known) == len(layouts):
            return await _submitted(timers, known, submit)
        results: dict[str, Results] = {topic: [] for topic in timers}

        async def write(some: Sequence[Layout]) -> None:
            results.update(await _submitted(timers, some, submit))

        async def ask(topic: str) -> None:
            try:
                layout = await self._ask(topic)
            except ServiceError as failure:
                results[topic] = [failure] * len(timers[topic])
            else:
                await write([layout])

        async with anyio.create_task_group() as tasks:
            for topic, layout in layouts.items():
                if layout is None and timers[topic]:
                    tasks.start_soon(ask, topic)
            await write(known)
        return results


async def _submitted(
    timers: Mapping[str, NewTimers], layouts: Iterable[Layout], submit: Submit
) -> dict[str, Results]:
    """Write the timers of the topics of these layouts."""
    cuts = {layout.topic: _Cut.of(layout, timers[layout.topic]) for layout in layouts}
    told = await submit({partition: part for cut in cuts.values() for partition, part in cut.parts.items()})
    return {topic: cut.joined(told) for topic, cut in cuts.items()}


@dataclass(slots=True)
class _Cut:
    """A topic's timers by partition, and the `places` that those of each have among all. Those of a topic of
    one partition are brought as they came."""

    parts: dict[str, NewTimers]
    places: dict[str, list[int]]
    count: int

    @classmethod
    def of(cls, layout: Layout, timers: NewTimers) -> _Cut:
        if len(layout.partitions) == 1:
            return cls({layout.partitions[0]: timers}, {}, len(timers))
        places: dict[str, list[int]] = {}
        for place, partition in enumerate(map(layout.partition, timers.timer_ids)):
            places.setdefault(partition, []).append(place)
        return cls({name: timers.only(there) for name, there in places.items()}, places, len(timers))

    def joined(self, told: Mapping[str, Results]) -> Results:
        """Return the results in the order of the timers."""
        if len(self.parts) == 1:
            (partition,) = self.parts
            return told[partition]
        results: list[Any] = [None] * self.count
        for partition, there in self.places.items():
            _put(results, there, told[partition])
        return results


def _put(results: Results, places: Iterable[int], some: Iterable[Scheduled | ServiceError]) -> None:
    for place, result in zip(places, some, strict=True):
        results[place] = result


def _refused(results: Results) -> list[int]:
    """The places of the timers to which another layout applies."""
    return [place for place, result in enumerate(results) if isinstance(result, OtherLayout)]
