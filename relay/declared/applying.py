"""Puts the recurrences and calendars of a file, as the daemon starts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

from relay.api.errors import kind
from relay.api.recurring.calendars import CalendarCalls, message
from relay.api.recurring.calls import RecurrenceCalls
from relay.core.errors import InvalidField, RuleOver, ServiceError
from relay.declared.reading import Declared
from relay.settings.problems import SettingsError
from relay.v1 import recurrence_service_pb2 as pb

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries while Redis is away."""

WORDS = {
    pb.PUT_RESULT_CREATED: "new",  # `created` is a field that every line of the log has
    pb.PUT_RESULT_REPLACED: "replaced",
    pb.PUT_RESULT_UNCHANGED: "unchanged",
}

log = logging.getLogger(__name__)


class Placed(Protocol):
    """An entry of a file."""

    @property
    def place(self) -> str:
        """How people find it."""
        ...

    def problem(self, failure: InvalidField) -> str:
        """A sentence about a wrong field."""
        ...


Request = TypeVar("Request", pb.PutRecurrenceRequest, pb.PutCalendarRequest)
Answer = TypeVar("Answer", pb.PutRecurrenceResponse, pb.PutCalendarResponse)


async def apply(declared: Declared, calls: RecurrenceCalls, calendar_calls: CalendarCalls) -> None:
    """Put each, and try again for as long as Redis is away. Any number of relays do so as they start: what is
    like this already stays as it is, and what no entry names is left alone.

    A rule that has ended is passed over with a warning: a file that still has it must not stop a relay.
    Raises `SettingsError` for an entry that a topic's policy forbids, or whose calendar does not exist.
    """
    results: Counter[str] = Counter()
    for each in declared.calendars:
        asked = pb.PutCalendarRequest(calendar=message(each.name, each.dates))
        kept = await _put(each, calendar_calls.put, asked)
        results[WORDS[kept.result]] += 1
    if declared.calendars:
        log.info("calendars are as their file says", extra=dict(results))
    results.clear()
    for entry in declared.recurrences:
        try:
            answer = await _put(entry, calls.put, pb.PutRecurrenceRequest(recurrence=entry.spec))
        except RuleOver as failure:
            results["over"] += 1
            log.warning(
                "a recurrence is not put, since its rule is over: remove it from the file",
                extra={"entry": entry.place, "reason": entry.problem(failure)},
            )
        else:
            results[WORDS[answer.result]] += 1
    if declared.recurrences:
        log.info("recurrences are as their file says", extra=dict(results))


async def _put(entry: Placed, put: Callable[[Request], Awaitable[Answer]], request: Request) -> Answer:
    pause = FIRST_PAUSE
    while True:
        try:
            return await put(request)
        except RuleOver:
            raise
        except InvalidField as failure:
            raise SettingsError([entry.problem(failure)]) from None
        except ServiceError as failure:
            if kind(failure).retry_after is None:
                raise
            log.warning(
                "an entry is not put yet",
                extra={"entry": entry.place, "reason": str(failure), "retry_after": pause},
            )
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
