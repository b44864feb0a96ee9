"""The calls of RecurrenceService as steps; see `relay.client.calls.timer_calls`."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime

from relay.client import arguments, errors
from relay.client.arguments import Seconds
from relay.client.calls.backoff import RetryBackoff
from relay.client.calls.change_values import check_sealed, read_reached
from relay.client.calls.channel import (
    BACKFILL,
    DELETE_RECURRENCE,
    GET_RECURRENCE,
    HISTORY,
    LIST_RECURRENCES,
    PAUSE_RECURRENCE,
    PREVIEW,
    PUT_RECURRENCE,
    RESUME_RECURRENCE,
    TRIGGER,
    Method,
    Request,
    Response,
)
from relay.client.calls.recurrence_values import (
    Backfilled,
    BackfillOverlap,
    DeletedRecurrence,
    NominalInstant,
    PutRecurrence,
    RecurOptions,
    Recurrence,
    RecurrenceHistory,
    RecurrenceInfo,
    RuleFields,
    check_names,
    read_backfilled,
    read_history,
    read_instant,
    to_overlap,
    to_rule,
    to_spec,
)
from relay.client.calls.timer_calls import Attempt, Pause, Steps, call, pause_after
from relay.v1 import recurrence_service_pb2 as pb

MAX_PAGE = 500
MAX_SHOWN = 1_000
MAX_REMEMBERED = 16
"""Nominal instants that a recurrence remembers."""
MAX_VERSION = 2**63 - 1
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two tries."""

_PATH = re.compile(r"(?:recurrence\.)?(?:rule\.)?")
"""Where the relay's messages keep what is an argument here."""


def put(
    topic: str,
    recurrence_id: str,
    options: RecurOptions,
    if_version: int | None,
    note: str,
    durability: str,
    timeout: float,
) -> Steps[PutRecurrence]:
    """Keep a recurrence. Raises `InvalidArgument`, whose field is the name of the argument."""
    spec = to_spec(topic, recurrence_id, options)
    return (yield from put_spec(spec, if_version, timeout, note=note, durability=durability))


def put_spec(
    spec: pb.RecurrenceSpec, if_version: int | None, timeout: float, *, note: str = "", durability: str = ""
) -> Steps[PutRecurrence]:
    """Keep a recurrence that is a message already; see `put`."""
    request = pb.PutRecurrenceRequest(recurrence=spec, note=arguments.check_note(note), durability=durability)
    if if_version is not None:
        arguments.check_count(if_version, "if_version", 0, MAX_VERSION)
        request.if_version = if_version
    with _arguments():
        response = yield from call(PUT_RECURRENCE, request, timeout)
    read_reached(durability, response.reached)
    check_sealed(spec.seal_with, told=response.sealed_with_subject)
    return PutRecurrence.from_response(response)


def get(topic: str, recurrence_id: str, timeout: float) -> Steps[Recurrence | None]:
    """Read a recurrence, or None."""
    check_names(topic, recurrence_id)
    request = pb.GetRecurrenceRequest(topic=topic, recurrence_id=recurrence_id)
    try:
        response = yield from call(GET_RECURRENCE, request, timeout)
    except errors.NotFound:
        return None
    return Recurrence.from_proto(response.recurrence)


def page(
    topic: str, prefix: str, paused: bool | None, page_size: int, token: str, timeout: float
) -> Steps[tuple[list[RecurrenceInfo], str]]:
    """Read one page of a topic's, and the token of the next page, which is empty at the end."""
    request = pb.ListRecurrencesRequest(topic=topic, prefix=prefix, page_size=page_size, page_token=token)
    if paused is not None:
        request.paused = paused
    response = yield from call(LIST_RECURRENCES, request, timeout)
    return [RecurrenceInfo.from_proto(each) for each in response.recurrences], response.next_page_token


def preview(
    options: RuleFields, topic: str, count: int, after_time: datetime | None, timeout: float
) -> Steps[list[NominalInstant]]:
    """Read the next instants of a rule. Raises `InvalidArgument`, whose field is the name of the argument."""
    arguments.check_count(count, "count", 1, MAX_SHOWN)
    arguments.check_text(topic, "topic")
    request = pb.PreviewRecurrenceRequest(rule=to_rule(options), count=count, topic=topic)
    if after_time is not None:
        request.after_time.CopyFrom(arguments.to_timestamp(after_time, "after_time"))
    with _arguments():
        response = yield from call(PREVIEW, request, timeout)
    return [read_instant(each) for each in response.instants]


def pause(topic: str, recurrence_id: str, note: str, durability: str, timeout: float) -> Steps[Recurrence]:
    """Pause a recurrence. Raises `NotFound`, `InvalidArgument`."""
    check_names(topic, recurrence_id)
    request = pb.PauseRecurrenceRequest(
        topic=topic, recurrence_id=recurrence_id, note=arguments.check_note(note), durability=durability
    )
    response = yield from call(PAUSE_RECURRENCE, request, timeout)
    read_reached(durability, response.reached)
    return Recurrence.from_proto(response.recurrence)


