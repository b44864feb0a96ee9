"""What people and applications ask of recurrences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from relay.core.dispatch import Dispatch
from relay.core.durability import needed
from relay.core.errors import (
    ContentSealed,
    InvalidField,
    OtherVersion,
    RecurrenceNotFound,
    StoreError,
    StoreUnavailable,
    TopicFull,
)
from relay.core.instants import LATEST, SECOND, micros
from relay.core.partitions import Layout, involved
from relay.core.policy import Policies
from relay.core.ports import Layouts, RecurrenceStore, share
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import (
    Filling,
    Overlap,
    Put,
    Recurrence,
    RecurrencePage,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import backfilled, look_at, triggered
from relay.engine.recurring.turning import turned
from relay.rules import TZDATA, check_pace, compile_rule

MOST_SHOWN = 1_000
"""The most nominal instants that one call shows."""

LONGEST_PREVIEW = 5.0
"""Seconds after which no further instants are computed to be shown: others wait for the thread."""

MOST_FILLED = 500
"""The most nominal instants that one call fills in, with those of other backfills that wait for their
turn."""

MOST_BYTES_FILLED = 64 << 20
"""The most bytes of payload of what one call fills in, unless that is a single occurrence."""

MOST_LOOKED_AT = 10_000
"""The most nominal instants that a call looks at to find those, with the ones that are left out."""

MOST_AHEAD = 86_400 * SECOND
"""How far ahead of now instants may be settled, in microseconds. What is settled further ahead was so by a
clock of Redis that was wrong, and would be silent until then."""

TRIES = 20
"""How often a change is begun again that meets others of the same recurrence."""


T = TypeVar("T")


class ByLayout(Protocol):  # see 0095
    """Makes calls by the layouts of topics, as `Partitioning` does."""

    async def begin(self, topic: str, work: Callable[[Layout], Awaitable[T]]) -> T:
        """See `Partitioning.begin`."""
        ...


class Ticking(Protocol):
    """What ticks, as `Tickers` do."""

    def follow(self, topic: str) -> None:
        """Tick for a topic from now on."""
        ...

    def due_at(self, partition: str, instant: int) -> None:
        """Look at a partition at `instant` at the latest (microseconds)."""
        ...


class ComputesRules(Protocol):
    """Does what may take long, as `Computing` does."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do it, and return or raise what it does."""
        ...

    async def compile(self, rule: Rule) -> None:
        """Have a rule compiled."""
        ...


class ReadsCalendars(Protocol):
    """Reads calendars, as `KeptCalendars` does."""

    async def read(self) -> KnownCalendars:
        """Return all calendars as they are now."""
        ...

    async def of(self, rule: Rule) -> KnownCalendars:
        """What somebody who changes a recurrence of this rule has to know."""
        ...

    async def for_tick(self) -> KnownCalendars | None:
        """Return what a tick goes by; None if none were read."""
        ...


class Backfilled(NamedTuple):
    """How many occurrences were made or wait for their turn, the nominal instants of the first and the last,
    None if none, and how many of them wait."""

    occurrences: int
    first: int | None
    last: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class _Change:
    """What a recurrence is to become, where it stands then, and what somebody does to it."""

    recurrence: Recurrence
    standing: Standing
    reason: str


async def _unheard(_: object) -> None:
    """Nobody wants to hear of it."""


