"""No try of a call begins while an earlier one may still act, and could undo what came after it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from relay.client import DeadlineExceeded, RelayClient, SyncRelayClient, Unavailable, errors
from relay.client.calls import recurrence_calls, timer_calls
from relay.client.calls.channel import GET, METHODS, SCHEDULE, TRIGGER, Method, SyncGrpcWire
from relay.client.calls.timer_calls import TRY_TIMEOUT, Attempt, Pause
from relay.v1 import timer_service_pb2 as pb
from relay.v1.recurrence_service_pb2 import TriggerRecurrenceResponse
from tests.client.scripted_relay import ScriptedRelay

ANSWER = pb.ScheduleResponse()
TRIGGERED = TriggerRecurrenceResponse(timer_id="r@")


@dataclass(frozen=True)
class End:
    """How a try ends: after so many seconds, if it has them, in an error or in an answer."""

    after: float
    error: errors.CallError | None = None


AWAY = errors.Unavailable("redis is away", retry_after=0.25)
REFUSED = errors.Unavailable("failed to connect")
CUT = errors.Unavailable("Socket closed", unanswered=True)
SILENT = errors.DeadlineExceeded("Deadline Exceeded")
OVER = errors.ResourceExhausted("over its bound", retry_after=2.0)
FULL = errors.ResourceExhausted("full")
NEVER = End(float("inf"), SILENT)


@dataclass
class World:
    """Time in a test's hand, and the tries of one call by it: when each began, and until when it may act."""

    monkeypatch: pytest.MonkeyPatch
    now: float = 1_000.0
    tries: list[tuple[float, float]] = field(default_factory=list)

    def call(
        self, method: Method[pb.ScheduleRequest, pb.ScheduleResponse], timeout: float, *ends: End
    ) -> object:
        """Make a call, whose tries end like this; the last way holds for all others. Nothing begins, or is
        told to the caller, while a try may act."""
        self.monkeypatch.setattr(timer_calls, "time", SimpleNamespace(monotonic=lambda: self.now))
        return self._take(method, timer_calls.call(method, pb.ScheduleRequest(), timeout), ends)

    def trigger(self, timeout: float, *ends: End) -> object:
        """Make a call that must not have its effect twice, as `call` does."""
        for module in (recurrence_calls, timer_calls):
            self.monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        return self._take(TRIGGER, recurrence_calls.trigger("t", "r", "", "", timeout), ends)

    def _take(self, method: Method[Any, Any], steps: timer_calls.Steps[Any], ends: Sequence[End]) -> object:
        left = list(ends)
        acts_until = 0.0
        step = next(steps)
        try:
            while True:
                if isinstance(step, Pause):
                    assert step.seconds >= 0
                    self.now += step.seconds
                    step = steps.send(None)
                    continue
                assert isinstance(step, Attempt)
                self._is_free(method, acts_until)
                end = left.pop(0) if len(left) > 1 else left[0]
                until = self.now + step.timeout
                self.tries.append((self.now, until))
                self.now = min(self.now + end.after, until)
                error = SILENT if end.after >= step.timeout else end.error
                acts_until = until if error in (SILENT, CUT) else 0.0
                answer = TRIGGERED if method is TRIGGER else ANSWER
                step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as told:
            return told.value
        except errors.CallError as error:
            self._is_free(method, acts_until)
            return error

    def _is_free(self, method: Method[Any, Any], acts_until: float) -> None:
        assert self.now >= acts_until or not method.changes, f"a try may act until {acts_until}"

    @property
    def began(self) -> list[float]:
        """When each try began, in seconds after the first."""
        return [began - self.tries[0][0] for began, _ in self.tries]

    @property
    def lives(self) -> list[float]:
        """How long each try could have taken."""
        return [until - began for began, until in self.tries]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_an_answer_ends_the_call(world: World) -> None:
    assert world.call(SCHEDULE, 10.0, End(0.9)) is ANSWER
    assert world.lives == [TRY_TIMEOUT]


