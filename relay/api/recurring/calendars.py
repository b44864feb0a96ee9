"""What `RecurrenceService` offers about calendars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from relay.api import replies, translate
from relay.api.access import Access
from relay.api.people import brief
from relay.api.people.actions import Recording
from relay.api.recurring.calls import PUTS
from relay.core.durability import STORED, Durability
from relay.core.errors import CalendarNotFound
from relay.core.recurring.calendars import KnownCalendars, calendar_dates, calendar_name, is_date
from relay.core.recurring.recurrence import Put
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.verbs import AccessVerb
from relay.v1 import recurrence_service_pb2 as pb

NO_TOPIC = ""


class ChangesCalendars(Protocol):
    """Reads calendars and changes them, as `KeptCalendars` does."""

    async def read(self) -> KnownCalendars:
        """Return all calendars as they are now."""
        ...

    async def put(self, name: str, dates: Sequence[str]) -> Put:
        """Keep a calendar with these dates, which ascend."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove a calendar; return whether there was one."""
        ...


class CalendarKeeper(Protocol):
    """What keeps calendars, as `Engine` does."""

    @property
    def calendars(self) -> ChangesCalendars:
        """The calendars."""
        ...

    def durably(self, topic: str, asked: Durability) -> AbstractContextManager[Durability]:
        """See `Engine.durably`."""
        ...


class CalendarCalls:
    """See `proto/relay/v1/recurrence_service.proto`. Every failure is raised as a `ServiceError`."""

    def __init__(self, engine: CalendarKeeper, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    async def put(self, request: pb.PutCalendarRequest, *, waits: bool = True) -> pb.PutCalendarResponse:
        """Keep a calendar; without `waits` it is `stored`. All are in one key, so whoever waits for one waits
        for those before it, too. Raises `InvalidField`."""
        self._access.require(AccessVerb.OPERATE, EVERY_TOPIC)
        name, dates = checked(request.calendar)
        asked = translate.durability(request.durability)
        async with self._record("PutCalendar", name, request.note) as action:
            with self._engine.durably(NO_TOPIC, asked) if waits else nullcontext(STORED) as level:
                found = (await self._engine.calendars.read()).dates.get(name)
                if found != frozenset(dates):
                    await action.begin(brief.calendar(found))
                result = await self._engine.calendars.put(name, dates)
            if result is not Put.UNCHANGED:
                action.after = brief.calendar(dates)
        return pb.PutCalendarResponse(
            calendar=message(name, dates), result=PUTS[result], reached=replies.reached(level)
        )

    async def get(self, request: pb.GetCalendarRequest) -> pb.GetCalendarResponse:
        """Read a calendar. Raises `CalendarNotFound`."""
        self._access.require(AccessVerb.READ, EVERY_TOPIC)
        name = calendar_name("name", request.name)
        dates = (await self._engine.calendars.read()).dates.get(name)
        if dates is None:
            raise CalendarNotFound.of(name)
        return pb.GetCalendarResponse(calendar=message(name, dates))

    async def list(self, request: pb.ListCalendarsRequest) -> pb.ListCalendarsResponse:
        """Read all calendars, in the order of their names."""
        self._access.require(AccessVerb.READ, EVERY_TOPIC)
        known = await self._engine.calendars.read()
        return pb.ListCalendarsResponse(
            calendars=[message(name, dates) for name, dates in sorted(known.dates.items())]
        )

    async def delete(self, request: pb.DeleteCalendarRequest) -> pb.DeleteCalendarResponse:
        """Remove a calendar. Raises `InvalidField`."""
        self._access.require(AccessVerb.OPERATE, EVERY_TOPIC)
        name = calendar_name("name", request.name)
        async with self._record("DeleteCalendar", name, request.note) as action:
            with self._engine.durably(NO_TOPIC, translate.durability(request.durability)) as level:
                found = (await self._engine.calendars.read()).dates.get(name)
                if found is not None:
                    await action.begin(brief.calendar(found))
                deleted = await self._engine.calendars.remove(name)
            if deleted:
                action.after = brief.NONE
        return pb.DeleteCalendarResponse(deleted=deleted, reached=replies.reached(level))

    def _record(self, method: str, name: str, note: str) -> Recording:
        return self._access.actions.record(AccessVerb.OPERATE, method, EVERY_TOPIC, name, note)


def checked(calendar: pb.Calendar) -> tuple[str, tuple[str, ...]]:
    """The name of a calendar, and its dates in their order. Raises `InvalidField`, whose field is that of a
    PutCalendarRequest."""
    name = calendar_name("calendar.name", calendar.name)
    return name, calendar_dates("calendar.dates", calendar.dates)


def message(name: str, dates: Iterable[str]) -> pb.Calendar:
    """A calendar as it is answered: without texts that are not dates, which somebody has written to Redis."""
    return pb.Calendar(name=name, dates=sorted(filter(is_date, dates)))
