"""Stores many timers in few calls: by columns where they are alike, otherwise one by one.

A topic's timers go by `ScheduleColumns` if they have the same headers, or none, the same debounce and spread,
and no expiry: that costs both sides less. All others go by `ScheduleBatch`. A relay that doesn't know columns
says so once in a batch, and gets the rest by `ScheduleBatch`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import grpc

from relay.client import arguments, errors
from relay.client.calls.change_values import Meeting, OnConflict, meeting, not_sealed, read_reached
from relay.client.calls.channel import SCHEDULE_BATCH, SCHEDULE_COLUMNS
from relay.client.calls.timer_calls import Pause, Steps, Together, call, retry_backoff
from relay.client.calls.timer_values import NewTimer, ScheduleResult, say_apart
from relay.v1 import timer_service_pb2 as pb

AT_ONCE = 4
"""The number of calls of one `schedule_batch` that are under way at once, where an event loop allows it."""

DURABLE_AT_ONCE = 100
"""The same where a durability is asked for: a server that syncs once a second answers all of them at once."""

MAX_TIMERS = 1_000
MAX_BYTES = 2 * 1024 * 1024
"""A call of `schedule_batch` holds at most this many bytes, or one timer: servers refuse big
messages (gRPC's default is 4 MiB)."""

BESIDE = 2 * arguments.MAX_NAME_BYTES + 128
"""The most bytes that a bare timer takes beside its payload: two names, two times, and their tags."""


def schedule_batch(
    timers: Iterable[NewTimer],
    *,
    create_only: bool,
    on_conflict: OnConflict | None,
    durability: str,
    timeout: float,
) -> Steps[list[ScheduleResult]]:
    """Store many timers, in as many calls as their size asks for; `timeout` is for each."""
    timers = list(timers)
    # If two timers have one name, the later one stands, so the two must not overtake each other. The same
    # name in two topics is rare, and costs only time.
    distinct = len({new.timer_id for new in timers}) == len(timers)
    batch = _Batch(meeting(create_only=create_only, on_conflict=on_conflict), durability, timeout)
    at_once = DURABLE_AT_ONCE if durability else AT_ONCE
    parts: list[list[ScheduleResult]] = yield Together(
        (batch.store(chunk, again=distinct) for chunk in _chunks(timers)), at_once if distinct else 1
    )
    return [result for part in parts for result in part]


class _Batch:
    """Make the calls of one `schedule_batch`. The answer to one is read while the relay works on the next
    one."""

    def __init__(self, said: Meeting, durability: str, timeout: float) -> None:
        self._said = said
        self._durability = durability
        self._timeout = timeout
        self._knows_columns = True

    def store(self, timers: Sequence[NewTimer], *, again: bool) -> Steps[list[ScheduleResult]]:
        """Make one call. With `again`, timers that Redis did not take, or not as durably in time, are sent
        once more by themselves, as those of an unary call are: until the timeout, and each time with twice
        the time."""
        end = time.monotonic() + self._timeout
        results = yield from self._call(timers, self._timeout, patience=1)
        backoff, patience = retry_backoff(), 1
        while refused := [place for place, told in enumerate(results) if again and _may_pass(told)]:
            pause, patience = backoff.next(), 2 * patience
            if time.monotonic() + pause >= end:
                break
            yield Pause(pause)
            try:
                some = [timers[place] for place in refused]
                answers = yield from self._call(some, end - time.monotonic(), patience=patience)
            except errors.CallError:
                break  # the others are stored, and these have their error
            for place, told in zip(refused, answers, strict=True):
                results[place] = told
        return results

    def _call(
        self, timers: Sequence[NewTimer], timeout: float, *, patience: int
    ) -> Steps[list[ScheduleResult]]:
        """Make one call. A second one follows if the relay doesn't know the first, or refuses what the timers
        share: so each timer has an answer of its own, and a refusal does not affect other chunks."""
        if self._knows_columns and _alike(timers):
            try:
                return (yield from self._by_columns(timers, timeout, patience))
            except errors.InvalidArgument:
                pass  # nothing is stored
            except errors.CallError as failure:
                if failure.code is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                self._knows_columns = False
        return (yield from self._one_by_one(timers, timeout, patience))

    def _by_columns(
        self, timers: Sequence[NewTimer], timeout: float, patience: int
    ) -> Steps[list[ScheduleResult]]:
        first = timers[0]
        request = pb.ScheduleColumnsRequest(
            topic=first.topic,
            timer_ids=[new.timer_id for new in timers],
            payloads=[new.payload for new in timers],
            headers=first.headers,
            content_type=first.content_type,
            durability=self._durability,
            seal_with=[new.seal_with for new in timers] if any(new.seal_with for new in timers) else (),
            occurrence_ids=[new.occurrence_id for new in timers]
            if any(new.occurrence_id for new in timers)
            else (),
            **self._said,
        )
        _say_times(request, timers)
        response = yield from call(SCHEDULE_COLUMNS, request, timeout, patience=patience)
        columns = zip(timers, response.due_times_us, response.results, strict=True)
        topic, reached = first.topic, response.reached or "stored"
        if len(response.errors) < len(timers):
            read_reached(self._durability, response.reached)
        results = [
            ScheduleResult(new.timer_id, None, (topic, due, result, False, reached))
            for new, due, result in columns
        ]
        for place in response.deliveries_under_way:
            told = topic, response.due_times_us[place], response.results[place], True, reached
            results[place] = ScheduleResult(timers[place].timer_id, None, told)
        if request.seal_with and not response.sealed_with_subject:
            for place in (place for place, new in enumerate(timers) if new.seal_with):
                results[place] = ScheduleResult(timers[place].timer_id, not_sealed())
        for place, failure in response.errors.items():
            results[place] = ScheduleResult.refused(timers[place], failure)
        return results

    def _one_by_one(
        self, timers: Sequence[NewTimer], timeout: float, patience: int
    ) -> Steps[list[ScheduleResult]]:
        request = pb.ScheduleBatchRequest(
            timers=[new.to_proto() for new in timers], durability=self._durability, **self._said
        )
        response = yield from call(SCHEDULE_BATCH, request, timeout, patience=patience)
        for told in response.results[:1]:
            if told.WhichOneof("result") == "scheduled":
                read_reached(self._durability, told.scheduled.reached)
        return [
            ScheduleResult.from_proto(new, told) for new, told in zip(timers, response.results, strict=True)
        ]


def _may_pass(told: ScheduleResult) -> bool:
    """Whether the next try may store what this one did not."""
    return isinstance(told.error, errors.Unavailable)


def _say_times(request: pb.ScheduleColumnsRequest, timers: Sequence[NewTimer]) -> None:
    first = timers[0]
    if first.apart_us is not None:
        say_apart(request, first.apart_us)
    if first.debounce is None:
        times = request.due_times_us if first.delay is None else request.delays_us
        times.extend([new.time_us for new in timers])


def _chunks(timers: Iterable[NewTimer]) -> Iterator[list[NewTimer]]:
    chunk: list[NewTimer] = []
    size = 0
    for new in timers:
        room = weight(new)
        if chunk and (len(chunk) >= MAX_TIMERS or size + room > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(new)
        size += room
    if chunk:
        yield chunk


def weight(new: NewTimer) -> int:
    """An upper bound of the bytes that it takes in a call, by columns or as a message."""
    beside = new.headers or new.content_type or new.seal_with or new.occurrence_id
    if beside or new.apart_us is not None:
        return new.to_proto().ByteSize() + 8
    return len(new.payload) + BESIDE  # asking the message takes five times as long


def _alike(timers: Sequence[NewTimer]) -> bool:
    """Whether they differ only in what has a column."""
    first = timers[0]
    topic, headers, content_type = first.topic, first.headers, first.content_type
    delayed, apart = first.due_time is None, first.apart_us
    return all(
        new.topic == topic
        and new.headers == headers
        and new.content_type == content_type
        and (new.due_time is None) is delayed
        and new.apart_us == apart
        and new.expire_time is None
        and new.expire_after is None
        for new in timers
    )
