"""`TimerService`: schedule, cancel, run, get, list, and one timer's life."""

from __future__ import annotations

from typing import Any

from grpc.aio import ServicerContext

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.api.history.calls import HistoryCalls
from relay.api.timers import TimerCalls, trace_context
from relay.engine.engine import Engine
from relay.rpc.errors import answered_in_time
from relay.v1 import timer_service_pb2 as pb
from relay.v1 import timer_service_pb2_grpc as base

Context = ServicerContext[Any, Any]


class TimerService(base.TimerServiceServicer):
    """See `proto/relay/v1/timer_service.proto`."""

    def __init__(self, engine: Engine, call_time: CallTime, access: Access | None = None) -> None:
        self.call_time = call_time
        self._timers = TimerCalls(engine, access)
        self._histories = HistoryCalls(engine, access)

    @answered_in_time
    async def Schedule(self, request: pb.ScheduleRequest, context: Context) -> pb.ScheduleResponse:
        """Store one timer."""
        return await self._timers.schedule(request, _trace(context))

    @answered_in_time
    async def ScheduleBatch(
        self, request: pb.ScheduleBatchRequest, context: Context
    ) -> pb.ScheduleBatchResponse:
        """Store many timers. A bad one fails by itself."""
        return await self._timers.schedule_batch(request, _trace(context))

    @answered_in_time
    async def ScheduleColumns(
        self, request: pb.ScheduleColumnsRequest, context: Context
    ) -> pb.ScheduleColumnsResponse:
        """Store many timers of one topic. A bad one fails by itself."""
        return await self._timers.schedule_columns(request, _trace(context))

    @answered_in_time
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Remove a timer."""
        return await self._timers.cancel(request)

    @answered_in_time
    async def RunTimer(self, request: pb.RunTimerRequest, context: Context) -> pb.RunTimerResponse:
        """Make one timer due now."""
        return await self._timers.run_timer(request)

    @answered_in_time
    async def GetTimer(self, request: pb.GetTimerRequest, context: Context) -> pb.GetTimerResponse:
        """Read one timer."""
        return await self._timers.get(request)

    @answered_in_time
    async def ListTimers(self, request: pb.ListTimersRequest, context: Context) -> pb.ListTimersResponse:
        """Read one page of a topic's timers."""
        return await self._timers.list(request)

    @answered_in_time
    async def GetTimerHistory(
        self, request: pb.GetTimerHistoryRequest, context: Context
    ) -> pb.GetTimerHistoryResponse:
        """Tell a page of a timer's life."""
        return await self._histories.get(request)


def _trace(context: Context) -> dict[str, str]:
    return trace_context(context.invocation_metadata() or ())
