"""Until when the callers of unary calls wait, and the end of calls that take longer."""

from __future__ import annotations

import asyncio
import math
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Self

from relay.core.errors import OutOfTime, ServiceError

TOGETHER = 0.005
"""Seconds within which calls are ended together: many that come at once don't wake the loop once each."""

AGAIN = 1.0
"""Seconds after which a call is cancelled again that goes on nevertheless: somebody in it has taken its end
for one of his own."""


def call_deadline() -> float:
    """When the call that this is a part of is given up by its caller (seconds by `time.monotonic`); infinity
    outside of a call, and once it has ended."""
    call = _current.get()
    return math.inf if call is None else call.deadline


def end_call_with(failure: type[ServiceError]) -> None:
    """Have the call that this is a part of end with another error than `OutOfTime` at its deadline."""
    if (call := _current.get()) is not None:
        call.failure = failure


class CallEnds:
    """Ends calls at their deadlines, with one timer for all of them.

    A cancel scope for each call, with a timer of its own, would cost a Schedule a tenth of the relay's CPU.
    """

    def __init__(self) -> None:
        self._running: set[BoundedCall] = set()
        self._next = math.inf
        """When the timer goes off."""
        self._timer: asyncio.TimerHandle | None = None

    def bound(self, deadline: float) -> BoundedCall:
        """A context in which a call runs until `deadline` (seconds by `time.monotonic`)."""
        return BoundedCall(self, deadline)

    def begin(self, call: BoundedCall) -> None:
        """Note that a call runs."""
        self._running.add(call)
        if call.ends < self._next:
            self._set(call.ends)

    def end(self, call: BoundedCall) -> None:
        """Note that a call has ended."""
        self._running.discard(call)

    def _set(self, instant: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = instant
        self._timer = asyncio.get_running_loop().call_at(instant, self._end_overdue)

    def _end_overdue(self) -> None:
        now = monotonic()
        for call in self._running:
            if call.ends <= now:
                call.give_up()
                call.ends = now + AGAIN
        self._timer, self._next = None, math.inf
        first = min((call.ends for call in self._running), default=math.inf)
        if first < math.inf:
            self._set(max(first, now + TOGETHER))


class BoundedCall:
    """A call that ends with `OutOfTime` at its deadline.

    Tasks that it starts have its deadline, too. Those that work for others as well are started elsewhere; see
    `LoopStarter` in the engine.
    """

    __slots__ = ("_calls", "_cancelling", "_given_up", "_task", "deadline", "ends", "failure")

    def __init__(self, calls: CallEnds, deadline: float) -> None:
        self.deadline = deadline
        self.ends = deadline
        """When it is cancelled next."""
        self.failure: type[ServiceError] = OutOfTime
        """What it ends with at its deadline."""
        self._calls = calls
        self._given_up = 0
        """How often it was cancelled."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a call runs in a task"
        self._task, self._cancelling = task, task.cancelling()
        self._calls.begin(self)
        _current.set(self)
        return self

    def give_up(self) -> None:
        """Cancel what the call does."""
        self._given_up += 1
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deadline = math.inf
        self._calls.end(self)
        for _ in range(self._given_up):
            self._task.uncancel()
        others = self._task.cancelling() > self._cancelling
        if self._given_up and kind is asyncio.CancelledError and not others:
            raise self.failure from failure


_current: ContextVar[BoundedCall | None] = ContextVar("call", default=None)
