"""What people and applications ask of recurrences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from relay.core.dispatch import Dispatch
from relay.core.errors import (
    InvalidField,
    OtherVersion,
    RecurrenceNotFound,
    StoreError,
    StoreUnavailable,
    TopicFull,
)
from relay.core.instants import LATEST, SECOND
from relay.core.partitions import Layout, involved
from relay.core.policy import Policies
from relay.core.ports import Layouts, RecurrenceStore, share
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import (
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
from relay.core.recurring.turns import backfilled, triggered
from relay.engine.partitioning import Partitioning
from relay.engine.recurring.kept_calendars import KeptCalendars
from relay.engine.recurring.ticker import turned
from relay.engine.recurring.tickers import Tickers
from relay.rules import TZDATA, check_pace, compile_rule

SHORTEST = SECOND
"""The shortest time between two nominal instants of a rule, in microseconds."""

MOST_SHOWN = 1_000
"""The most nominal instants that one call shows."""

MOST_FILLED = 500
"""The most nominal instants that one call fills in."""

MOST_BYTES_FILLED = 64 << 20
"""The most bytes of payload of what one call fills in, unless that is a single occurrence."""

MOST_LOOKED_AT = 10_000
"""The most nominal instants that a call looks at to find those, with the ones that are left out."""

TRIES = 20
"""How often a change is begun again that meets others of the same recurrence."""


class Backfilled(NamedTuple):
    """How many occurrences were made, and the nominal instants of the first and the last; None if none."""

    occurrences: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class _Change:
    """What a recurrence is to become, where it stands then, and what somebody does to it."""

    recurrence: Recurrence
    standing: Standing
    reason: str


class Recurrences:
    """The recurrences of all topics. Every change is made to what was read, or begun again."""

    def __init__(
        self,
        store: RecurrenceStore,
        calendars: KeptCalendars,
        layouts: Layouts,
        partitioning: Partitioning,
        policies: Policies,
        tickers: Tickers,
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
        self._due_at = due_at
        self._registered = registered

    async def put(
        self, topic: str, wanted: Recurrence, *, if_version: int | None = None
    ) -> tuple[StoredRecurrence, Put]:
        """Keep a recurrence, in the place of the one that has its id. One that is just as wanted already
        stays as it is. Its first nominal instant is after now; what the old rule has made by now stays, and
        instants that have passed by then are those of the old rule.

        With `if_version`, only if the recurrence has that version; 0 means that there is none. Raises
        `InvalidField`, `OtherVersion`.
        """
        self._check(topic, wanted)
        result = Put.CREATED

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            nonlocal result
            found = 0 if kept is None else kept.standing.version
            if if_version is not None and if_version != found:
                raise OtherVersion.of(wanted.recurrence_id, if_version, found)
            if kept is None:
                result = Put.CREATED
                following = await self._first(wanted.rule, now)
                return _Change(wanted, Standing(1, following, settled=now, tzdata=TZDATA), "put")
            if wanted == kept.recurrence:
                result = Put.UNCHANGED
                return None
            result = Put.REPLACED
            standing = replace(kept.standing, version=found + 1)
            if wanted.rule != kept.recurrence.rule or standing.next is None:
                settled = max(now, standing.settled)  # Redis' clock may have stepped back
                following = await self._first(wanted.rule, settled)
                standing = replace(standing, next=following, settled=settled, tzdata=TZDATA)
            return _Change(wanted, standing, "put")

        return await self._changed(topic, wanted.recurrence_id, change), result

    def _check(self, topic: str, wanted: Recurrence) -> None:
        dispatch = self._policies(topic).dispatch
        if dispatch is not Dispatch.LEASE and wanted.overlap is not Overlap.ALLOW:
            raise InvalidField(
                "overlap",
                f"is {wanted.overlap.value}, and the topic's due timers go to a {dispatch.value}, where "
                "nobody knows when they end; give allow",
            )

    async def _first(self, rule: Rule, now: int) -> int:
        """The first nominal instant of a new rule. That it fires at all is judged without its calendars,
        which change: today's may be all that it would fire on for hours. Raises `InvalidField`,
        `StoreError`."""
        (await self._as_they_are(rule)).require(rule.calendars)
        instants = compile_rule(rule)
        check_pace(rule, instants, now, SHORTEST)
        return next(iter(instants.after(now))).instant

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

    async def preview(self, rule: Rule, count: int, since: int) -> list[Nominal]:
        """Return the first nominal instants of a rule after an instant, those that are left out among them.
        Raises `InvalidField`."""
        if not 1 <= count <= MOST_SHOWN:
            raise InvalidField("count", f"is {count}; give 1 to {MOST_SHOWN}")
        calendars = await self._as_they_are(rule)
        calendars.require(rule.calendars)
        instants = compile_rule(rule, calendars=calendars.named(rule.calendars))
        return list(islice(instants.after(since), count))

    async def missing(self, rule: Rule) -> list[str]:
        """Return the calendars that a rule names and that do not exist; none while that is not known."""
        known = await self._calendars.for_tick() if rule.calendars else None
        return [] if known is None else known.missing(rule.calendars)

    async def pause(self, topic: str, recurrence_id: str, note: str = "") -> StoredRecurrence:
        """Let no occurrence come until `resume`; instants that pass are counted. One that is paused gets the
        note. Raises `RecurrenceNotFound`."""

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            standing = _there(topic, recurrence_id, kept).standing
            if standing.paused is not None and standing.note == note:
                return None
            since = now if standing.paused is None else standing.paused
            paused = replace(standing, version=standing.version + 1, paused=since, note=note)
            return _Change(_there(topic, recurrence_id, kept).recurrence, paused, "paused")

        return await self._changed(topic, recurrence_id, change, pauses=True)

    async def resume(self, topic: str, recurrence_id: str) -> StoredRecurrence:
        """End a pause. Raises `RecurrenceNotFound`."""

        async def change(kept: StoredRecurrence | None, now: int) -> _Change | None:
            standing = _there(topic, recurrence_id, kept).standing
            if standing.paused is None:
                return None
            going = replace(standing, version=standing.version + 1, paused=None, note="")
            return _Change(_there(topic, recurrence_id, kept).recurrence, going, "resumed")

        return await self._changed(topic, recurrence_id, change)

    async def remove(self, topic: str, recurrence_id: str) -> StoredRecurrence | None:
        """Remove a recurrence; return what it was, None if there was none. Its occurrences stay."""

        async def remove(layout: Layout) -> StoredRecurrence | None:
            partition = layout.partition(recurrence_id)
            for _ in range(TRIES):
                _, kept = await self._store.get(partition, recurrence_id)
                if kept is None or await self._store.remove(partition, kept):
                    return kept
            raise _too_busy(recurrence_id)

        return await self._partitioning.begin(topic, remove)

    async def trigger(self, topic: str, recurrence_id: str) -> str:
        """Make an occurrence now, beside the rule. Return its timer_id; empty if the one before has not
        ended and is in its way. Raises `RecurrenceNotFound`."""

        async def make(kept: StoredRecurrence, now: int) -> Turn:
            return triggered(kept, now)

        made = await self._made(topic, recurrence_id, make)
        return made.occurrences[0].timer_id if made.occurrences else ""

    async def backfill(
        self, topic: str, recurrence_id: str, since: int, until: int, *, apart: int = 0
    ) -> Backfilled:
        """Make occurrences for all nominal instants of the rule from `since` to before `until`, at most
        `MOST_FILLED`, whatever has come of these before; the next one is due `apart` microseconds after the
        one before. Raises `RecurrenceNotFound`, `InvalidField`."""
        filled: list[int] = []

        async def make(kept: StoredRecurrence, now: int) -> Turn:
            nonlocal filled
            if until > now:
                raise InvalidField("end_time", "is in the future; give an instant that has passed")
            rule = kept.recurrence.rule
            filled = _instants(rule, await self._calendars.of(rule), since, until)
            size = len(filled) * len(kept.recurrence.payload)
            if len(filled) > 1 and size > MOST_BYTES_FILLED:
                problem = f"has {len(filled)} instants before it, with {size:,} bytes of payload together"
                raise InvalidField("end_time", f"{problem}; give less time")
            if now + len(filled) * apart > LATEST:
                problem = f"puts the last of {len(filled)} after the year 9999; give a shorter one"
                raise InvalidField("interval", problem)
            return backfilled(kept, filled, now, apart)

        await self._made(topic, recurrence_id, make)
        return Backfilled(len(filled), filled[0] if filled else None, filled[-1] if filled else None)

    async def _made(
        self,
        topic: str,
        recurrence_id: str,
        make: Callable[[StoredRecurrence, int], Awaitable[Turn]],
    ) -> Turn:
        """Write a turn that somebody asks for."""

        async def write(layout: Layout) -> Turn:
            partition = layout.partition(recurrence_id)
            most = share(self._layouts, partition, self._policies(partition).max_waiting)
            for _ in range(TRIES):
                now, found = await self._store.get(partition, recurrence_id)
                made = await make(_there(topic, recurrence_id, found), now)
                self._tickers.follow(topic)
                (word,) = await self._store.turn(partition, [made], now, max_waiting=most)
                if word is Turned.FULL:
                    raise TopicFull.of(topic, self._policies(topic).max_waiting)
                if word is Turned.DONE:
                    for each in made.occurrences[:1]:
                        for name in involved(partition):
                            self._due_at(name, each.due)
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
                    return _there(topic, recurrence_id, kept)
                if await self._store.keep(
                    partition, kept, changed.recurrence, changed.standing, now, reason=changed.reason
                ):
                    for name in involved(partition):
                        self._tickers.due_at(name, changed.standing.next or LATEST)
                    return StoredRecurrence(
                        changed.recurrence, changed.standing, kept is not None and kept.stands, b""
                    )
            raise _too_busy(recurrence_id)

        return await self._partitioning.begin(topic, write)

    async def _overdue(self, kept: StoredRecurrence, now: int, *, pauses: bool) -> Turn | None:
        """The turn that a recurrence waits for; None if for none. A rule that this relay can't read makes
        none, and must be open to a better one."""
        if kept.standing.next is None or kept.standing.next > now:
            return None
        try:
            return turned(kept, now, await self._calendars.of(kept.recurrence.rule))
        except InvalidField:
            return None
        except StoreError:
            if pauses:
                return None
            raise


def _there(topic: str, recurrence_id: str, kept: StoredRecurrence | None) -> StoredRecurrence:
    if kept is None:
        raise RecurrenceNotFound.of(topic, recurrence_id)
    return kept


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
