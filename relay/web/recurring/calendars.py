"""Calendars over HTTP: those calls of `RecurrenceService` in JSON."""

from __future__ import annotations

from urllib.parse import quote

from relay.v1 import recurrence_service_pb2 as pb
from relay.web import forms
from relay.web.operations import Answer, ApiCall, Calls, Operation
from relay.web.recurring.fields import named_without

ABOUT = ("durability", "note")
"""The fields of a PutCalendarRequest that stand beside those of its calendar."""


async def put(calls: Calls, call: ApiCall) -> Answer:
    """Keep a calendar under the name in the path, so that a repeated call changes nothing."""
    request = pb.PutCalendarRequest()
    call.read_beside(request, request.calendar, ABOUT)
    request.calendar.name = call.path["name"]
    with named_without("calendar."):
        answer = await calls.calendars.put(request)
    created = answer.result == pb.PUT_RESULT_CREATED
    location = f"{CALENDARS}/{quote(request.calendar.name, safe='')}" if created else ""
    return Answer(forms.write(answer), 201 if created else 200, location=location)


async def get(calls: Calls, call: ApiCall) -> Answer:
    """Read a calendar."""
    return Answer(forms.write(await calls.calendars.get(pb.GetCalendarRequest(**call.path))))


async def page(calls: Calls, call: ApiCall) -> Answer:
    """Read all calendars, in the order of their names."""
    return Answer(forms.write(await calls.calendars.list(pb.ListCalendarsRequest())))


async def delete(calls: Calls, call: ApiCall) -> Answer:
    """Remove a calendar. It is not an error if there is none, so the call can be repeated."""
    request = pb.DeleteCalendarRequest(name=call.path["name"])
    call.read_query(request)
    return Answer(forms.write(await calls.calendars.delete(request)))


CALENDARS = "/v1/calendars"
ONE = f"{CALENDARS}/{{name}}"

OPERATIONS = (
    Operation(
        "GET",
        CALENDARS,
        page,
        "Read all calendars, in the order of their names. There are at most 100.",
        pb.ListCalendarsResponse,
    ),
    Operation(
        "PUT",
        ONE,
        put,
        "Keep a calendar under this name. An existing one is replaced, or left if it has these dates.",
        pb.PutCalendarResponse,
        pb.PutCalendarRequest,
        statuses={201: "There was none.", 200: "There was one, which was replaced or left as it is."},
    ),
    Operation("GET", ONE, get, "Read a calendar.", pb.GetCalendarResponse, problems=(404,)),
    Operation(
        "DELETE",
        ONE,
        delete,
        "Remove a calendar. A missing one is not an error. Rules that name it leave out nothing for it then.",
        pb.DeleteCalendarResponse,
        query=dict.fromkeys(("durability", "note"), pb.DeleteCalendarRequest),
    ),
)
