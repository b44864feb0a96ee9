"""Protocols that look as if they held, each by one change to the scripts or to the daemon's code.

Most are those that the explicit-state model of the protocol was tried with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast
from unittest.mock import patch

from relay.core.errors import OtherLayout
from relay.core.outcomes import Verb
from relay.core.partitions import LEAVING, Layout, layout_of, topic_of
from relay.core.timers import StoredTimer
from relay.store.partitions import timers as timers_module
from relay.store.partitions.carrying import Carried, Carrier
from relay.store.partitions.moves import Moved, RedisMoves
from relay.store.partitions.timers import PartitionedTimers
from relay.store.server.errors import Leaving
from relay.store.server.scripts import Argument
from relay.store.verbs import move
from tests.properties.resharding_daemon import AS_THEY_ARE, Kinds
from tests.properties.resharding_world import Plan
from tests.worlds.scripts.rules import Break

R = TypeVar("R")

_REFUSAL = "if epoch_of(stands) >= epoch_of(text) then return fail('LAYOUT', stands) end"
_RAISE = "if now_us and epoch_of(stands) < epoch_of(text) then raise(stands) end"
"""A newer caller's layout is kept, and an older caller is let in."""


# --------------------------------------------------------------------------- in the daemon's code


Write: TypeAlias = Callable[[str, Sequence[int]], Awaitable[Sequence[R]]]


class NoteSkipped(PartitionedTimers):
    """Whoever hears that a timer is on its way goes to the new place at once."""

    async def _led(
        self, partition: str, count: int, write: Write[R], is_gone: Callable[[R], bool]
    ) -> list[R]:
        try:
            return await super()._led(partition, count, write, is_gone)
        except Leaving:
            return list(await write(_filled(partition), range(count)))

    async def _carrying(self, partition: str, call: Callable[[], Awaitable[R]]) -> R:
        return await call()