def test_a_silent_relay_is_asked_again_at_the_end_of_each_try(world: World) -> None:
    """Each try may take twice as long as the one before: a relay that is slow, and not away, answers it."""
    assert world.call(SCHEDULE, 10.0, NEVER, NEVER, End(3.0)) is ANSWER
    assert world.began == pytest.approx([0.0, 1.0, 3.0])
    assert world.lives == pytest.approx([1.0, 2.0, 4.0])


def test_no_try_lives_longer_than_the_call(world: World) -> None:
    assert world.call(SCHEDULE, 10.0, NEVER) is SILENT
    assert world.lives == pytest.approx([1.0, 2.0, 4.0, 3.0])
    assert world.now == pytest.approx(1_010.0)


def test_a_short_call_has_one_try(world: World) -> None:
    assert world.call(SCHEDULE, 0.3, NEVER) is SILENT
    assert world.lives == pytest.approx([0.3])


def test_what_a_relay_answered_is_tried_again_after_the_pause_that_it_asked_for(world: World) -> None:
    """It says that the call has no effect from then on."""
    assert world.call(SCHEDULE, 10.0, End(0.1, AWAY), End(0.1)) is ANSWER
    assert world.began == pytest.approx([0.0, 0.35])


def test_a_call_that_nobody_got_is_tried_again_soon(world: World) -> None:
    assert world.call(SCHEDULE, 10.0, End(0.0, REFUSED), End(0.0, REFUSED), End(0.0)) is ANSWER
    assert world.began[-1] < 0.2


def test_a_lost_connection_is_waited_for(world: World) -> None:
    """The relay may have the call, and carry it out until its deadline."""
    assert world.call(SCHEDULE, 10.0, End(0.1, CUT), End(0.1)) is ANSWER
    assert world.began == pytest.approx([0.0, 1.0])


def test_a_deadline_that_somebody_else_says_is_waited_for(world: World) -> None:
    """A proxy in between has less patience; the relay may have the call all the same."""
    assert world.call(SCHEDULE, 10.0, End(0.1, SILENT), End(0.1)) is ANSWER
    assert world.began == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("error", [CUT, SILENT], ids=["cut", "silent"])
def test_an_open_outcome_is_told_only_once_it_is_closed(world: World, error: errors.CallError) -> None:
    """The caller may repeat the call at once. `World.call` looks at that."""
    assert world.call(SCHEDULE, 0.5, End(0.1, error)) is error
    assert world.now == pytest.approx(1_000.5)


@pytest.mark.parametrize("error", [CUT, REFUSED], ids=["cut", "refused"])
def test_a_call_that_only_reads_has_all_the_time_at_once(world: World, error: errors.CallError) -> None:
    """Whenever it is carried out, nothing comes of it."""
    assert world.call(GET, 10.0, End(0.1, error), End(5.0)) is ANSWER  # type: ignore[arg-type]
    assert world.began[1] < 0.2
    assert world.lives[0] == pytest.approx(10.0)


def test_what_must_not_be_twice_is_tried_again_only_where_nobody_has_it(world: World) -> None:
    assert world.trigger(10.0, End(0.0, REFUSED), End(0.0, REFUSED), End(0.5)) == "r@"
    assert len(world.tries) == 3


@pytest.mark.parametrize("error", [CUT, SILENT, AWAY], ids=["cut", "silent", "away"])
def test_what_a_relay_may_have_is_not_tried_twice(world: World, error: errors.CallError) -> None:
    """The error is told once the try can't act any more. `World.trigger` looks at that."""
    assert world.trigger(10.0, End(0.1, error)) is error
    assert len(world.tries) == 1


@pytest.mark.parametrize("call", ["call", "trigger"])
def test_who_is_over_a_bound_comes_back_when_it_was_told(world: World, call: str) -> None:
    """Nothing was done, so also what must not be twice is tried again."""
    tries = End(0.1, OVER), End(0.1, OVER), End(0.1)
    told = world.trigger(10.0, *tries) if call == "trigger" else world.call(SCHEDULE, 10.0, *tries)
    assert told in (ANSWER, "r@")
    assert world.began == pytest.approx([0.0, 2.1, 4.2])