class Recurrences:
    """The recurrences of all topics. Every change is made to what was read, or begun again."""

    def __init__(
        self,
        store: RecurrenceStore,
        calendars: ReadsCalendars,
        layouts: Layouts,
        partitioning: ByLayout,
        policies: Policies,
        tickers: Ticking,
        computing: ComputesRules,
        due_at: Callable[[str, int], None],
        registered: Callable[[str], None],
    ) -> None:
        """`due_at` is told the due times of occurrences, `registered` the topics that have recurrences."""
        self._store = store
        self._calendars = calendars
        self._layouts = layouts
        self._partitioning = partitioning
        self._policies = policies
        self._tickers = tickers
        self._computing = computing
        self._due_at = due_at
        self._registered = registered

    async def put(
        self,
        topic: str,
        wanted: Recurrence,
        *,
        if_version: int | None = None,
        intends: Callable[[StoredRecurrence | None], Awaitable[None]] = _unheard,
    ) -> tuple[StoredRecurrence, Put]:
        """Keep a recurrence, in the place of the one that has its id. One that is just as wanted already
        stays as it is. Its first nominal instant is after now; what the old rule has made by now stays, and
        instants that have passed by then are those of the old rule.

        With `if_version`, only if the recurrence has that version; 0 means that there is none. `intends` is
        told what stands, before each try to change it. Raises `InvalidField`, `SubjectForgotten`,
        `OtherVersion`.
        """
        self._check_overlap(topic, wanted.overlap)
        result = Put.CREATED

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            nonlocal result
            found = 0 if kept is None else kept.standing.version
            if if_version is not None and if_version != found:
                raise OtherVersion.of(wanted.recurrence_id, if_version, found)
            if kept is None:
                result = Put.CREATED
                following = await self._first(topic, wanted.rule, now)
                await intends(None)
                return _Change(wanted, Standing(1, following, settled=now, tzdata=TZDATA), "put")
            if wanted == kept.recurrence and not kept.forgotten:
                result = Put.UNCHANGED
                return None
            result = Put.REPLACED
            standing = replace(kept.standing, version=found + 1)
            if _is_ahead(standing, now):
                standing = await self._from_now(wanted, standing, now)
            if wanted.rule != kept.recurrence.rule or standing.next is None:
                settled = max(now, standing.settled)  # Redis' clock may have stepped back
                following = await self._first(topic, wanted.rule, settled)
                standing = replace(standing, next=following, settled=settled, tzdata=TZDATA)
            await intends(kept)
            return _Change(wanted, standing, "put")

        return await self._changed(topic, wanted.recurrence_id, change), result

    def _check_overlap(self, topic: str, overlap: Overlap) -> None:
        dispatch = self._policies(topic).dispatch
        if dispatch is not Dispatch.LEASE and overlap is not Overlap.ALLOW:
            raise InvalidField(
                "overlap",
                f"is {overlap.value}, and the topic's due timers go to a {dispatch.value}, where "
                "nobody knows when they end; give allow",
            )

    async def _first(self, topic: str, rule: Rule, now: int) -> int:
        """The first nominal instant of a new rule. That it fires at all is judged without its calendars,
        which change: today's may be all that it would fire on for hours. Raises `InvalidField`,
        `StoreError`."""
        (await self._as_they_are(rule)).require(rule.calendars)
        shortest = self._shortest(topic)

        def first() -> int:
            instants = compile_rule(rule)
            check_pace(rule, instants, now, shortest)
            return next(iter(instants.after(now))).instant

        return await self._computing.run(first)

    async def _from_now(self, wanted: Recurrence, standing: Standing, now: int) -> Standing:
        """Where a recurrence stands that goes on from now, although instants ahead are settled."""
        following = None
        if not 0 < wanted.max_runs <= standing.runs:
            following = await self._computing.run(
                lambda: next(iter(compile_rule(wanted.rule).after(now)), None)
            )
        return replace(
            standing,
            next=None if following is None else following.instant,
            settled=now,
            tzdata=TZDATA,
            filling=_due_from(now, standing.filling),
        )

    def _shortest(self, topic: str) -> int:
        return micros(self._policies(topic).min_recurrence_interval)

    async def _as_they_are(self, rule: Rule) -> KnownCalendars:
        """The calendars that a rule names, as they are now: one that was put before this call counts,
        whichever relay that was put through."""
        return await self._calendars.read() if rule.calendars else NO_CALENDARS

    async def get(self, topic: str, recurrence_id: str) -> StoredRecurrence:
        """Return a recurrence. Raises `RecurrenceNotFound`."""
        _, kept = await self._partitioning.begin(
            topic, lambda layout: self._store.get(layout.partition(recurrence_id), recurrence_id)
        )
        if kept is None:
            raise RecurrenceNotFound.of(topic, recurrence_id)
        return kept

    async def page(self, topic: str, *, prefix: str, limit: int, cursor: str) -> RecurrencePage:
        """Return a page of a topic's recurrences; see `RecurrenceStore.page`."""
        return await self._partitioning.begin(
            topic, lambda layout: self._store.page(layout, prefix=prefix, limit=limit, cursor=cursor)
        )

    async def preview(
        self,
        rule: Rule,
        count: int,
        since: int,
        *,
        topic: str = "",
        until: int | None = None,
        at_least: int = 1,
    ) -> list[Nominal]:
        """Return the first nominal instants of a rule after an instant, those that are left out among them:
        `count` at most. They end with the first one that is not before `until`, or behind it with number
        `at_least`. With a `topic`, refuse a rule that fires more often than the topic allows, or never.
        Raises `InvalidField`."""
        if not 1 <= count <= MOST_SHOWN:
            raise InvalidField("count", f"is {count}; give 1 to {MOST_SHOWN}")
        calendars = await self._as_they_are(rule)
        calendars.require(rule.calendars)

        def shown() -> list[Nominal]:
            instants = compile_rule(rule)
            if topic:
                check_pace(rule, instants, since, self._shortest(topic))
            instants = compile_rule(rule, calendars=calendars.named(rule.calendars))
            found: list[Nominal] = []
            began = monotonic()
            for each in islice(instants.after(since), count):
                found.append(each)
                if until is not None and each.instant >= until and len(found) >= at_least:
                    break
                if len(found) < count and monotonic() - began > LONGEST_PREVIEW:
                    problem = f"is {count}, and this rule is computed no further than {len(found)} instants"
                    raise InvalidField("count", f"{problem} within {LONGEST_PREVIEW:g} s; give fewer")
            return found

        return await self._computing.run(shown)

    async def missing(self, rule: Rule) -> list[str]:
        """Return the calendars that a rule names and that do not exist; none while that is not known."""
        known = await self._calendars.for_tick() if rule.calendars else None
        return [] if known is None else known.missing(rule.calendars)

    async def pause(self, topic: str, recurrence_id: str, note: str = "") -> StoredRecurrence:
        """Let no occurrence come until `resume`; instants that pass are counted. One that is paused gets the
        note. Raises `RecurrenceNotFound`, and `ContentSealed` if its subject was forgotten."""

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            found = _readable(topic, recurrence_id, kept)
            standing = found.standing
            if standing.paused is not None and standing.note == note:
                return None
            since = now if standing.paused is None else standing.paused
            paused = replace(standing, version=standing.version + 1, paused=since, note=note)
            return _Change(found.recurrence, paused, "paused")

        return await self._changed(topic, recurrence_id, change, pauses=True)

    async def resume(self, topic: str, recurrence_id: str) -> StoredRecurrence:
        """End a pause. One that is settled more than `MOST_AHEAD`, by a clock that was wrong, goes on from
        now, whether or not it is paused. Raises as `pause` does."""

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            found = _readable(topic, recurrence_id, kept)
            standing = found.standing
            if standing.paused is None and not _is_ahead(standing, now):
                return None
            filling = _due_from(now, standing.filling)
            going = replace(standing, version=standing.version + 1, paused=None, note="", filling=filling)
            if _is_ahead(standing, now):
                going = await self._from_now(found.recurrence, going, now)
            return _Change(found.recurrence, going, "resumed")

        return await self._changed(topic, recurrence_id, change)

    async def remove(self, topic: str, recurrence_id: str) -> StoredRecurrence | None:
        """Remove a recurrence; return what it was, None if there was none. Its occurrences stay."""

        async def remove(layout: Layout) -> StoredRecurrence | None:
            partition = layout.partition(recurrence_id)
            for _ in range(TRIES):
                now, kept = await self._store.get(partition, recurrence_id)
                if kept is None:
                    await self._found_done(partition, now)
                    return None
                if await self._store.remove(partition, kept):
                    return kept
            raise _too_busy(recurrence_id)

        return await self._partitioning.begin(topic, remove)

    async def occurrences(self, topic: str, recurrence_id: str) -> list[str]:
        """Return the timer_ids of all occurrences that have not ended; see `RecurrenceStore.occurrences`."""
        return await self._partitioning.begin(
            topic, lambda layout: self._store.occurrences(layout, recurrence_id)
        )

    async def trigger(self, topic: str, recurrence_id: str) -> str:
        """Make an occurrence now, beside the rule. Return its timer_id; empty if the one before has not
        ended and is in its way. Raises as `pause` does."""

        async def make(kept: StoredRecurrence, now: int) -> Turn:
            return triggered(kept, now)

        made = await self._made(topic, recurrence_id, make)
        return made.occurrences[0].timer_id if made.occurrences else ""

    async def backfill(
        self,
        topic: str,
        recurrence_id: str,
        since: int,
        until: int,
        *,
        apart: int = 0,
        overlap: Overlap | None = None,
    ) -> Backfilled:
        """Make occurrences for all nominal instants of the rule from `since` to before `until`, at most
        `MOST_FILLED`, whatever has come of these before; the next one is due `apart` microseconds after the
        one before. With another `overlap` than ALLOW, which the recurrence's own is unless one is given, the
        next one comes when the one before has ended as well. Raises as `pause` does, and `InvalidField`."""
        filled: list[int] = []
        if overlap is not None:
            self._check_overlap(topic, overlap)

        async def make(kept: StoredRecurrence, now: int) -> Turn:
            nonlocal filled
            if until > now:
                raise InvalidField("end_time", "is in the future; give an instant that has passed")
            rule = kept.recurrence.rule
            calendars = await self._calendars.of(rule)
            filled = await self._computing.run(partial(_instants, rule, calendars, since, until))
            size = len(filled) * len(kept.recurrence.payload)
            if len(filled) > 1 and size > MOST_BYTES_FILLED:
                problem = f"has {len(filled)} instants before it, with {size:,} bytes of payload together"
                raise InvalidField("end_time", f"{problem}; give less time")
            if now + len(filled) * apart > LATEST:
                problem = f"puts the last of {len(filled)} after the year 9999; give a shorter one"
                raise InvalidField("interval", problem)
            policy = kept.recurrence.overlap if overlap is None else overlap
            waiting = 0 if policy is Overlap.ALLOW else kept.standing.to_fill
            if waiting and len(filled) + waiting > MOST_FILLED:
                problem = f"has {len(filled)} instants before it, and {waiting} of another backfill wait"
                raise InvalidField("end_time", f"{problem}; give less time, or call later")
            return backfilled(kept, filled, now, apart, policy)

        made = await self._made(topic, recurrence_id, make)
        first, last = (filled[0], filled[-1]) if filled else (None, None)
        return Backfilled(len(filled), first, last, len(filled) - len(made.occurrences))

    async def _made(
        self, topic: str, recurrence_id: str, make: Callable[[StoredRecurrence, int], Awaitable[Turn]]
    ) -> Turn:
        """Write a turn that somebody asks for."""

        async def write(layout: Layout) -> Turn:
            partition = layout.partition(recurrence_id)
            most = share(self._layouts, partition, self._policies(partition).max_waiting)
            for _ in range(TRIES):
                now, found = await self._store.get(partition, recurrence_id)
                made = await make(_readable(topic, recurrence_id, found), now)
                self._tickers.follow(topic)
                (word,) = await self._store.turn(partition, [made], now, max_waiting=most)
                if word is Turned.FULL:
                    raise TopicFull.of(topic, self._policies(topic).max_waiting)
                if word is Turned.DONE:
                    for name in involved(partition):
                        for each in made.occurrences[:1]:
                            self._due_at(name, each.due)
                        self._tickers.due_at(name, look_at(made.standing, now) or LATEST)
                    return made
            raise _too_busy(recurrence_id)

        return await self._partitioning.begin(topic, write)

    async def _changed(
        self,
        topic: str,
        recurrence_id: str,
        change: Callable[[StoredRecurrence | None, int], Awaitable[_Change | None]],
        *,
        pauses: bool = False,
    ) -> StoredRecurrence:
        """Change a recurrence; `change` says what it is to be, None to leave it. Instants that have passed
        are settled by the old rule first, so that each has an occurrence or a reason. Where the topic has no
        room for that, or the rule's calendars can't be read, what `pauses` it is done nevertheless: they are
        counted as paused then."""

        async def write(layout: Layout) -> StoredRecurrence:
            partition = layout.partition(recurrence_id)
            most = share(self._layouts, partition, self._policies(partition).max_waiting)
            for _ in range(TRIES):
                now, kept = await self._store.get(partition, recurrence_id)
                overdue = None if kept is None else await self._overdue(kept, now, pauses=pauses)
                if overdue is not None:
                    (word,) = await self._store.turn(partition, [overdue], now, max_waiting=most)
                    if word is not Turned.FULL:
                        continue
                    if not pauses:
                        raise TopicFull.of(topic, self._policies(topic).max_waiting)
                changed = await change(kept, now)
                self._tickers.follow(topic)  # now that it is known that somebody means this topic
                self._registered(topic)
                if changed is None:
                    await self._found_done(partition, now)
                    return _there(topic, recurrence_id, kept)
                if await self._store.keep(
                    partition, kept, changed.recurrence, changed.standing, now, reason=changed.reason
                ):
                    for name in involved(partition):
                        self._tickers.due_at(name, look_at(changed.standing, now) or LATEST)
                    return StoredRecurrence(
                        changed.recurrence, changed.standing, kept is not None and kept.stands, b""
                    )
            raise _too_busy(recurrence_id)

        return await self._partitioning.begin(topic, write)

    async def settle(self, topic: str) -> None:
        """Wait until all that was put in a topic before is as durable as a change has to be here."""

        async def wait(layout: Layout) -> None:
            await asyncio.gather(*(self._found_done(partition, 0) for partition in layout.partitions))

        await self._partitioning.begin(topic, wait)

    async def _found_done(self, partition: str, now: int) -> None:  # see 0096
        """Wait until what was found done is as durable as a change has to be here.

        This has a race: a first try has done it, and has ended before that was durable. The second try finds
        nothing to do, and no wait either, and its OK would stand for nothing. A call that turns no recurrence
        has the wait of a change.
        """
        if needed().waits:
            await self._store.turn(partition, (), now)

    async def _overdue(self, kept: StoredRecurrence, now: int, *, pauses: bool) -> Turn | None:
        """The turn that a recurrence waits for; None if for none. A rule that this relay can't read makes
        none, and must be open to a better one."""
        if kept.standing.next is None or kept.standing.next > now:
            return None
        await self._computing.compile(kept.recurrence.rule)
        try:
            return turned(kept, now, await self._calendars.of(kept.recurrence.rule))
        except InvalidField:
            return None
        except StoreError:
            if pauses:
                return None
            raise


