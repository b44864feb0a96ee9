"""Timers of partitions, while timers move between them and afterwards: the contract is that of
`relay.core.ports.TimerStore`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar, cast

import anyio

from relay.core.errors import GivenUp, OtherLayout, PartlyDone, ServiceError, StoreRefused, StoreUnavailable
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Settled, Settlement, Verdict
from relay.core.partitions import LEAVING, Layout, layout_of, own_name, topic_of
from relay.core.ports import Layouts, TimerStore, TopicStore
from relay.core.timers import (
    NO_CONDITION,
    Change,
    Changed,
    Claim,
    ClaimedTimers,
    Condition,
    NewTimer,
    NewTimers,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.store.partitions.carrying import Carrier, asking
from relay.store.partitions.for_each import for_each
from relay.store.server.errors import Leaving, PauseUnknown
from relay.store.server.server import Server
from relay.store.verbs import layout as layout_verbs

CARRY_TIME = 0.25
"""Seconds that a claim takes at most to carry what lies on its way: it has leased timers, which wait."""

CARRY_AGAIN = 1.0
"""Seconds between two tries, since the place where it goes may be away."""

R = TypeVar("R")
T = TypeVar("T")
Told = TypeVar("Told", Settled, Verdict)


class PartitionedTimers:  # see 0084
    """A `TimerStore` over one whose calls are each about one partition.

    A timer that a move takes away is where it was until it is taken out; then it is on its way; then it is
    where it belongs. So a call about such timers begins at the old partition, carries there what is on its
    way, and goes on to the new one with what is not there: that never comes to the old one again. Each timer
    is changed in one of them.

    A timer that was claimed by an older layout is looked for by the newest one.
    """

    def __init__(
        self, timers: TimerStore, topics: TopicStore, layouts: Layouts, server: Server, carrier: Carrier
    ) -> None:
        """`topics` are those of single partitions."""
        self._timers = timers
        self._topics = topics
        self._layouts = layouts
        self._server = server
        self._carrier = carrier
        self._carried: dict[str, float] = {}
        """When claims have tried to carry what lay on its way, by partition."""

    # ------------------------------------------------------------------ what producers ask for

    async def schedule(
        self,
        partition: str,
        timers: Sequence[NewTimer],
        *,
        max_waiting: int = 0,
        deadlines: Sequence[float] = (),
    ) -> list[Scheduled]:
        """See `TimerStore.schedule`. Raises `PartlyDone` if it fails only for timers that have left."""
        new = NewTimers.of(timers)

        async def write(place: str, some: Sequence[int]) -> Sequence[Scheduled]:
            part = new if len(some) == len(new) else new.only(some)
            waits = _only(deadlines, some)
            return await self._timers.schedule(place, part, max_waiting=max_waiting, deadlines=waits)

        return await self._led(partition, len(new), write, _is_gone)

    async def cancel(
        self,
        partition: str,
        timer_ids: Sequence[str],
        condition: Condition = NO_CONDITION,
        *,
        deadlines: Sequence[float] = (),
    ) -> list[Changed]:
        """See `TimerStore.cancel`. Raises `PartlyDone` as `schedule` does."""

        async def write(place: str, some: Sequence[int]) -> Sequence[Changed]:
            waits = _only(deadlines, some)
            return await self._timers.cancel(place, _only(timer_ids, some), condition, deadlines=waits)

        return await self._led(partition, len(timer_ids), write, _is_gone)

    async def run(self, partition: str, timer_ids: Sequence[str]) -> list[Changed]:
        """See `TimerStore.run`. Raises `PartlyDone` as `schedule` does."""

        async def write(place: str, some: Sequence[int]) -> Sequence[Changed]:
            return await self._timers.run(place, _only(timer_ids, some))

        return await self._led(partition, len(timer_ids), write, _is_gone)

    async def get(self, partition: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        """See `TimerStore.get`."""
        get = partial(self._timers.get, with_content=with_content)
        if not partition.endswith(LEAVING):
            return await get(partition, timer_id)
        found = await self._carrying(partition, lambda: get(partition, timer_id))
        if found is not None:
            return found
        there = layout_of(partition).filled(partition)
        with asking(there):
            return await get(there, timer_id)

    # ------------------------------------------------------------------ what relays do with leases

    async def claim(self, partition: str, request: ClaimRequest) -> Claim:
        """See `LeaseSource.claim`. A partition that has come into use learns first whether its topic is
        paused. What a mover that has died has left on its way arrives."""
        try:
            claim = await self._timers.claim(partition, request)
        except PauseUnknown:
            await self._tell_pause(partition)
            claim = await self._timers.claim(partition, request)
        if claim.stranded:
            await self._carry_stranded(partition)
        return claim

    async def _carry_stranded(self, partition: str) -> None:
        """Carry what is on its way from a partition. A claim has timers that wait for this, so it takes
        little time and raises nothing; later claims try it again."""
        if monotonic() < self._carried.get(partition, -math.inf) + CARRY_AGAIN:
            return
        self._carried[partition] = monotonic()
        with anyio.move_on_after(CARRY_TIME), suppress(ServiceError):
            await self._carrier.carry(layout_of(partition), partition)

    async def _tell_pause(self, partition: str) -> None:
        first = layout_of(partition).partitions[0]
        try:
            till = (await self._topics.stats(first)).paused_until
        except StoreUnavailable as failure:  # which says nothing of this partition's place
            raise StoreRefused(
                f"whether the topic is paused can't be read in its first partition: {failure}"
            ) from failure
        await self._server.call(layout_verbs.tell_pause(partition, till or 0))

    async def claimed(self, partition: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        """See `LeaseSource.claimed`. What moves, or has moved since, is looked for in every partition."""
        find = partial(self._timers.claimed, request=request, since=since, until=until)
        if self._stands(partition):
            with suppress(OtherLayout):
                return await find(partition)
        layout = await self._newest(partition)
        left = [own_name(name) for name in layout.emptied]
        found = await for_each(find, left)
        if layout.towards:
            await self._carrier.arrive(layout)
        found += await for_each(find, [name for name in layout.partitions if name not in left])
        found += await for_each(find, left)  # what found no room has come back
        return _joined(found)

    async def settle(
        self, partition: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        """See `LeaseSource.settle`. `partition` is the one in which the timers were claimed."""
        if self._stands(partition):
            with suppress(OtherLayout):
                return await self._timers.settle(partition, settlements, limits=limits)
        alone = [
            Settlement(each.nonce, each.ending, [timer_id])
            for each in settlements
            for timer_id in each.timer_ids
        ]

        async def write(place: str, some: Sequence[int]) -> Sequence[Settled]:
            return await self._timers.settle(place, [alone[n] for n in some], limits=limits)

        return await self._sought(partition, [each.timer_ids[0] for each in alone], write)

    async def extend(self, partition: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `LeaseSource.extend`. `partition` is as of `settle`."""
        if self._stands(partition):
            with suppress(OtherLayout):
                return await self._timers.extend(partition, extensions, lease=lease)

        async def write(place: str, some: Sequence[int]) -> Sequence[Verdict]:
            return await self._timers.extend(place, [extensions[n] for n in some], lease=lease)

        return await self._sought(partition, [each.timer_id for each in extensions], write)

    # ------------------------------------------------------------------ where timers are

    def _stands(self, partition: str) -> bool:
        """Whether all that was claimed in a partition is still there, as far as is known."""
        known = self._layouts.known(topic_of(partition))
        return known is None or (not known.towards and layout_of(partition).text == known.text)

    async def _led(
        self,
        partition: str,
        count: int,
        write: Callable[[str, Sequence[int]], Awaitable[Sequence[R]]],
        is_gone: Callable[[R], bool],
    ) -> list[R]:
        """Write `count` timers in a partition; and, of those that a move takes away from there, the ones that
        are not there in the other partition. `write` gets the places of its timers."""
        if not partition.endswith(LEAVING):
            return list(await write(partition, range(count)))
        results = list(await self._carrying(partition, lambda: write(partition, range(count))))
        gone = [place for place, result in enumerate(results) if is_gone(result)]
        if not gone:
            return results
        told: list[R | ServiceError] = [*results]
        there = layout_of(partition).filled(partition)
        try:
            with asking(there):
                others: Sequence[R | ServiceError] = await write(there, gone)
        except ServiceError as failure:
            if len(gone) == count:
                raise
            others = [failure] * len(gone)
        for place, result in zip(gone, others, strict=True):
            told[place] = result
        if any(isinstance(result, ServiceError) for result in others):
            raise PartlyDone(told)
        return cast("list[R]", told)

    async def _carrying(self, partition: str, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call about timers that a move takes away; what is on its way arrives before."""
        while True:
            try:
                return await call()
            except Leaving:
                await self._carrier.carry(layout_of(partition), partition)

    async def _sought(
        self,
        partition: str,
        timer_ids: Sequence[str],
        write: Callable[[str, Sequence[int]], Awaitable[Sequence[Told]]],
    ) -> list[Told]:
        """Write about leases where their timers are by the newest layout, and begin again for as long as a
        newer one becomes known: an outcome that is refused is lost. After an error it is not known for which
        of them that is done."""
        results: dict[int, Told] = {}

        async def lead(name: str, places: Sequence[int]) -> None:
            async def write_some(place: str, some: Sequence[int]) -> Sequence[Told]:
                return await write(place, [places[n] for n in some])

            try:
                with asking(name):
                    told: Sequence[Any] = await self._led(name, len(places), write_some, _is_lost)
            except PartlyDone as partly:
                told = partly.results
            failures = [each for each in told if isinstance(each, ServiceError)]
            answered = zip(places, told, strict=True)
            results.update((n, each) for n, each in answered if not isinstance(each, ServiceError))
            if failures:
                raise failures[0]

        while len(results) < len(timer_ids):
            layout = await self._newest(partition)
            left = [place for place in range(len(timer_ids)) if place not in results]
            try:
                await for_each(lambda group: lead(*group), _grouped(layout, timer_ids, left))
            except OtherLayout:
                if await self._newest(partition) == layout:
                    raise
            except GivenUp as failure:
                if results:  # then it is not so that nothing was done
                    raise StoreUnavailable(str(failure)) from failure
                raise
        return [results[place] for place in range(len(timer_ids))]

    async def _newest(self, partition: str) -> Layout:
        topic = topic_of(partition)
        return self._layouts.known(topic) or await self._layouts.ask(topic)

    def cursor_at(self, instant: int) -> str:
        """See `TimerStore.cursor_at`."""
        return self._timers.cursor_at(instant)

    async def list(
        self,
        layout: Layout,
        *,
        state: TimerState | None,
        limit: int,
        cursor: str,
        max_bytes: int | None = None,
    ) -> Page:
        """See `TimerStore.list`."""
        return await self._timers.list(layout, state=state, limit=limit, cursor=cursor, max_bytes=max_bytes)


def _grouped(
    layout: Layout, timer_ids: Sequence[str], places: Sequence[int]
) -> Iterable[tuple[str, Sequence[int]]]:
    """The timers at these places by the partitions that calls about them begin with."""
    groups: dict[str, list[int]] = {}
    for place in places:
        groups.setdefault(layout.partition(timer_ids[place]), []).append(place)
    return groups.items()


def _joined(claims: Sequence[Claim]) -> Claim:
    """What was found in several partitions; a timer that has moved between two reads is in two of them."""
    timers = ClaimedTimers.joined([claim.timers for claim in claims])
    places = {name: place for place, name in enumerate(timers.timer_ids)}
    deadlines = [claim.deadline for claim in claims if claim.timers]
    now = max(claim.now for claim in claims)
    return Claim(timers.only(sorted(places.values())), now, next=None, deadline=min(deadlines, default=now))


def _only(items: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """The items at these places; all of them, or none, as they came."""
    return items if len(items) in (0, len(places)) else [items[n] for n in places]


def _is_gone(result: Scheduled | Changed) -> bool:
    return result.change is Change.GONE


def _is_lost(result: Settled) -> bool:
    return result is Verdict.GONE
