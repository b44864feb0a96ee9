"""How a handler is called, and what it asks of the relay."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from relay.client import arguments
from relay.client.arguments import Seconds
from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import AckPolicy
from relay.v1 import delivery_service_pb2 as pb

MAX_ATTEMPTS = 1_000_000
_DAY = 86_400.0

Rejecting: TypeAlias = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How the wait grows from attempt to attempt. The wait before attempt n+1 is a random time between 0 and
    `initial` × `multiplier`^(n-1), at most `max`; both are in seconds.

    Raises `InvalidArgument` for an `initial` beyond a day, a `max` beyond seven, or a `multiplier` that is
    not between 1 and 100.

    >>> Backoff(initial=0.5, max=60)
    Backoff(initial=0.5, multiplier=2.0, max=60)
    """

    initial: float = 1.0
    multiplier: float = 2.0
    max: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what the relay would refuse."""
        _check_seconds(self.initial, "initial", _DAY)
        _check_seconds(self.max, "max", 7 * _DAY)
        factor: object = self.multiplier
        if not isinstance(factor, int | float) or not 1 <= factor <= 100:
            raise InvalidArgument("multiplier must be a number from 1 to 100", field="multiplier")

    def longest(self, attempt: int) -> float:
        """Return the longest wait (seconds) after this attempt."""
        try:
            return min(self.initial * self.multiplier ** (attempt - 1), self.max)
        except OverflowError:
            return self.max if self.initial else 0.0


class HandlerOptions(TypedDict, total=False):
    """The options of a handler; `Handlers.on` says what they mean."""

    concurrency: int | None
    prefetch: int | None
    ack_policy: AckPolicy
    max_attempts: int | None
    backoff: Backoff | None
    timeout: Seconds | None
    reject: Rejecting


def check_asked(max_attempts: int | None, backoff: Backoff | None, timeout: Seconds | None) -> None:
    """Raises `InvalidArgument` for what the relay would refuse."""
    if max_attempts is not None:
        arguments.check_count(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidArgument("backoff must be a Backoff", field="backoff")
    if timeout is not None and not 0 < arguments.to_micros(timeout, "timeout") <= 7 * _DAY * 1e6:
        raise InvalidArgument("timeout must be more than 0 and at most 7 days", field="timeout")


def check_reject(reject: Rejecting, policy: AckPolicy) -> tuple[type[Exception], ...]:
    """Return the types of exceptions as a tuple. Raises `InvalidArgument`."""
    kinds: tuple[Any, ...] = reject if isinstance(reject, tuple) else (reject,)
    if not all(inspect.isclass(each) and issubclass(each, Exception) for each in kinds):
        raise InvalidArgument("reject must be types of exceptions, such as (ValueError,)", field="reject")
    if kinds and policy is AckPolicy.MANUAL:
        raise InvalidArgument(
            "reject has no effect with ack_policy MANUAL, where an exception means nothing", field="reject"
        )
    return kinds


def to_settings(
    topic: str, max_attempts: int | None, backoff: Backoff | None, timeout: Seconds | None
) -> pb.HandlerSettings | None:
    """Return what is asked of the relay; None for nothing."""
    if max_attempts is None and backoff is None and timeout is None:
        return None
    asked = pb.HandlerSettings(topic=topic, max_attempts=max_attempts or 0)
    if backoff is not None:
        asked.backoff.multiplier = backoff.multiplier
        asked.backoff.initial.CopyFrom(arguments.to_duration(backoff.initial, "initial"))
        asked.backoff.max.CopyFrom(arguments.to_duration(backoff.max, "max"))
    if timeout is not None:
        asked.timeout.CopyFrom(arguments.to_duration(timeout, "timeout"))
    return asked


def shortfall(asked: pb.HandlerSettings, answered: pb.Opened) -> str:
    """Return what of it does not hold, in words; empty if all of it does."""
    held = next((each for each in answered.handlers if each.topic == asked.topic), None)
    if held is None:
        return "the relay is older than they are; its own settings say how often and how soon it tries again"
    said = []
    if held.max_attempts != asked.max_attempts:
        said.append(f"max_attempts is {held.max_attempts}, as the topic's settings have it")
    if held.timeout != asked.timeout:
        seconds = held.timeout.seconds + held.timeout.nanos / 1e9
        said.append(f"timeout is {seconds:g} s, as the topic's settings have it")
    return "; ".join(said)


def _check_seconds(value: float, field: str, most: float) -> None:
    if not arguments.to_micros(value, field) <= most * 1e6:
        raise InvalidArgument(f"{field} must be at most {most:,.0f} seconds", field=field)