def _is_ahead(standing: Standing, now: int) -> bool:
    return standing.settled > now + MOST_AHEAD


def _due_from(now: int, filling: Sequence[Filling]) -> tuple[Filling, ...]:
    """Backfills whose next occurrence waits no longer than it does behind one that comes now: Redis' clock
    may have been ahead as the last one came."""
    return tuple(replace(each, due=min(each.due, now + each.apart)) for each in filling)


def _there(topic: str, recurrence_id: str, kept: StoredRecurrence | None) -> StoredRecurrence:
    if kept is None:
        raise RecurrenceNotFound.of(topic, recurrence_id)
    return kept


def _readable(topic: str, recurrence_id: str, kept: StoredRecurrence | None) -> StoredRecurrence:
    """A recurrence that can be kept with another standing, as that writes its content again."""
    found = _there(topic, recurrence_id, kept)
    if found.forgotten:
        problem = f"the subject of recurrence {recurrence_id!r} was forgotten, and it ends"
        raise ContentSealed(f"{problem}; delete it, or put it with another content")
    return found


def _instants(rule: Rule, calendars: KnownCalendars, since: int, until: int) -> list[int]:
    found: list[int] = []
    instants = compile_rule(rule, calendars=calendars.named(rule.calendars))
    for number, nominal in enumerate(instants.after(since - 1)):
        if nominal.instant >= until:
            break
        if number == MOST_LOOKED_AT:  # the event loop has other work
            problem = f"has more than {number:,} instants before it, with those that are left out"
            raise InvalidField("end_time", f"{problem}; give less time")
        if nominal.left_out:
            continue
        if len(found) == MOST_FILLED:
            raise InvalidField("end_time", f"has more than {MOST_FILLED} instants before it; give less time")
        found.append(nominal.instant)
    return found


def _too_busy(recurrence_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"recurrence {recurrence_id!r} is being changed all the time; try again")
