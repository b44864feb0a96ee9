"""A relay that only remembers: enough to see what the commands send and say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from relay.v1 import timer_pb2, timer_service_pb2_grpc, topic_service_pb2_grpc
from relay.v1 import timer_service_pb2 as pb
from tests.cli.double_topics import LATER, NOW, TopicDouble, abort
from tests.worlds.doubled import bad_field, without_content

__all__ = ["NOW", "Double", "running_double"]


class Double(timer_service_pb2_grpc.TimerServiceServicer):
    """Timers in a dict. `refusal` is answered instead of anything else, if set."""

    def __init__(self) -> None:
        self.timers: dict[tuple[str, str], timer_pb2.Timer] = {}
        self.specs: list[timer_pb2.TimerSpec] = []
        self.asked: list[pb.ScheduleRequest] = []
        self.refusal: tuple[grpc.StatusCode, str, str] | None = None
        self.health = health.HealthServicer()
        self.topics = TopicDouble()
        self.knows_durability = True
        self.target = ""

    def serving(self, is_serving: bool) -> None:
        answer = health_pb2.HealthCheckResponse
        self.health.set("", answer.SERVING if is_serving else answer.NOT_SERVING)

    def Schedule(self, request: pb.ScheduleRequest, context: Any) -> pb.ScheduleResponse:
        self._refuse(context)
        spec = request.timer
        self.asked.append(request)
        due = spec.due_time
        if spec.HasField("delay"):
            due = Timestamp(seconds=NOW + spec.delay.seconds, nanos=spec.delay.nanos)
        timer = timer_pb2.Timer(
            topic=spec.topic,
            timer_id=spec.timer_id,
            due_time=due,
            next_claim_time=due,
            state=timer_pb2.TIMER_STATE_PENDING,
            payload=spec.payload,
            headers=spec.headers,
            content_type=spec.content_type,
        )
        replaced, under_way = (spec.topic, spec.timer_id) in self.timers, self._under_way(spec)
        if replaced and request.mode == pb.SCHEDULE_MODE_CREATE:
            there = self.timers[spec.topic, spec.timer_id]
            left = timer_pb2.Timer(topic=spec.topic, timer_id=spec.timer_id, due_time=there.due_time)
            return pb.ScheduleResponse(
                timer=left, result=timer_pb2.CHANGE_RESULT_UNCHANGED, delivery_under_way=under_way
            )
        self.specs.append(spec)
        self.timers[spec.topic, spec.timer_id] = timer
        result = timer_pb2.CHANGE_RESULT_REPLACED if replaced else timer_pb2.CHANGE_RESULT_CREATED
        return pb.ScheduleResponse(
            timer=without_content(timer),
            replaced=replaced,
            result=result,
            delivery_under_way=under_way,
            reached=self._reached(request),
        )

    def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        self._refuse(context)
        under_way = self._under_way(request)
        found = self.timers.pop((request.topic, request.timer_id), None) is not None
        result = timer_pb2.CHANGE_RESULT_CANCELLED if found else timer_pb2.CHANGE_RESULT_NOT_FOUND
        reached = self._reached(request)
        return pb.CancelResponse(
            cancelled=found, result=result, delivery_under_way=under_way, reached=reached
        )

    def _reached(self, request: pb.ScheduleRequest | pb.CancelRequest | pb.RunTimerRequest) -> str:
        return request.durability if self.knows_durability else ""

    def RunTimer(self, request: pb.RunTimerRequest, context: Any) -> pb.RunTimerResponse:
        self._refuse(context)
        if (request.topic, request.timer_id) not in self.timers:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such timer")
        leased = self._under_way(request)
        result = timer_pb2.CHANGE_RESULT_IN_FLIGHT if leased else timer_pb2.CHANGE_RESULT_RUN
        return pb.RunTimerResponse(result=result, delivery_under_way=leased, reached=self._reached(request))

    def GetTimer(self, request: pb.GetTimerRequest, context: Any) -> pb.GetTimerResponse:
        self._refuse(context)
        timer = self.timers.get((request.topic, request.timer_id))
        if timer is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such timer")
        return pb.GetTimerResponse(timer=timer)

    def ListTimers(self, request: pb.ListTimersRequest, context: Any) -> pb.ListTimersResponse:
        self._refuse(context)
        start = int(request.page_token or 0)
        found = [t for t in self.timers.values() if t.topic == request.topic]
        if request.state:
            found = [t for t in found if t.state == request.state]
        end = start + (request.page_size or 100)
        page = map(without_content, found[start:end])
        return pb.ListTimersResponse(timers=page, next_page_token=str(end) if end < len(found) else "")

    def _under_way(self, named: timer_pb2.TimerSpec | pb.CancelRequest | pb.RunTimerRequest) -> bool:
        timer = self.timers.get((named.topic, named.timer_id))
        return timer is not None and timer.state == timer_pb2.TIMER_STATE_LEASED

    def _refuse(self, context: Any) -> None:
        if self.refusal is None:
            return
        code, message, field = self.refusal
        details: list[Message] = []
        if field:
            details.append(bad_field(field, message))
        if code is grpc.StatusCode.UNAVAILABLE:
            details.append(LATER)
        abort(context, code, message, details)


@contextmanager
def running_double(port: int = 0) -> Iterator[Double]:
    """A double on that port, or a free one; `target` has it."""
    double = Double()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    timer_service_pb2_grpc.add_TimerServiceServicer_to_server(double, server)
    topic_service_pb2_grpc.add_TopicServiceServicer_to_server(double.topics, server)
    health_pb2_grpc.add_HealthServicer_to_server(double.health, server)
    double.serving(True)
    double.target = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield double
    finally:
        server.stop(0).wait()
