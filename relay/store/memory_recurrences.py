"""Recurrences and calendars in dictionaries: the contracts of `relay.core.ports.RecurrenceStore` and
`CalendarStore` without Redis."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relay.core.errors import InvalidField
from relay.core.partitions import Layout, hashed, own_name, place_of
from relay.core.recurring.calendars import MOST_CALENDARS, NO_CALENDARS, KnownCalendars
from relay.core.recurring.ends import NO_JOURNAL, NOT_RECORDED, Became, Trail
from relay.core.recurring.recurrence import (
    Due,
    Put,
    Recurrence,
    RecurrencePage,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import look_at
from relay.core.timers import NewTimer
from relay.store.codec.recurrence_text import write_standing
from relay.store.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class _Record:
    """A recurrence as it is kept; `look` is when to look at it, None for never."""

    recurrence: Recurrence
    standing: Standing
    look: int | None


class MemoryRecurrences:
    """A `RecurrenceStore` beside the timers of a `MemoryStore`, with the same clock (microseconds). It writes
    no journal, and knows of no moves."""

    def __init__(self, timers: MemoryStore, clock: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._places: dict[str, dict[str, _Record]] = {}
        """By partition and recurrence_id."""

    async def get(self, topic: str, recurrence_id: str) -> tuple[int, StoredRecurrence | None]:
        """See `RecurrenceStore.get`."""
        record = self._records(topic).get(recurrence_id)
        return self._clock(), None if record is None else await self._stored(topic, record)

    async def due(self, topic: str, limit: int, *, skip: int = 0) -> Due:
        """See `RecurrenceStore.due`."""
        now = self._clock()
        looks = sorted(
            (record.look, name) for name, record in self._records(topic).items() if record.look is not None
        )
        due = [name for look, name in looks if look <= now][skip:][:limit]
        kept = [await self._stored(topic, self._records(topic)[name]) for name in due]
        return Due(now, next((look for look, _ in looks[skip + len(due) :]), None), kept)

    async def turn(
        self, topic: str, turns: Sequence[Turn], now: int, *, max_waiting: int = 0
    ) -> list[Turned]:
        """See `RecurrenceStore.turn`."""
        return [await self._turn(topic, each, now, max_waiting) for each in turns]

    async def _turn(self, topic: str, turn: Turn, now: int, max_waiting: int) -> Turned:
        wanted = turn.kept.recurrence
        record = self._records(topic).get(wanted.recurrence_id)
        if record is None or write_standing(record.standing) != turn.kept.stamp:
            return Turned.OTHER
        if await self._lives(topic, record.standing.last) is not turn.kept.stands:
            return Turned.OTHER
        coming = [each for each in turn.occurrences if not await self._lives(topic, each.timer_id)]
        frees = await self._lives(topic, turn.cancel)
        if 0 < max_waiting < len(self._timers.ids(topic)) - frees + len(coming):
            return Turned.FULL
        if frees:
            await self._timers.cancel(topic, [turn.cancel])
        occurrences = [
            NewTimer(
                each.timer_id,
                wanted.payload,
                due=each.due,
                headers=each.headers,
                content_type=wanted.content_type,
                expires_after=wanted.expires_after,
            )
            for each in coming
        ]
        if occurrences:
            await self._timers.schedule(topic, occurrences)
        self._write(topic, record.recurrence, turn.standing, now)
        return Turned.DONE

    async def keep(
        self,
        topic: str,
        before: StoredRecurrence | None,
        recurrence: Recurrence,
        standing: Standing,
        now: int,
        *,
        reason: str,
    ) -> bool:
        """See `RecurrenceStore.keep`."""
        if self._stamp(topic, recurrence.recurrence_id) != (b"" if before is None else before.stamp):
            return False
        self._write(topic, recurrence, standing, now)
        return True

    async def remove(self, topic: str, kept: StoredRecurrence) -> bool:
        """See `RecurrenceStore.remove`."""
        name = kept.recurrence.recurrence_id
        if self._stamp(topic, name) != kept.stamp:
            return False
        del self._records(topic)[name]
        return True

    async def occurrences(self, layout: Layout, recurrence_id: str) -> list[str]:
        """See `RecurrenceStore.occurrences`."""
        begin = f"{recurrence_id}@"
        names = self._timers.ids(own_name(layout.partition(recurrence_id)))
        return sorted(name for name in names if name.startswith(begin) and hashed(name) == recurrence_id)

    async def page(self, layout: Layout, *, prefix: str, limit: int, cursor: str) -> RecurrencePage:
        """See `RecurrenceStore.page`. Raises `InvalidField`."""
        after = _read_cursor(cursor)
        found = {
            name.encode(): (topic, record)
            for topic in layout.partitions
            for name, record in self._records(topic).items()
            if name.startswith(prefix) and name.encode() > after
        }
        names = sorted(found)
        kept = [await self._stored(*found[name]) for name in names[:limit]]
        more = len(names) > limit
        return RecurrencePage(kept, base64.urlsafe_b64encode(names[limit - 1]).decode() if more else "")

    async def ended(
        self, layout: Layout, recurrence_id: str, made: Mapping[str, int], *, journaled: bool
    ) -> Mapping[str, Became]:
        """See `RecurrenceStore.ended`: by the journal of the timers alone, which keeps all."""
        trails = {timer_id: Trail() for timer_id in made}
        for batch in self._timers.journal(own_name(layout.partition(recurrence_id))):
            for record in batch.records:
                if record.timer_id in trails:
                    trails[record.timer_id].take(record, batch.time)
        unknown = Became.unknown(NOT_RECORDED if journaled else NO_JOURNAL)
        return {timer_id: trail.became or unknown for timer_id, trail in trails.items()}

    def everything(self) -> list[tuple[str, str, Standing]]:
        """The partition and the recurrence_id of each recurrence, and where it stands."""
        return [
            (place, name, record.standing)
            for place, records in self._places.items()
            for name, record in records.items()
        ]

    def _records(self, topic: str) -> dict[str, _Record]:
        return self._places.setdefault(place_of(own_name(topic)), {})

    def _write(self, topic: str, recurrence: Recurrence, standing: Standing, now: int) -> None:
        record = _Record(recurrence, standing, look_at(standing, now))
        self._records(topic)[recurrence.recurrence_id] = record

    def _stamp(self, topic: str, recurrence_id: str) -> bytes:
        record = self._records(topic).get(recurrence_id)
        return b"" if record is None else write_standing(record.standing)

    async def _stored(self, topic: str, record: _Record) -> StoredRecurrence:
        stands = await self._lives(topic, record.standing.last)
        return StoredRecurrence(record.recurrence, record.standing, stands, write_standing(record.standing))

    async def _lives(self, topic: str, timer_id: str) -> bool:
        return timer_id != "" and await self._timers.get(topic, timer_id) is not None


class MemoryCalendars:
    """A `CalendarStore`, and what reads it, since nobody else changes these calendars."""

    def __init__(self) -> None:
        self.known = NO_CALENDARS

    async def read(self, known: KnownCalendars | None = None) -> KnownCalendars:
        """See `CalendarStore.read`."""
        return self.known

    async def of(self, rule: Rule) -> KnownCalendars:
        """Return what is known."""
        return self.known

    async def for_tick(self) -> KnownCalendars:
        """Return what is known."""
        return self.known

    async def put(self, name: str, dates: Sequence[str]) -> Put:
        """See `CalendarStore.put`. Raises `InvalidField`."""
        days, before = frozenset(dates), self.known.dates.get(name)
        if before is None and len(self.known.dates) >= MOST_CALENDARS:
            problem = (
                f"would be one more than the {MOST_CALENDARS} calendars that there may be; delete one first"
            )
            raise InvalidField("calendar.name", problem)
        self.known = replace(self.known, dates={**self.known.dates, name: days})
        return Put.CREATED if before is None else Put.UNCHANGED if before == days else Put.REPLACED

    async def remove(self, name: str) -> bool:
        """See `CalendarStore.remove`."""
        dates = dict(self.known.dates)
        removed = dates.pop(name, None) is not None
        self.known = replace(self.known, dates=dates)
        return removed


def _read_cursor(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, b"-_", validate=True)
    except ValueError:
        raise InvalidField("page_token", "is not one that a page gave; start without one") from None
