"""What people do to topics of several partitions: the contract is that of `relay.core.ports.TopicStore`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from relay.core.errors import OtherLayout, StoreError
from relay.core.partitions import LEAVING, Layout
from relay.core.ports import AGAIN, MAX_PER_CALL, Layouts, TopicStore
from relay.core.timers import Change, DeadLetter, DeadPage, TopicStats
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.entry_ids import EntryId
from relay.store.partitions.for_each import for_each
from relay.store.partitions.merging import page_of, stats_of

R = TypeVar("R")


class PartitionedTopics:
    """A `TopicStore` whose calls are about whole topics, over one whose calls are about one partition.

    A topic that is known to have no layout is not asked for one: Redis refuses the call if it has one all the
    same, and the call begins again with that. A call is one step in each partition that it is about, and all
    together are not.
    """

    def __init__(self, topics: TopicStore, layouts: Layouts, carrier: Carrier) -> None:
        self._topics = topics
        self._layouts = layouts
        self._carrier = carrier
        self._searched: dict[str, int] = {}
        """The number of the partition in which the search for a topic's orphans goes on."""
        self.register = topics.register
        self.forget_subject = topics.forget_subject
        self.topics = topics.topics
        self.lock = topics.lock

    async def stats(self, topic: str) -> TopicStats:
        """See `TopicStore.stats`. A call for each partition, all at once."""

        async def read(layout: Layout) -> TopicStats:
            return stats_of(layout, await for_each(self._topics.stats, layout.partitions))

        return await self._begun(topic, read)

    async def overview(self, topics: Sequence[str]) -> list[TopicStats]:
        """See `TopicStore.overview`. One pipelined read for `MAX_PER_CALL` partitions, and a call for each
        topic whose partitions are not known."""
        known = {topic: self._layouts.known(topic) for topic in topics}
        await self._ask([topic for topic in topics if known[topic] is None])
        found = await self._read(topics)
        presumed = [topic for topic in topics if topic not in found and _is_plain(known[topic])]
        await self._ask(presumed)
        found |= await self._read([topic for topic in presumed if not _is_plain(self._layouts.known(topic))])
        return [found[topic] for topic in topics if topic in found]

    async def _ask(self, topics: Iterable[str]) -> None:
        """Learn the layouts of topics, but for those that the store refuses."""

        async def ask(topic: str) -> None:
            with suppress(StoreError):
                await self._layouts.ask(topic)

        await for_each(ask, list(topics))

    async def _read(self, topics: Iterable[str]) -> dict[str, TopicStats]:
        """The state of those topics of which every partition can be read."""
        layouts = [layout for layout in map(self._layouts.known, topics) if layout is not None]
        names = [name for layout in layouts for name in layout.partitions]
        parts: dict[str, TopicStats] = {}
        for start in range(0, len(names), MAX_PER_CALL):
            parts |= {
                each.topic: each for each in await self._topics.overview(names[start : start + MAX_PER_CALL])
            }
        return {
            layout.topic: stats_of(layout, [parts[name] for name in layout.partitions])
            for layout in layouts
            if parts.keys() >= set(layout.partitions)
        }

    async def parts(self, topic: str, *, first: int = 0, most: int = MAX_PER_CALL) -> list[TopicStats]:
        """See `TopicStore.parts`. A call for each of those partitions, all at once."""

        async def read(layout: Layout) -> list[TopicStats]:
            asked = layout.partitions[first : first + most]
            return list(await for_each(self._topics.stats, asked)) if asked else []

        return await self._begun(topic, read)

    async def pause(self, topic: str, *, until: int | None = None, duration: int | None = None) -> int | None:
        """See `TopicStore.pause`. The first partition decides, and the others have the same end."""

        async def write(layout: Layout) -> int | None:
            first, *others = layout.partitions
            end = await self._topics.pause(first, until=until, duration=duration)
            if end is not None:
                await for_each(partial(self._topics.pause, until=end), others)
            return end

        return await self._begun(topic, write)

    async def resume(self, topic: str) -> None:
        """See `TopicStore.resume`. The first partition comes first: those that come into use ask it."""

        async def write(layout: Layout) -> None:
            first, *others = layout.partitions
            await self._topics.resume(first)
            await for_each(self._topics.resume, others)

        await self._begun(topic, write)

    async def dead_page(self, topic: str, *, limit: int, cursor: str) -> DeadPage:
        """See `TopicStore.dead_page`. A page of each partition, all at once."""

        async def read(layout: Layout) -> DeadPage:
            if not layout.epoch:
                return await self._topics.dead_page(topic, limit=limit, cursor=cursor)
            after = EntryId.parse("page_token", cursor, len(layout.partitions)) if cursor else None
            calls = [
                partial(
                    self._topics.dead_page, name, limit=limit, cursor=after.before(number) if after else ""
                )
                for number, name in enumerate(layout.partitions)
            ]
            return page_of(await for_each(lambda call: call(), calls), limit)

        return await self._begun(topic, read, (cursor,))

    async def dead_letter(self, topic: str, dead_id: str) -> DeadLetter | None:
        """See `TopicStore.dead_letter`. The topic is asked for its layout, since a plain read is not
        refused."""
        layout = await self._layouts.ask(topic)
        if not layout.epoch:
            return await self._topics.dead_letter(topic, dead_id)
        where = EntryId.parse("dead_id", dead_id, len(layout.partitions))
        letter = await self._topics.dead_letter(layout.partitions[where.partition], where.entry)
        return None if letter is None else replace(letter, dead_id=str(where))

    async def redrive(self, topic: str, dead_ids: Sequence[str]) -> list[Change]:
        """See `TopicStore.redrive`."""

        async def write(layout: Layout) -> list[Change]:
            if not layout.epoch:
                return await self._topics.redrive(topic, dead_ids)
            parts = _divided(layout, dead_ids)
            answers = await for_each(
                lambda part: self._redrive(layout, part, list(parts[part].values())), parts
            )
            changes: dict[int, Change] = {}
            for places, answer in zip(parts.values(), answers, strict=True):
                changes.update(zip(places, answer, strict=True))
            return [changes[place] for place in range(len(dead_ids))]

        return await self._begun(topic, write, dead_ids)

    async def _redrive(self, layout: Layout, partition: str, entries: list[str]) -> list[Change]:
        """Redrive letters of one partition. One that somebody else carries just now is GONE, and has another
        name afterwards."""
        if not layout.towards:
            return await self._topics.redrive(partition, entries)
        changes: list[Change] = []
        for entry in entries:
            letter = await self._topics.dead_letter(partition, entry)
            if letter is not None and layout.partition(letter.timer_id) == f"{partition}{LEAVING}":
                changes.append(await self._redrive_away(layout, partition, letter.timer_id, entry))
            else:
                changes += await self._topics.redrive(partition, [entry])
        return changes

    async def _redrive_away(self, layout: Layout, partition: str, timer_id: str, entry: str) -> Change:
        """Redrive a letter that a move takes away, where it belongs: the old partition takes no timer in. A
        living timer of its id goes there first, and is in its way."""
        while await self._carrier.take(layout, partition, "t", [timer_id]) is not None:
            pass
        while (carried := await self._carrier.take(layout, partition, "d", [entry])) is not None:
            if carried.names == [b"d" + entry.encode()]:  # another batch was on its way otherwise
                if not carried.entries:
                    break
                (change,) = await self._topics.redrive(layout.filled(partition), carried.entries)
                return change
        return Change.GONE

    async def purge(self, topic: str, dead_ids: Sequence[str]) -> int:
        """See `TopicStore.purge`."""

        async def write(layout: Layout) -> int:
            if not layout.epoch:
                return await self._topics.purge(topic, dead_ids)
            parts = _divided(layout, dead_ids)
            return sum(
                await for_each(lambda part: self._topics.purge(part, list(parts[part].values())), parts)
            )

        return await self._begun(topic, write, dead_ids)

    async def trim(self, topic: str, *, max_count: int, max_age: int) -> int:
        """See `TopicStore.trim`. Each partition keeps its share."""

        async def write(layout: Layout) -> int:
            trim = partial(self._topics.trim, max_count=layout.share(max_count), max_age=max_age)
            return sum(await for_each(trim, layout.partitions))

        return await self._begun(topic, write)

    async def orphans(self, topic: str, *, limit: int) -> tuple[list[str], bool]:
        """See `TopicStore.orphans`. One partition after the other."""

        async def read(layout: Layout) -> tuple[list[str], bool]:
            count = len(layout.partitions)
            number = self._searched.get(topic, 0) % count
            found, done = await self._topics.orphans(layout.partitions[number], limit=limit)
            self._searched[topic] = (number + done) % count
            return found, done and number + 1 == count

        return await self._begun(topic, read)

    async def repair(self, topic: str, timer_ids: Sequence[str]) -> tuple[int, int]:
        """See `TopicStore.repair`. In every partition: an orphan may lie in another than its id's."""

        async def write(layout: Layout) -> tuple[int, int]:
            repair = partial(self._topics.repair, timer_ids=timer_ids)
            payloads, leases = zip(*await for_each(repair, layout.partitions), strict=True)
            return sum(payloads), sum(leases)

        return await self._begun(topic, write)

    async def _begun(self, topic: str, work: Callable[[Layout], Awaitable[R]], told: Sequence[str] = ()) -> R:
        """Do the work; begin again when the topic has other partitions. `told` are the names of dead letters
        that the caller has. Raises `StoreError`."""
        for _ in range(AGAIN):
            with suppress(OtherLayout):
                return await work(await self._layout(topic, told))
        return await work(await self._layout(topic, told))

    async def _layout(self, topic: str, told: Sequence[str]) -> Layout:
        """What is known of a topic without a layout, unless the caller knows of partitions; else what there
        is."""
        known = self._layouts.known(topic)
        if known is not None and not known.epoch and not any("#" in each for each in told):
            return known
        return await self._layouts.ask(topic)


def _is_plain(layout: Layout | None) -> bool:
    """Whether the topic is known to have no layout."""
    return layout is not None and not layout.epoch


def _divided(layout: Layout, dead_ids: Sequence[str]) -> dict[str, dict[int, str]]:
    """The entries of dead letters by their partitions, each under its place in the call. Raises
    `InvalidField`."""
    parts: dict[str, dict[int, str]] = {}
    for place, dead_id in enumerate(dead_ids):
        where = EntryId.parse("dead_id", dead_id, len(layout.partitions))
        parts.setdefault(layout.partitions[where.partition], {})[place] = where.entry
    return parts
