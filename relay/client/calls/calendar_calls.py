"""The calls of RecurrenceService about calendars as steps; see `relay.client.calls.timer_calls`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Self

from relay.client import arguments, errors
from relay.client.calls.change_values import read_reached
from relay.client.calls.channel import DELETE_CALENDAR, GET_CALENDAR, LIST_CALENDARS, PUT_CALENDAR
from relay.client.calls.recurrence_values import PUTS, PutResult, day_of
from relay.client.calls.timer_calls import Steps, call
from relay.v1 import recurrence_service_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Dates on which rules that name the calendar do not fire, each once, in their order."""

    name: str
    dates: tuple[date, ...]

    @classmethod
    def from_proto(cls, calendar: pb.Calendar) -> Self:
        """Read the message from the wire."""
        return cls(name=calendar.name, dates=tuple(map(date.fromisoformat, calendar.dates)))


def put(
    name: str, dates: Iterable[date | str], note: str, durability: str, timeout: float
) -> Steps[PutResult]:
    """Keep a calendar. Raises `InvalidArgument`, whose field is the name of the argument."""
    arguments.check_name(name, "name")
    if isinstance(dates, str):
        raise errors.InvalidArgument("dates must be a list of dates, not one text", field="dates")
    days = [day_of(each, f"dates[{place}]") for place, each in enumerate(dates)]
    request = pb.PutCalendarRequest(
        calendar=pb.Calendar(name=name, dates=days), note=arguments.check_note(note), durability=durability
    )
    try:
        response = yield from call(PUT_CALENDAR, request, timeout)
    except errors.InvalidArgument as error:
        field = error.field.removeprefix("calendar.")
        raise errors.InvalidArgument(error.message.removeprefix("calendar."), field=field) from None
    read_reached(durability, response.reached)
    return PUTS.get(response.result, PutResult.UNKNOWN)


def get(name: str, timeout: float) -> Steps[Calendar | None]:
    """Read a calendar, or None."""
    arguments.check_name(name, "name")
    try:
        response = yield from call(GET_CALENDAR, pb.GetCalendarRequest(name=name), timeout)
    except errors.NotFound:
        return None
    return Calendar.from_proto(response.calendar)


def page(timeout: float) -> Steps[list[Calendar]]:
    """Read all calendars, in the order of their names."""
    response = yield from call(LIST_CALENDARS, pb.ListCalendarsRequest(), timeout)
    return [Calendar.from_proto(each) for each in response.calendars]


def delete(name: str, note: str, durability: str, timeout: float) -> Steps[bool]:
    """Remove a calendar; return whether there was one."""
    arguments.check_name(name, "name")
    request = pb.DeleteCalendarRequest(name=name, note=arguments.check_note(note), durability=durability)
    response = yield from call(DELETE_CALENDAR, request, timeout)
    read_reached(durability, response.reached)
    return response.deleted
