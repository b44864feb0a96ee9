"""Puts the recurrences and calendars of a file, as the daemon starts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

import anyio

from relay.api.errors import kind
from relay.api.recurring.calendars import CalendarCalls, message
from relay.api.recurring.calls import RecurrenceCalls
from relay.core.errors import InvalidField, RuleOver, ServiceError, SubjectForgotten
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


T = TypeVar("T")


async def apply(declared: Declared, calls: RecurrenceCalls, calendar_calls: CalendarCalls) -> None:
    """Put each, and try again for as long as Redis is away. Any number of relays do so as they start: what is
    like this already stays as it is, and what no entry names is left alone. When this returns, what was put
    has the durability of its topic.

    A rule that has ended is passed over with a warning, and so is a subject that was forgotten: a file that
    still has it must not stop a relay.
    Raises `SettingsError` for an entry that a topic's policy forbids, or whose calendar does not exist.
    """
    results: Counter[str] = Counter()
    for each in declared.calendars:
        asked = pb.PutCalendarRequest(calendar=message(each.name, each.dates))
        last = each is declared.calendars[-1]
        kept = await _insist(each, partial(calendar_calls.put, asked, waits=last))
        results[WORDS[kept.result]] += 1
    if declared.calendars:
        log.info("calendars are as their file says", extra=dict(results))
    results.clear()
    for entry in declared.recurrences:
        try:
            wanted = pb.PutRecurrenceRequest(recurrence=entry.spec)
            answer = await _insist(entry, partial(calls.put, wanted, waits=False))
        except RuleOver as failure:
            results["over"] += 1
            log.warning(
                "a recurrence is not put, since its rule is over: remove it from the file",
                extra={"entry": entry.place, "reason": entry.problem(failure)},
            )
        except SubjectForgotten as failure:
            results["forgotten"] += 1
            log.warning(
                "a recurrence is not put, since its subject was forgotten: remove it from the file",
                extra={"entry": entry.place, "reason": entry.problem(failure)},
            )
        else:
            results[WORDS[answer.result]] += 1
    for topic, entry in {entry.spec.topic: entry for entry in declared.recurrences}.items():
        await _insist(entry, partial(calls.settle, topic))  # one wait for all: a file may have a thousand
    if declared.recurrences:
        log.info("recurrences are as their file says", extra=dict(results))


async def _insist(entry: Placed, call: Callable[[], Awaitable[T]]) -> T:
    """Call until Redis takes it. Raises `SettingsError`, `RuleOver`, `SubjectForgotten`, and what is not
    mended by time."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await call()
        except (RuleOver, SubjectForgotten):
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
