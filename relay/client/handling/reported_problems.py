"""Remembers which timer a token belonged to, so that a problem that the relay reports can be put into
words."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from relay.client.handling.lease import DeliveryLease
from relay.v1 import delivery_service_pb2 as pb

_log = logging.getLogger("relay.client")
_REMEMBERED = 10_000
_VOID = frozenset(
    {
        pb.PROBLEM_REASON_STALE,
        pb.PROBLEM_REASON_GONE,
        pb.PROBLEM_REASON_UNKNOWN_TOKEN,
    }
)


class TokenBook:
    """Running deliveries by token, and the timer_ids of the last 10,000 to 20,000 that ended.

    The relay answers only what went wrong, so there is no moment after which a token can't come
    back. Two generations bound the memory at no cost per entry.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._running: dict[bytes, DeliveryLease] = {}
        self._ended: dict[bytes, str] = {}
        self._ended_before: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._running)

    def add(self, lease: DeliveryLease) -> None:
        """Note that a delivery begins."""
        self._running[lease.token] = lease

    def end(self, lease: DeliveryLease) -> None:
        """Note that its handler has ended."""
        token = lease.token
        if self._running.pop(token, None) is None or lease.lost:
            return  # a lost one is reported already, and its outcome is refused once more
        self._ended[token] = lease.message.timer_id
        if len(self._ended) >= _REMEMBERED:
            self._ended_before, self._ended = self._ended, {}

    def report(self, problems: Iterable[pb.Problem]) -> None:
        """Log each problem once, and mark deliveries that are still running as lost."""
        for problem in problems:
            timer_id = self._note(problem)
            reason = _in_words(problem.reason)
            level = logging.DEBUG if timer_id is None else logging.WARNING
            _log.log(
                level,
                "relay refused a settlement: topic=%s timer_id=%s reason=%s: %s",
                self._topic,
                "?" if timer_id is None else timer_id,
                reason,
                problem.message,
            )

    def _note(self, problem: pb.Problem) -> str | None:
        """Return the timer_id if the token is known and no problem of it was reported before."""
        lease = self._running.get(problem.token)
        if lease is not None:
            known = lease.lost
            if problem.reason in _VOID:
                lease.lose()
            return None if known else lease.message.timer_id
        ended = self._ended.pop(problem.token, None)
        return self._ended_before.pop(problem.token, None) if ended is None else ended


def _in_words(reason: int) -> str:
    """The name of a reason, or its number if it comes from a newer relay."""
    known = pb.ProblemReason.DESCRIPTOR.values_by_number.get(reason)
    return str(reason) if known is None else known.name.removeprefix("PROBLEM_REASON_")
