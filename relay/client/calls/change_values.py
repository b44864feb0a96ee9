"""The condition under which a timer is changed, and what became of the change."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from relay.client import arguments, errors
from relay.v1 import timer_pb2, timer_service_pb2


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
    """The timer was left as it is: because of `create_only` or `on_conflict`, or because it has another due
    time."""
    IN_FLIGHT = "in_flight"
    """The timer is being delivered right now, and was left as it is."""
    NOT_FOUND = "not_found"
    """There is no such timer."""
    UNKNOWN = "unknown"
    """A result that a newer relay knows and this client doesn't."""

    def __bool__(self) -> bool:
        return self in _MADE


class OnConflict(enum.Enum):
    """Which timer stands where one with the id exists. A timer that is being delivered exists, too."""

    REPLACE = "replace"
    """The new one."""
    KEEP_EARLIEST = "keep_earliest"
    """The one that is due earlier; the existing one if both are due at once."""
    KEEP_LATEST = "keep_latest"
    """The one that is due later; the existing one if both are due at once."""
    KEEP_EXISTING = "keep_existing"
    """The existing one: the same as `create_only`."""


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
    durability: str = "stored"
    """What the answer stands for: `stored`, `fsync`, `replicas:1`, `fsync+replicas:1`. `run_timer` does not
    say."""

    def __bool__(self) -> bool:
        return bool(self.result)


_MADE = frozenset({ChangeResult.CREATED, ChangeResult.REPLACED, ChangeResult.CANCELLED, ChangeResult.RUN})
_SINCE_ON_CONFLICT = {
    OnConflict.KEEP_EARLIEST: timer_service_pb2.ON_CONFLICT_KEEP_EARLIEST,
    OnConflict.KEEP_LATEST: timer_service_pb2.ON_CONFLICT_KEEP_LATEST,
}
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


class Meeting(TypedDict, total=False):
    """The fields of a request that say what happens where two timers meet."""

    mode: timer_service_pb2.ScheduleMode
    on_conflict: timer_service_pb2.OnConflict


def meeting(*, create_only: bool, on_conflict: OnConflict | None) -> Meeting:
    """Return what happens if a timer with the id exists. What relays of before know is said in their words.
    Raises `InvalidArgument`."""
    if create_only and on_conflict is not None:
        raise errors.InvalidArgument(
            "on_conflict can't be combined with create_only, which is KEEP_EXISTING", field="on_conflict"
        )
    if on_conflict in _SINCE_ON_CONFLICT:
        return {"on_conflict": _SINCE_ON_CONFLICT[on_conflict]}
    if create_only or on_conflict is OnConflict.KEEP_EXISTING:
        return {"mode": timer_service_pb2.SCHEDULE_MODE_CREATE}
    return {"mode": timer_service_pb2.SCHEDULE_MODE_REPLACE}


def read_reached(asked: str, reached: str) -> str:
    """Read the durability of an answer, which is empty if it is `stored`. Raises `FailedPrecondition` if the
    relay did not know what was asked."""
    if asked not in ("", "stored") and not reached:
        raise errors.FailedPrecondition(
            "durability: the relay does not know it, and the change is stored: update the relay"
        )
    return reached or "stored"


def check_sealed(seal_with: str, *, told: bool) -> None:
    """Require an answer's word that what names a subject is sealed with that subject's key. Raises
    `FailedPrecondition` if the relay did not know what was asked."""
    if seal_with and not told:
        raise not_sealed()


def not_sealed() -> errors.FailedPrecondition:
    """The error for what is stored and would outlive its subject's key."""
    return errors.FailedPrecondition(
        "seal_with: the relay does not know it, and what it has stored is not sealed with the subject's key: "
        "update the relay, and store it again"
    )


def condition(
    *, only_if_pending: bool, only_if_due_at: datetime | None, only_if_leased: bool = False
) -> timer_pb2.Condition | None:
    """Return the message for the wire; None if nothing is asked for. Raises `InvalidArgument`."""
    if only_if_pending and only_if_leased:
        raise errors.InvalidArgument(
            "only_if_leased can't be combined with only_if_pending", field="only_if_leased"
        )
    if not (only_if_pending or only_if_leased) and only_if_due_at is None:
        return None
    message = timer_pb2.Condition(only_if_pending=only_if_pending, only_if_leased=only_if_leased)
    if only_if_due_at is not None:
        message.due_time.CopyFrom(arguments.to_timestamp(only_if_due_at, "only_if_due_at"))
    return message
