"""Schedules timers over gRPC with plain blocking calls, and sees them stored or says so."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration

from relay.v1 import timer_pb2, timer_service_pb2, topic_service_pb2
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.asked_for import AskedFor
from tests.worlds.relay.processes import CHANNEL
from tests.worlds.waiting import PATIENCE

PART = 1000
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]


class Producer:
    """A producer beside one relay."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=CHANNEL)
        self._stub = TimerServiceStub(self._channel)
        self._topics = TopicServiceStub(self._channel)

    def schedule(
        self,
        topic: str,
        timer_id: str,
        asks: Mapping[str, Any] | bytes = b"",
        *,
        delay: float = 0.0,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        wait: bool = True,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> timer_pb2.Timer:
        """Raises `grpc.RpcError`. `wait`: for a connection, instead of failing without one."""
        new = spec(topic, timer_id, asks, delay)
        new.headers.update(headers or {})
        return self.store(new, timeout=timeout, wait=wait, metadata=metadata)

    def store(
        self,
        new: timer_pb2.TimerSpec,
        *,
        timeout: float = 60.0,
        wait: bool = True,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> timer_pb2.Timer:
        """The same with all that a timer may have."""
        request = timer_service_pb2.ScheduleRequest(timer=new)
        answer: timer_service_pb2.ScheduleResponse = self._stub.Schedule(
            request, timeout=timeout, wait_for_ready=wait, metadata=metadata
        )
        return answer.timer

    def schedule_many(
        self,
        topic: str,
        timer_ids: Iterable[str],
        asks: Mapping[str, Any] | bytes = b"",
        *,
        delay: float = 0.0,
        spread: float = 0.0,
    ) -> None:
        """All or an error. The timers fall due together, or evenly over `spread` seconds. What was not stored
        in time, as happens beside load, is sent again."""
        names = list(timer_ids)
        specs = [
            spec(topic, timer_id, asks, delay + spread * n / len(names)) for n, timer_id in enumerate(names)
        ]
        deadline = time.monotonic() + PATIENCE
        while specs:
            part, specs = specs[:PART], specs[PART:]
            left = self.store_many(part)
            assert not left or time.monotonic() < deadline, "Redis was away for too long"
            specs += left

    def store_many(
        self, specs: Sequence[timer_pb2.TimerSpec], *, timeout: float = 60.0, wait: bool = True
    ) -> list[timer_pb2.TimerSpec]:
        """One call. Return those of the timers that were not stored since Redis is away, and have had no
        effect; any other error of a timer fails the test. Raises `grpc.RpcError`."""
        request = timer_service_pb2.ScheduleBatchRequest(timers=specs)
        answer = self._stub.ScheduleBatch(request, timeout=timeout, wait_for_ready=wait)
        errors = [result.error for result in answer.results if result.HasField("error")]
        odd = [error.message for error in errors if error.code != UNAVAILABLE]
        assert not odd, odd[0]
        return [new for new, result in zip(specs, answer.results, strict=True) if result.HasField("error")]

    def reshard(
        self, topic: str, partitions: int, *, rate: int = 0, timeout: float = 60.0
    ) -> topic_service_pb2.Topic:
        """Begin a move, or go on with it; return how the topic stands. Raises `grpc.RpcError`."""
        request = topic_service_pb2.ReshardTopicRequest(topic=topic, partitions=partitions, max_rate=rate)
        answer: topic_service_pb2.ReshardTopicResponse = self._topics.ReshardTopic(request, timeout=timeout)
        return answer.topic

    def get(self, topic: str, timer_id: str) -> timer_pb2.Timer | None:
        try:
            answer: timer_service_pb2.GetTimerResponse = self._stub.GetTimer(
                timer_service_pb2.GetTimerRequest(topic=topic, timer_id=timer_id), timeout=60.0
            )
        except grpc.RpcError as error:
            if code_of(error) is not grpc.StatusCode.NOT_FOUND:
                raise
            return None
        return answer.timer

    def run(self, topic: str, timer_id: str) -> None:
        """Raises `grpc.RpcError`."""
        self._stub.RunTimer(timer_service_pb2.RunTimerRequest(topic=topic, timer_id=timer_id), timeout=60.0)

    def cancel(self, topic: str, timer_id: str, *, timeout: float = 60.0) -> bool:
        answer: timer_service_pb2.CancelResponse = self._stub.Cancel(
            timer_service_pb2.CancelRequest(topic=topic, timer_id=timer_id), timeout=timeout
        )
        return answer.cancelled

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Load:
    """Schedules timers one after the other, in a thread, whatever happens to the relays.

    `accepted` are those that were answered OK: each of them must be handled. `asked` are all calls: none of
    them may act when it has ended.
    """

    def __init__(
        self,
        producers: Sequence[Producer],
        topic: str,
        asks: Mapping[str, Any] | bytes = b"",
        *,
        pause: float,
        name: str = "load",
        timeout: float = 30.0,
    ) -> None:
        self._producers = producers
        self._name = name
        self._topic = topic
        self._asks = asks
        self._pause, self._timeout = pause, timeout
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.accepted: list[str] = []
        self.asked: list[AskedFor] = []
        self.refusals: Counter[grpc.StatusCode] = Counter()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause):
            number = len(self.accepted) + self.refusals.total()
            producer = self._producers[number % len(self._producers)]
            timer_id = f"{self._name}-{number}"
            began = time.time()
            try:
                producer.schedule(self._topic, timer_id, self._asks, timeout=self._timeout, wait=False)
            except grpc.RpcError as error:
                self.refusals[code_of(error)] += 1
                ended = time.time() if is_final(error) else began + self._timeout
                self.asked.append(AskedFor(timer_id, began, ended, answered=False))
            else:
                self.accepted.append(timer_id)
                self.asked.append(AskedFor(timer_id, began, time.time(), answered=True))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """What blocking calls raise is a call, too; the stubs do not say so."""
    assert isinstance(error, grpc.Call)
    return error.code()


def is_final(error: grpc.RpcError) -> bool:
    """Whether the call can't act any more: a relay says so, or its time is over. A connection that breaks
    says nothing of the kind."""
    assert isinstance(error, grpc.Call)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return True
    return any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())


def spec(topic: str, timer_id: str, asks: Mapping[str, Any] | bytes, delay: float) -> timer_pb2.TimerSpec:
    payload = asks if isinstance(asks, bytes) else json.dumps(asks).encode()
    return timer_pb2.TimerSpec(topic=topic, timer_id=timer_id, payload=payload, delay=duration(delay))


def duration(seconds: float) -> Duration:
    length = Duration()
    length.FromMicroseconds(round(seconds * 1e6))
    return length
