"""Hands rows to a relay, and says what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import grpc

from relay.client import NewTimer, RelayClient
from relay.client.errors import CallError, InvalidArgument, NotFound, ResourceExhausted

AT_ONCE = 50
"""The number of moves and cancels that are called at once: they have no batch."""

LARGE = 1 << 20
"""The bytes of a payload beyond which a row is scheduled by a call of its own."""

FULL_PAUSE = timedelta(seconds=5)
"""For how long a row is left alone whose topic is full."""

AWAY_PAUSE = timedelta(seconds=1)
"""The same of a row that Redis did not take, or not as durably."""

FOR_GOOD = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""With these the same row would be refused again."""


FIELDS = (
    *("timer_id", "headers", "content_type", "due_time", "delay", "expire_time", "expire_after", "spread"),
    *("seal_with", "occurrence_id"),
)
"""The fields of a timer that a call of its own gives to Schedule."""


class OutboxRow(NamedTuple):
    """A row, and how long ago it was written by the database's clock. `fault`: why it can't be read; then it
    is refused, and the fields at fault mean nothing."""

    id: int
    occurrence: UUID
    action: str
    topic: str
    timer_id: str
    payload: bytes
    headers: dict[str, str]
    content_type: str
    due_time: datetime | None
    delay: timedelta | None
    expire_time: datetime | None
    expire_after: timedelta | None
    spread: timedelta | None
    seal_with: str
    age: timedelta
    fault: str = ""

    @property
    def timer(self) -> NewTimer:
        """The timer that it asks for. A delay is what is left of it: its other part has passed here, by one
        clock. Raises `InvalidArgument` where somebody has written a row by hand."""
        delay = self.delay
        return NewTimer(
            topic=self.topic,
            timer_id=self.timer_id,
            payload=self.payload,
            headers=self.headers,
            content_type=self.content_type,
            due_time=self.due_time,
            delay=None if delay is None else max(delay - self.age, timedelta(0)),
            expire_time=self.expire_time,
            expire_after=self.expire_after,
            spread=self.spread,
            seal_with=self.seal_with,
            occurrence_id=f"{self.timer_id}/{self.occurrence.hex}",
        )


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A row that the relay did not take, and why. It is tried again after `pause`; None: it is refused for
    good."""

    id: int
    reason: str
    pause: timedelta | None


@dataclass(slots=True)
class HandedOver:
    """What became of rows. Those in neither list are as they were. `failure`: the relay takes none at the
    moment. `is_open`: a call was given up by us, and may act until its own deadline."""

    taken: list[int]
    not_taken: list[NotTaken]
    failure: CallError | None = None
    is_open: bool = False


async def hand_over(client: RelayClient, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
    """Hand rows over in their order, as far as they are about the same timer.

    No call is begun after `deadline`, an instant of the monotonic clock, nor waits any longer. An error of
    the client's says that its call won't act any more: the client waits for the deadlines of its tries.
    """
    done = HandedOver([], [])
    stopped: set[tuple[str, str]] = set()  # timers of which a row was not taken: the later ones wait
    for wave in _waves(rows):
        some = [row for row in wave if (row.topic, row.timer_id) not in stopped]
        before = len(done.not_taken)
        try:
            async with asyncio.timeout(deadline - monotonic()):
                await _wave(client, some, done, deadline)
        except CallError as failure:
            done.failure = failure
        except TimeoutError:
            done.failure = CallError("no answer in time", code=grpc.StatusCode.DEADLINE_EXCEEDED)
            done.is_open = True
        if done.failure is not None:
            break
        refused = {each.id for each in done.not_taken[before:]}
        stopped |= {(row.topic, row.timer_id) for row in some if row.id in refused}
    return done


def _waves(rows: Sequence[OutboxRow]) -> list[list[OutboxRow]]:
    """The first row of each timer, the second of each, and so on."""
    waves: list[list[OutboxRow]] = []
    known: dict[tuple[str, str], int] = {}
    for row in rows:
        timer = row.topic, row.timer_id
        number = known[timer] = known.get(timer, -1) + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(row)
    return waves


Asked = tuple[OutboxRow, NewTimer | None]
"""A row and its timer; a cancel has none."""


async def _wave(client: RelayClient, rows: Sequence[OutboxRow], done: HandedOver, deadline: float) -> None:
    """Hand over rows of which no two are about the same timer."""
    asked = _read(rows, done)
    schedules = [(row, timer) for row, timer in asked if timer is not None and _goes_along(row)]
    alone = [(row, timer) for row, timer in asked if not _goes_along(row)]
    if schedules:
        try:
            new = [timer for _, timer in schedules]
            results = await client.schedule_batch(new, timeout=_left(deadline))
        except CallError as failure:
            if failure.code not in FOR_GOOD:
                raise
            alone += schedules  # what all timers of a call share is refused for all of them, such as a topic
        else:
            for (row, _), result in zip(schedules, results, strict=True):
                _note(row, result.error, done)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(row: OutboxRow, timer: NewTimer | None) -> None:
        async with places:
            _note(row, await _call(client, row, timer, _left(deadline)), done)

    others = [one(row, timer) for row, timer in alone]
    for ended in await asyncio.gather(*others, return_exceptions=True):
        if ended is not None:
            raise ended


def _goes_along(row: OutboxRow) -> bool:
    """Whether it is scheduled together with others. A payload may be larger than a relay takes in a message:
    then the whole call is refused, and that must be about this row alone."""
    return row.action == "schedule" and len(row.payload) <= LARGE


def _read(rows: Sequence[OutboxRow], done: HandedOver) -> list[Asked]:
    """The timers of rows; a row that somebody has written by hand may have none."""
    asked: list[Asked] = []
    for row in rows:
        try:
            if row.fault:
                raise InvalidArgument(row.fault)
            asked.append((row, None if row.action == "cancel" else row.timer))
        except CallError as failure:
            _note(row, failure, done)
    return asked


def _note(row: OutboxRow, failure: CallError | None, done: HandedOver) -> None:
    if failure is None:
        done.taken.append(row.id)
        return
    reason = f"{failure.code.name}: {failure.message}"
    pause = FULL_PAUSE if isinstance(failure, ResourceExhausted) else AWAY_PAUSE
    done.not_taken.append(NotTaken(row.id, reason, None if failure.code in FOR_GOOD else pause))


async def _call(
    client: RelayClient, row: OutboxRow, timer: NewTimer | None, timeout: float
) -> CallError | None:
    """Cancel, move or schedule one timer; what is returned is about this row alone. Raises `CallError` if the
    relay takes nothing."""
    try:
        if timer is None:
            await client.cancel(row.topic, row.timer_id, timeout=timeout)
            return None
        fields: dict[str, Any] = {name: getattr(timer, name) for name in FIELDS}
        moves = row.action == "move"
        await client.schedule(row.topic, timer.payload, **fields, only_if_pending=moves, timeout=timeout)
    except NotFound:
        pass  # nothing waits that could be moved
    except CallError as failure:
        if failure.code not in FOR_GOOD and not isinstance(failure, ResourceExhausted):
            raise
        return failure
    return None


def _left(deadline: float) -> float:
    """How long a call may take: the client is to say what became of it before the step ends. Raises
    `TimeoutError` if no call may begin.

    Race    The mover is stopped by its machine behind its last look at the clock, for longer than it has its
    lanes. `asyncio.timeout` ends a call only where it waits, and by then it has left.
    """
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("no time is left for a call")
    return 0.8 * left
