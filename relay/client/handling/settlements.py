"""Settlements as the wire has them, which lack only their token: how a delivery ends, and EXTEND.

Both the exceptions that a handler raises and the methods of a delivery use these. Wrong
arguments raise `InvalidArgument`.
"""

from __future__ import annotations

from datetime import datetime

from relay.client import arguments
from relay.client.arguments import Seconds
from relay.client.errors import InvalidArgument
from relay.v1 import delivery_service_pb2 as pb

MAX_REASON_BYTES = 1_024

ACK = pb.Settlement(outcome=pb.OUTCOME_ACK)
EXTEND = pb.Settlement(outcome=pb.OUTCOME_EXTEND)
ABANDONED = pb.Settlement(outcome=pb.OUTCOME_NACK, reason="DeliveryLost")
"""The outcome of a handler that ended without one, since its delivery was lost."""


def nack(retry_after: Seconds | None, reason: str, *, retryable: bool) -> pb.Settlement:
    """NACK: the next attempt comes `retry_after` from now, or as the topic's retry policy says, or never.

    Raises `InvalidArgument`.
    """
    settlement = pb.Settlement(outcome=pb.OUTCOME_NACK, reason=_shortened(reason))
    if retry_after is not None:
        if not retryable:
            raise InvalidArgument(
                "retry_after has no effect with retryable=False: leave one out", field="retry_after"
            )
        settlement.retry_after.CopyFrom(arguments.to_duration(retry_after, "retry_after"))
    if not retryable:
        settlement.retryable = False
    return settlement


def reject(reason: str) -> pb.Settlement:
    """REJECT: the timer is never delivered again."""
    return pb.Settlement(outcome=pb.OUTCOME_REJECT, reason=_shortened(reason))


def reschedule(delay: Seconds | None, due_time: datetime | None, payload: bytes | None) -> pb.Settlement:
    """RESCHEDULE: the timer is done for now, and due again. Without a `payload` the old one stays.

    Raises `InvalidArgument`.
    """
    again = pb.Reschedule()
    if (due_time is None) == (delay is None):
        raise InvalidArgument("due_time or delay must be given, and not both", field="due_time")
    if delay is not None:
        again.delay.CopyFrom(arguments.to_duration(delay, "delay"))
    elif due_time is not None:
        again.due_time.CopyFrom(arguments.to_timestamp(due_time, "due_time"))
    if payload is not None:
        again.payload = arguments.check_payload(payload)
    return pb.Settlement(outcome=pb.OUTCOME_RESCHEDULE, reschedule=again)


def _shortened(reason: str) -> str:
    """Cut a text to the 1,024 bytes that the relay keeps, never through a character."""
    if arguments.check_text(reason, "reason") <= MAX_REASON_BYTES:
        return reason
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
