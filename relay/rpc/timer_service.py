"""`TimerService`: schedule, cancel, run, get, list."""

from __future__ import annotations

from typing import Any

from grpc.aio import ServicerContext

from relay.api.timers import TimerCalls, trace_context
from relay.engine.engine import Engine
from relay.rpc.errors import answering_errors
from relay.v1 import timer_service_pb2 as pb
from relay.v1 import timer_service_pb2_grpc as base

Context = ServicerContext[Any, Any]


class TimerService(base.TimerServiceServicer):
    """See `proto/relay/v1/timer_service.proto`."""

    def __init__(self, engine: Engine) -> None:
        self._timers = TimerCalls(engine)

    @answering_errors
    async def Schedule(self, request: pb.ScheduleRequest, context: Context) -> pb.ScheduleResponse:
        """Store one timer."""
        return await self._timers.schedule(request, _trace(context))

    @answering_errors
    async def ScheduleBatch(
        self, request: pb.ScheduleBatchRequest, context: Context
    ) -> pb.ScheduleBatchResponse:
        """Store many timers. A bad one fails by itself."""
        return await self._timers.schedule_batch(request, _trace(context))

    @answering_errors
    async def ScheduleColumns(
        self, request: pb.ScheduleColumnsRequest, context: Context
    ) -> pb.ScheduleColumnsResponse:
        """Store many timers of one topic. A bad one fails by itself."""
        return await self._timers.schedule_columns(request, _trace(context))

    @answering_errors
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Remove a timer."""
        return await self._timers.cancel(request)

    @answering_errors
    async def RunTimer(self, request: pb.RunTimerRequest, context: Context) -> pb.RunTimerResponse:
        """Make one timer due now."""
        return await self._timers.run_timer(request)

    @answering_errors
    async def GetTimer(self, request: pb.GetTimerRequest, context: Context) -> pb.GetTimerResponse:
        """Read one timer."""
        return await self._timers.get(request)

    @answering_errors
    async def ListTimers(self, request: pb.ListTimersRequest, context: Context) -> pb.ListTimersResponse:
        """Read one page of a topic's timers."""
        return await self._timers.list(request)


def _trace(context: Context) -> dict[str, str]:
    return trace_context(context.invocation_metadata() or ())
