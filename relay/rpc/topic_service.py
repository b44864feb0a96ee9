"""`TopicService`: what operators do to topics and dead letters."""

from __future__ import annotations

from typing import Any

from grpc.aio import ServicerContext

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.api.topics import TopicCalls
from relay.engine.engine import Engine
from relay.rpc.errors import answered_in_time
from relay.v1 import topic_service_pb2 as pb
from relay.v1 import topic_service_pb2_grpc as base

Context = ServicerContext[Any, Any]


class TopicService(base.TopicServiceServicer):  # see 0029
    """See `proto/relay/v1/topic_service.proto`."""

    def __init__(self, engine: Engine, call_time: CallTime, access: Access | None = None) -> None:
        self.call_time = call_time
        self._topics = TopicCalls(engine, access)

    @answered_in_time
    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """Read one page of topics. Each topic costs a script call."""
        return await self._topics.list(request)

    @answered_in_time
    async def GetTopic(self, request: pb.GetTopicRequest, context: Context) -> pb.GetTopicResponse:
        """Read one topic."""
        return await self._topics.get(request)

    @answered_in_time
    async def PauseTopic(self, request: pb.PauseTopicRequest, context: Context) -> pb.PauseTopicResponse:
        """Pause a topic."""
        return await self._topics.pause(request)

    @answered_in_time
    async def ResumeTopic(self, request: pb.ResumeTopicRequest, context: Context) -> pb.ResumeTopicResponse:
        """End a pause."""
        return await self._topics.resume(request)

    @answered_in_time
    async def ReshardTopic(
        self, request: pb.ReshardTopicRequest, context: Context
    ) -> pb.ReshardTopicResponse:
        """Begin to move a topic into another number of partitions."""
        return await self._topics.reshard(request)

    @answered_in_time
    async def Forecast(self, request: pb.ForecastRequest, context: Context) -> pb.ForecastResponse:
        """Tell what falls due in a topic."""
        return await self._topics.forecast(request)

    @answered_in_time
    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> pb.ListDeadLettersResponse:
        """Read one page of dead letters."""
        return await self._topics.list_dead(request)

    @answered_in_time
    async def GetDeadLetter(
        self, request: pb.GetDeadLetterRequest, context: Context
    ) -> pb.GetDeadLetterResponse:
        """Read a dead letter."""
        return await self._topics.get_dead(request)

    @answered_in_time
    async def RedriveDeadLetters(
        self, request: pb.RedriveDeadLettersRequest, context: Context
    ) -> pb.RedriveDeadLettersResponse:
        """Bring dead letters back to life."""
        return await self._topics.redrive(request)

    @answered_in_time
    async def PurgeDeadLetters(
        self, request: pb.PurgeDeadLettersRequest, context: Context
    ) -> pb.PurgeDeadLettersResponse:
        """Remove dead letters for good."""
        return await self._topics.purge(request)

    @answered_in_time
    async def ForgetSubject(
        self, request: pb.ForgetSubjectRequest, context: Context
    ) -> pb.ForgetSubjectResponse:
        """Remove a subject's key for good."""
        return await self._topics.forget_subject(request)