class NewFirst(PartitionedTimers):
    """The new place is asked first, and the old one for what is not there."""

    async def _led(
        self, partition: str, count: int, write: Write[R], is_gone: Callable[[R], bool]
    ) -> list[R]:
        if not partition.endswith(LEAVING):
            return await super()._led(partition, count, write, is_gone)
        results = list(await write(_filled(partition), range(count)))
        if any(is_gone(result) for result in results):
            return list(await self._carrying(partition, lambda: write(partition, range(count))))
        return results

    async def get(self, partition: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        if not partition.endswith(LEAVING):
            return await super().get(partition, timer_id, with_content=with_content)
        found = await self._timers.get(_filled(partition), timer_id)
        if found is not None:
            return found
        return await self._carrying(partition, lambda: self._timers.get(partition, timer_id))


class SameStage(PartitionedTimers):
    """Whoever is refused for an older layout goes on where he was, by the newer one."""

    async def _led(
        self, partition: str, count: int, write: Write[R], is_gone: Callable[[R], bool]
    ) -> list[R]:
        at_new = False

        async def noted(place: str, some: Sequence[int]) -> Sequence[R]:
            nonlocal at_new
            at_new = partition.endswith(LEAVING) and place != partition
            return await write(place, some)

        try:
            return await super()._led(partition, count, noted, is_gone)
        except OtherLayout:
            newest = self._layouts.known(topic_of(partition))
            if not at_new or newest is None or not newest.towards:
                raise
            emptied = newest.emptied[0]
            return list(await write(newest.filled(emptied), range(count)))


def _filled(partition: str) -> str:
    return layout_of(partition).filled(partition)


class LeftFirst(Carrier):
    """The note is removed before the batch is put."""

    async def _carry(self, layout: Layout, partition: str, batch: Sequence[bytes]) -> Carried:
        here = partition.removesuffix(LEAVING)
        await self._server.call(move.left(here, batch[0]))
        await self._server.call(move.put(layout.filled(partition), batch))
        return Carried(batch[1::2], True, ())


class ClosesEarly(RedisMoves):
    """The move is closed when the first partition is empty."""

    async def run(self, layout: Layout, moved: Moved) -> None:
        for kind in cast("tuple[move.Kind, ...]", ("t", "d")):
            while not await self._empty(layout, layout.emptied[0], kind, 500, moved):
                pass
        await self._change(layout, Layout(layout.topic, layout.epoch + 1, layout.towards))


class VisitedKept(RedisMoves):
    """What was found empty by one layout counts in the next moves, too."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._visited: set[tuple[str, str]] = set()

    async def _empty(self, layout: Layout, partition: str, kind: move.Kind, size: int, moved: Moved) -> bool:
        visit = partition.partition(" ")[0], kind
        if visit in self._visited:
            return True
        empty = await super()._empty(layout, partition, kind, size, moved)
        if empty:
            self._visited.add(visit)
        return empty


class TimersOnly(RedisMoves):
    """Dead letters stay."""

    async def run(self, layout: Layout, moved: Moved) -> None:
        for partition in layout.emptied:
            while not await self._empty(layout, partition, "t", 500, moved):
                pass
        await self._change(layout, Layout(layout.topic, layout.epoch + 1, layout.towards))


class Unmarked(Carrier):
    """A pass that found nothing counts, whoever took out or gave back meanwhile."""

    async def mark(self, partition: str) -> tuple[str, Sequence[bytes]]:
        _, batch = await super().mark(partition)
        return "", batch


class NoteUnseen(RedisMoves):
    """Nobody looks for a batch that is on its way when a pass ends."""

    async def _empty(self, layout: Layout, partition: str, kind: move.Kind, size: int, moved: Moved) -> bool:
        found = False
        async for _, names in (self._timers if kind == "t" else self._letters)(layout, partition):
            for name in names:
                while (carried := await self._carrier.take(layout, partition, kind, [name])) is not None:
                    found = True
                    await moved(len(carried.names))
        return not found


class LettersOnly(Carrier):
    """A redrive does not look for who lives at the old place."""

    async def take(
        self, layout: Layout, partition: str, kind: move.Kind, names: Sequence[Argument]
    ) -> Carried | None:
        return None if kind == "t" else await super().take(layout, partition, kind, names)


def _settles_here() -> AbstractContextManager[Any]:
    return patch.object(timers_module, "_is_lost", lambda _: False)


# --------------------------------------------------------------------------- all of them


@dataclass(frozen=True)
class Bug:
    """What is changed, of scripts in those `rooms`, and in which runs it is looked for."""

    plan: Plan
    breaks: tuple[Break, ...] = ()
    rooms: tuple[str, ...] = ("",)
    kinds: Kinds = AS_THEY_ARE
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext


MOVERS = Plan(clients=0, relays=0, moves=3, deaths=3)
CLIENTS = Plan(relays=0)
RELAYS = Plan(clients=1, ops=1, kinds=("schedule", "cancel"))
VIEWS = Plan(relays=0, movers=1)
STALE = Plan(relays=1, moves=3, late=3)
FULL = Plan(
    kinds=("cancel", "schedule", "get"), relays=0, moves=1, history=0, full=3, at_first=True, begun=True
)
QUIET = Plan(lost=0, late=0, deaths=0, full=0, ticks=0, moves=1, base=1, at_first=True)
BACK = replace(QUIET, kinds=("cancel", "schedule"), relays=0, history=0, moves=0, full=1, ids="a", begun=True)
PASSES = replace(
    QUIET,
    clients=0,
    relays=0,
    history=0,
    moves=0,
    full=1,
    ids="a",
    begun=True,
    # The second one gives back what it has taken out between the first one's looks.
    order=(0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0),
)
REDRIVES = replace(QUIET, kinds=("redrive", "cancel"), outcomes=(Verb.REJECT,), ids="a", dead=True)
PAUSED = replace(QUIET, clients=0, claims=4, outcomes=(Verb.NACK,), movers=1, history=1, operator=1)
TOLD = replace(PAUSED, movers=0, claims=2)
PLANS = (
    Plan(),
    Plan(operator=1),
    MOVERS,
    CLIENTS,
    RELAYS,
    VIEWS,
    STALE,
    FULL,
    BACK,
    PASSES,
    REDRIVES,
    PAUSED,
    TOLD,
)
"""What is searched for a violation of the protocol as it is."""

_ALL_CALLS = ("timeline/schedule", "timeline/cancel", "timeline/run", "timeline/get", "timeline/settle")

NO_GATE = Break("lib/layout", "older-layout-refused", _RAISE, lines=2)

BUGS: dict[str, Bug] = {
    "a batch arrives again": Bug(STALE, (Break("lib/move", "batches-arrive-once"),)),
    "the old place takes timers in": Bug(CLIENTS, (Break("timeline/schedule", "leaving-takes-nothing-in"),)),
    "what is on its way is taken for gone": Bug(CLIENTS, (Break("lib/layout", "noted-timers-wait"),)),
    "what is on its way is not waited for": Bug(CLIENTS, kinds=Kinds(timers=NoteSkipped)),
    "the new place is asked first": Bug(CLIENTS, kinds=Kinds(timers=NewFirst)),
    "older layouts are not refused": Bug(
        VIEWS,
        (NO_GATE,),
    ),
    "the new place does not refuse older layouts": Bug(
        VIEWS,
        (
            Break(
                "lib/layout",
                "older-layout-refused",
                f"if here.leaving then {_REFUSAL} end\n{_RAISE}",
                lines=2,
            ),
        ),
        rooms=_ALL_CALLS,
    ),
    "outcomes by an older layout are taken": Bug(
        RELAYS,
        (NO_GATE,),
        rooms=("timeline/settle",),
    ),
    "a place takes any layout": Bug(VIEWS, (Break("lib/layout", "older-layout-refused"),)),
    "the note is removed before the put": Bug(MOVERS, kinds=Kinds(carrier=LeftFirst)),
    "any note is removed": Bug(STALE, (Break("lib/move", "other-batches-stay"),)),
    "a batch over the one on its way": Bug(MOVERS, (Break("move/leave", "one-batch-at-a-time"),)),
    "leases stay behind": Bug(RELAYS, (Break("lib/move", "leases-move-too"),)),
    "closed when the first partition is empty": Bug(MOVERS, kinds=Kinds(moves=ClosesEarly)),
    "what was empty once counts for ever": Bug(MOVERS, kinds=Kinds(moves=VisitedKept)),
    "dead letters stay": Bug(RELAYS, kinds=Kinds(moves=TimersOnly)),
    "a redrive overlooks who lives at the old place": Bug(REDRIVES, kinds=Kinds(redriver=LettersOnly)),
    "an outcome is not taken to the new place": Bug(RELAYS, patched=_settles_here),
    "the new place decides about new timers": Bug(
        CLIENTS,
        (
            Break(
                "timeline/schedule",
                "leaving-takes-nothing-in",
                "(not there or string.find(options, 'c', 1, true))",
                old="not there",
            ),
        ),
    ),
    "two batches of one name": Bug(
        MOVERS,
        (Break("move/leave", "batches-have-later-names", "now_us", old="math.max(last + 1, now_us)"),),
    ),
    "a pass counts whatever others did": Bug(PASSES, kinds=Kinds(carrier=Unmarked)),
    "a pass ends without a look for a batch": Bug(MOVERS, kinds=Kinds(moves=NoteUnseen)),
    "a layout is changed unseen": Bug(MOVERS, (Break("layout/change", "changes-by-comparison"),)),
    "a batch that went back has been put": Bug(
        FULL, (Break("move/put", "refusals-stay", "if as then return answer({ 'PUT' }) end"),)
    ),
    "a batch that was put goes back": Bug(
        BACK, (Break("move/void", "arrivals-stay", "if as then return answer('VOID') end"),)
    ),
    "a refusal is forgotten": Bug(BACK, (Break("move/void", "refusals-are-remembered"),)),
    "a batch is not noted": Bug(MOVERS, (Break("move/leave", "batches-are-noted"),)),
    "whoever is refused goes on where he was": Bug(VIEWS, kinds=Kinds(timers=SameStage)),
    "leases are lost with the first layout": Bug(RELAYS, (Break("layout/change", "lease-records-make-way"),)),
    "a newer layout is not kept": Bug(VIEWS, (Break("lib/layout", "newer-layout-kept"),)),
    "a partition that comes is taken for not paused": Bug(
        PAUSED, (Break("lib/layout", "pause-asked-for-anew", "here.pause_unknown = false"),)
    ),
    "claims don't wait to be told of a pause": Bug(PAUSED, (Break("timeline/claim", "unknown-pauses-hold"),)),
    "a partition is told of an older pause": Bug(
        TOLD, (Break("layout/tell_pause", "newer-pauses-stay", "if true then"),)
    ),
}