@pytest.mark.parametrize(("error", "tries"), [("OVER", 5), ("FULL", 1)])
def test_a_refusal_is_told_where_no_pause_helps(world: World, error: str, tries: int) -> None:
    """There is no time for the pause, or none was named: the topic is full, or Redis."""
    failure = OVER if error == "OVER" else FULL
    assert world.call(SCHEDULE, 10.0, End(0.1, failure)) is failure
    assert len(world.tries) == tries
    assert world.now < 1_010.0


def test_a_change_that_may_stand_is_not_told_as_one_that_was_refused(world: World) -> None:
    """The first try was stored, and not as durably as was asked; then the caller is over its bound."""
    missed = errors.NotDurable("not synced", retry_after=0.1)
    assert world.call(SCHEDULE, 10.0, End(0.1, missed), End(0.1, OVER)) is missed


def test_which_calls_change_something() -> None:
    reading = {method.name for method in METHODS if not method.changes}
    assert reading == {
        *("GetTimer", "ListTimers", "GetTimerHistory"),
        *("ListTopics", "GetTopic", "Forecast", "ListDeadLetters", "GetDeadLetter"),
        *("GetRecurrence", "ListRecurrences", "PreviewRecurrence", "GetRecurrenceHistory"),
        *("GetCalendar", "ListCalendars"),
    }


# ------------------------------------------------------------- for real


async def schedule(target: str, *, blocking: bool) -> None:
    if blocking:
        with SyncRelayClient(target, timeout=60.0) as client:
            await asyncio.to_thread(client.schedule, "t", b"p", delay=1)
        return
    async with RelayClient(target, timeout=60.0) as client:
        await client.schedule("t", b"p", delay=1)


@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
async def test_a_silent_relay_is_asked_again_under_the_same_id(
    relay: ScriptedRelay, target: str, *, blocking: bool
) -> None:
    """And not before the first try's deadline, which went with it."""
    relay.silent = 1
    began = time.monotonic()
    calling = asyncio.create_task(schedule(target, blocking=blocking))
    await relay.until(lambda: len(relay.calls) >= 2)
    assert time.monotonic() - began >= TRY_TIMEOUT
    await calling
    assert len({request.timer.timer_id for _, request in relay.calls}) == 1


class Listener:
    """Answers no call: `meet` is what it does with each connection."""

    def __init__(self, meet: Callable[[socket.socket], None]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._meet = meet
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._meet(connection)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


SETTINGS = b"\0\0\0\4\0\0\0\0\0"


def reads_a_call(connection: socket.socket) -> None:
    """Speak HTTP/2 until a call has come, and hang up."""
    connection.sendall(SETTINGS)
    seen = b""
    while b"Schedule" not in seen and (part := connection.recv(4096)):
        seen += part


def error_of(target: str) -> errors.CallError:
    wire = SyncGrpcWire(target)
    try:
        with pytest.raises((Unavailable, DeadlineExceeded)) as caught:
            wire.call(SCHEDULE, pb.ScheduleRequest(), 60.0)
    finally:
        wire.close()
    return caught.value


def test_a_refused_connection_is_no_open_outcome() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    failures = [error_of(target), error_of("unix:/nowhere/relay.sock"), error_of("nowhere.invalid:7451")]
    assert [_is_open(failure) for failure in failures] == [False] * 3


def test_a_connection_that_is_closed_before_a_call_is_no_open_outcome() -> None:
    listener = Listener(lambda _: None)
    assert not _is_open(error_of(listener.target))
    listener.close()


def test_a_connection_that_is_lost_under_a_call_leaves_it_open() -> None:
    listener = Listener(reads_a_call)
    assert _is_open(error_of(listener.target))
    listener.close()


def _is_open(failure: errors.CallError) -> bool:
    assert isinstance(failure, Unavailable), failure
    assert failure.code is grpc.StatusCode.UNAVAILABLE
    return failure.unanswered