def resume(topic: str, recurrence_id: str, note: str, durability: str, timeout: float) -> Steps[Recurrence]:
    """End a pause. Raises `NotFound`."""
    check_names(topic, recurrence_id)
    request = pb.ResumeRecurrenceRequest(
        topic=topic, recurrence_id=recurrence_id, note=arguments.check_note(note), durability=durability
    )
    response = yield from call(RESUME_RECURRENCE, request, timeout)
    read_reached(durability, response.reached)
    return Recurrence.from_proto(response.recurrence)


def trigger(topic: str, recurrence_id: str, note: str, durability: str, timeout: float) -> Steps[str]:
    """Make an occurrence now; return its name, or an empty text. Raises `NotFound`."""
    check_names(topic, recurrence_id)
    request = pb.TriggerRecurrenceRequest(
        topic=topic, recurrence_id=recurrence_id, note=arguments.check_note(note), durability=durability
    )
    response = yield from _once(TRIGGER, request, timeout)
    read_reached(durability, response.reached)
    return response.timer_id


def backfill(
    topic: str,
    recurrence_id: str,
    start_time: datetime,
    end_time: datetime,
    interval: Seconds,
    overlap: BackfillOverlap | None,
    note: str,
    durability: str,
    timeout: float,
) -> Steps[Backfilled]:
    """Make occurrences for instants that have passed. Raises `NotFound`."""
    check_names(topic, recurrence_id)
    request = pb.BackfillRecurrenceRequest(
        topic=topic,
        recurrence_id=recurrence_id,
        start_time=arguments.to_timestamp(start_time, "start_time"),
        end_time=arguments.to_timestamp(end_time, "end_time"),
        interval=arguments.to_duration(interval, "interval"),
        overlap=to_overlap(overlap),
        note=arguments.check_note(note),
        durability=durability,
    )
    response = yield from _once(BACKFILL, request, timeout)
    read_reached(durability, response.reached)
    return read_backfilled(response)


def delete(
    topic: str, recurrence_id: str, cancel_waiting: bool, note: str, durability: str, timeout: float
) -> Steps[DeletedRecurrence]:
    """Remove a recurrence."""
    check_names(topic, recurrence_id)
    request = pb.DeleteRecurrenceRequest(
        topic=topic,
        recurrence_id=recurrence_id,
        cancel_waiting=cancel_waiting,
        note=arguments.check_note(note),
        durability=durability,
    )
    response = yield from call(DELETE_RECURRENCE, request, timeout)
    read_reached(durability, response.reached)
    return DeletedRecurrence(response.deleted, response.cancelled)


def history(topic: str, recurrence_id: str, limit: int, timeout: float) -> Steps[RecurrenceHistory]:
    """Read what came of the latest instants. Raises `NotFound`."""
    check_names(topic, recurrence_id)
    arguments.check_count(limit, "limit", 1, MAX_REMEMBERED)
    request = pb.GetRecurrenceHistoryRequest(topic=topic, recurrence_id=recurrence_id, limit=limit)
    return read_history((yield from call(HISTORY, request, timeout)))


def check_list(topic: str, prefix: str, page_size: int) -> None:
    """Refuse what is plainly wrong before the first page is asked for."""
    arguments.check_name(topic, "topic")
    arguments.check_text(prefix, "prefix")
    arguments.check_count(page_size, "page_size", 1, MAX_PAGE)


def _once(method: Method[Request, Response], request: Request, timeout: float) -> Steps[Response]:
    """Call, and call again only while no relay can be reached, or it refuses the call since this caller is
    over a bound, for `timeout` seconds in all: a call that a relay has may have its effect, and another one
    would have it twice. As with `call`, no error is raised while a try may still act. Raises `CallError`."""
    end = time.monotonic() + timeout
    backoff = RetryBackoff(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        limit = max(end - time.monotonic(), 0.001)
        over = time.monotonic() + limit
        try:
            response: Response = yield Attempt(method, request, limit)
        except errors.Unavailable as error:
            pause = backoff.next()
            if error.unanswered:
                yield Pause(max(over - time.monotonic(), 0.0))
                raise
            if error.retry_after is not None or time.monotonic() + pause >= end:
                raise
        except errors.ResourceExhausted as error:
            pause = pause_after(error, backoff, end)
        except errors.DeadlineExceeded:
            yield Pause(max(over - time.monotonic(), 0.0))
            raise
        else:
            return response
        yield Pause(pause)


@contextmanager
def _arguments() -> Generator[None, None, None]:
    """Within the block, errors of the relay name arguments."""
    try:
        yield
    except errors.InvalidArgument as error:
        field = _PATH.sub("", error.field, count=1)
        message = error.message
        if error.field and message.startswith(error.field):
            message = f"{field or 'rule'}{message.removeprefix(error.field)}"
        raise errors.InvalidArgument(message, field=field) from None
