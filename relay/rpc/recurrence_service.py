"""`RecurrenceService`: what comes again and again."""

from __future__ import annotations

from typing import Any

from grpc.aio import ServicerContext

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.engine.engine import Engine
from relay.rpc.errors import answered_in_time
from relay.v1 import recurrence_service_pb2 as pb
from relay.v1 import recurrence_service_pb2_grpc as base

Context = ServicerContext[Any, Any]


class RecurrenceService(base.RecurrenceServiceServicer):
    """See `proto/relay/v1/recurrence_service.proto`."""

    def __init__(self, engine: Engine, call_time: CallTime, access: Access | None = None) -> None:
        self.call_time = call_time
        self._recurrences = RecurrenceCalls(engine, access)
        self._calendars = CalendarCalls(engine, access)

    @answered_in_time
    async def PutRecurrence(
        self, request: pb.PutRecurrenceRequest, context: Context
    ) -> pb.PutRecurrenceResponse:
        """Keep a recurrence."""
        return await self._recurrences.put(request)

    @answered_in_time
    async def GetRecurrence(
        self, request: pb.GetRecurrenceRequest, context: Context
    ) -> pb.GetRecurrenceResponse:
        """Read a recurrence."""
        return await self._recurrences.get(request)

    @answered_in_time
    async def ListRecurrences(
        self, request: pb.ListRecurrencesRequest, context: Context
    ) -> pb.ListRecurrencesResponse:
        """Read one page of a topic's recurrences."""
        return await self._recurrences.list(request)

    @answered_in_time
    async def PreviewRecurrence(
        self, request: pb.PreviewRecurrenceRequest, context: Context
    ) -> pb.PreviewRecurrenceResponse:
        """Show the instants of a rule."""
        return await self._recurrences.preview(request)

    @answered_in_time
    async def PauseRecurrence(
        self, request: pb.PauseRecurrenceRequest, context: Context
    ) -> pb.PauseRecurrenceResponse:
        """Pause a recurrence."""
        return await self._recurrences.pause(request)

    @answered_in_time
    async def ResumeRecurrence(
        self, request: pb.ResumeRecurrenceRequest, context: Context
    ) -> pb.ResumeRecurrenceResponse:
        """End a pause."""
        return await self._recurrences.resume(request)

    @answered_in_time
    async def TriggerRecurrence(
        self, request: pb.TriggerRecurrenceRequest, context: Context
    ) -> pb.TriggerRecurrenceResponse:
        """Make an occurrence now."""
        return await self._recurrences.trigger(request)

    @answered_in_time
    async def BackfillRecurrence(
        self, request: pb.BackfillRecurrenceRequest, context: Context
    ) -> pb.BackfillRecurrenceResponse:
        """Make occurrences for instants that have passed."""
        return await self._recurrences.backfill(request)

    @answered_in_time
    async def DeleteRecurrence(
        self, request: pb.DeleteRecurrenceRequest, context: Context
    ) -> pb.DeleteRecurrenceResponse:
        """Remove a recurrence."""
        return await self._recurrences.delete(request)

    @answered_in_time
    async def GetRecurrenceHistory(
        self, request: pb.GetRecurrenceHistoryRequest, context: Context
    ) -> pb.GetRecurrenceHistoryResponse:
        """Tell what came of the latest instants."""
        return await self._recurrences.history(request)

    @answered_in_time
    async def PutCalendar(self, request: pb.PutCalendarRequest, context: Context) -> pb.PutCalendarResponse:
        """Keep a calendar."""
        return await self._calendars.put(request)

    @answered_in_time
    async def GetCalendar(self, request: pb.GetCalendarRequest, context: Context) -> pb.GetCalendarResponse:
        """Read a calendar."""
        return await self._calendars.get(request)

    @answered_in_time
    async def ListCalendars(
        self, request: pb.ListCalendarsRequest, context: Context
    ) -> pb.ListCalendarsResponse:
        """Read all calendars."""
        return await self._calendars.list(request)

    @answered_in_time
    async def DeleteCalendar(
        self, request: pb.DeleteCalendarRequest, context: Context
    ) -> pb.DeleteCalendarResponse:
        """Remove a calendar."""
        return await self._calendars.delete(request)
