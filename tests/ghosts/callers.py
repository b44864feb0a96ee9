"""Callers of a relay, by each of its ways. A call that has no answer raises `NoAnswer`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from relay.v1 import timer_pb2, timer_service_pb2, topic_service_pb2
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.worlds.relay.processes import CHANNEL
from tests.worlds.relay.producer import code_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoAnswer(Exception):
    """The call was given up, by its caller or by the relay: what became of it is unknown to the caller."""


class Reachable(Protocol):
    """Where a relay is called."""

    @property
    def target(self) -> str:
        """By gRPC."""

    @property
    def api(self) -> str:
        """By HTTP."""


class Detour(NamedTuple):
    """A relay that is called by way of a line."""

    target: str
    api: str


class Caller(ABC):
    """What somebody asks of a topic's timers by one relay. `due` and `until` are whole microseconds since
    1970, and `timeout` is how many seconds the caller waits."""

    def __init__(self, relay: Reachable, topic: str) -> None:
        self.topic = topic

    @abstractmethod
    def schedule(self, timer_id: str, due: int, timeout: float) -> None: ...

    @abstractmethod
    def cancel(self, timer_id: str, timeout: float) -> None: ...

    @abstractmethod
    def run(self, timer_id: str, timeout: float) -> None: ...

    @abstractmethod
    def pause(self, until: int | None, timeout: float) -> None:
        """Until that instant; None: resume."""

    @abstractmethod
    def close(self) -> None: ...


class ByGrpc(Caller):
    """Unary calls."""

    def __init__(self, relay: Reachable, topic: str) -> None:
        super().__init__(relay, topic)
        self._channel = grpc.insecure_channel(relay.target, options=CHANNEL)
        self.timers = TimerServiceStub(self._channel)
        self._topics = TopicServiceStub(self._channel)

    def schedule(self, timer_id: str, due: int, timeout: float) -> None:
        """As in `Caller`."""
        spec = timer_pb2.TimerSpec(topic=self.topic, timer_id=timer_id, due_time=_timestamp(due))
        self.ask(self.timers.Schedule, timer_service_pb2.ScheduleRequest(timer=spec), timeout)

    def cancel(self, timer_id: str, timeout: float) -> None:
        """As in `Caller`."""
        request = timer_service_pb2.CancelRequest(topic=self.topic, timer_id=timer_id)
        self.ask(self.timers.Cancel, request, timeout)

    def run(self, timer_id: str, timeout: float) -> None:
        """As in `Caller`."""
        request = timer_service_pb2.RunTimerRequest(topic=self.topic, timer_id=timer_id)
        self.ask(self.timers.RunTimer, request, timeout)

    def pause(self, until: int | None, timeout: float) -> None:
        """As in `Caller`."""
        if until is None:
            request = topic_service_pb2.ResumeTopicRequest(topic=self.topic)
            self.ask(self._topics.ResumeTopic, request, timeout)
        else:
            asked = topic_service_pb2.PauseTopicRequest(topic=self.topic, until=_timestamp(until))
            self.ask(self._topics.PauseTopic, asked, timeout)

    def ask(self, call: Callable[..., Any], request: Any, timeout: float) -> Any:
        """The answer. Raises `NoAnswer`."""
        try:
            return call(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            if code_of(error) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NoAnswer(str(error)) from error
            raise

    def close(self) -> None:
        """As in `Caller`."""
        self._channel.close()


class ByColumns(ByGrpc):
    """The same with ScheduleColumns; a call for one timer, and another one beside it."""

    def schedule(self, timer_id: str, due: int, timeout: float) -> None:
        """As in `Caller`."""
        request = timer_service_pb2.ScheduleColumnsRequest(
            topic=self.topic,
            timer_ids=[timer_id, f"{timer_id}-beside"],
            payloads=[b"", b""],
            due_times_us=[due, due],
        )
        answer = self.ask(self.timers.ScheduleColumns, request, timeout)
        if answer.errors:
            raise NoAnswer(str(answer.errors))


class ByHttp(Caller):
    """JSON over HTTP, a connection for each call."""

    def __init__(self, relay: Reachable, topic: str) -> None:
        super().__init__(relay, topic)
        self._base = f"http://{relay.api}/v1/topics/{topic}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def schedule(self, timer_id: str, due: int, timeout: float) -> None:
        """As in `Caller`."""
        self._ask("PUT", f"/timers/{timer_id}", {"message": "", "due_time": _rfc(due)}, timeout)

    def cancel(self, timer_id: str, timeout: float) -> None:
        """As in `Caller`."""
        self._ask("DELETE", f"/timers/{timer_id}", None, timeout)

    def run(self, timer_id: str, timeout: float) -> None:
        """As in `Caller`."""
        self._ask("POST", f"/timers/{timer_id}:run", {}, timeout)

    def pause(self, until: int | None, timeout: float) -> None:
        """As in `Caller`."""
        if until is None:
            self._ask("POST", ":resume", {}, timeout)
        else:
            self._ask("POST", ":pause", {"until": _rfc(until)}, timeout)

    def _ask(self, method: str, path: str, body: Any, timeout: float) -> None:
        request = urllib.request.Request(
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", "relay-timeout": str(timeout)},
        )
        try:
            self._opener.open(request, timeout=timeout).close()
        except urllib.error.HTTPError as refusal:
            with refusal:
                if refusal.code != 503:
                    raise AssertionError(refusal.read()) from refusal
                raise NoAnswer(str(refusal)) from refusal  # its body may be too late for this caller
        except OSError as failure:  # the caller's time is over, or nobody is there
            raise NoAnswer(str(failure)) from failure

    def close(self) -> None:
        """As in `Caller`."""


def _timestamp(instant: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(instant)
    return stamp


def _rfc(instant: int) -> str:
    return (EPOCH + timedelta(microseconds=instant)).isoformat()
