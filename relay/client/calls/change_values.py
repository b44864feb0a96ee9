"""The condition under which a timer is changed, and what became of the change."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from relay.client import arguments
from relay.v1 import timer_pb2


class ChangeResult(enum.Enum):
    """What became of a change. It is true if the change was made."""

    CREATED = "created"
    """A new timer was stored."""
    REPLACED = "replaced"
    """A timer with that id existed, and was replaced."""
    CANCELLED = "cancelled"
    """The timer was removed."""
    RUN = "run"
    """The timer is due now."""
    UNCHANGED = "unchanged"
    """The timer was left as it is: because of `create_only`, or because it has another due time."""
    IN_FLIGHT = "in_flight"
    """The timer is being delivered right now, and was left as it is."""
    NOT_FOUND = "not_found"
    """There is no such timer."""
    UNKNOWN = "unknown"
    """A result that a newer relay knows and this client doesn't."""

    def __bool__(self) -> bool:
        return self in _MADE


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    """What `cancel` and `run_timer` answer. It is true if the change was made.

    >>> if await client.cancel("invoices", "invoice-42"):      # doctest: +SKIP
    ...     print("it was there")
    """

    result: ChangeResult
    """CANCELLED or RUN; NOT_FOUND, IN_FLIGHT or UNCHANGED: then nothing was changed."""
    delivery_under_way: bool
    """Whether a relay was delivering the timer at that moment: its handler may still be running."""

    def __bool__(self) -> bool:
        return bool(self.result)


_MADE = frozenset({ChangeResult.CREATED, ChangeResult.REPLACED, ChangeResult.CANCELLED, ChangeResult.RUN})
_RESULTS = {
    timer_pb2.CHANGE_RESULT_CREATED: ChangeResult.CREATED,
    timer_pb2.CHANGE_RESULT_REPLACED: ChangeResult.REPLACED,
    timer_pb2.CHANGE_RESULT_CANCELLED: ChangeResult.CANCELLED,
    timer_pb2.CHANGE_RESULT_RUN: ChangeResult.RUN,
    timer_pb2.CHANGE_RESULT_UNCHANGED: ChangeResult.UNCHANGED,
    timer_pb2.CHANGE_RESULT_IN_FLIGHT: ChangeResult.IN_FLIGHT,
    timer_pb2.CHANGE_RESULT_NOT_FOUND: ChangeResult.NOT_FOUND,
}


def read_result(result: timer_pb2.ChangeResult) -> ChangeResult:
    """Read the number from the wire."""
    return _RESULTS.get(result, ChangeResult.UNKNOWN)


def condition(*, only_if_pending: bool, only_if_due_at: datetime | None) -> timer_pb2.Condition | None:
    """Return the message for the wire; None if nothing is asked for."""
    if not only_if_pending and only_if_due_at is None:
        return None
    message = timer_pb2.Condition(only_if_pending=only_if_pending)
    if only_if_due_at is not None:
        message.due_time.CopyFrom(arguments.to_timestamp(only_if_due_at, "only_if_due_at"))
    return message
