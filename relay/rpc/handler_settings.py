"""What an application's handlers ask for as their stream opens, and what holds of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.duration_pb2 import Duration

from relay.api import times
from relay.core.errors import InvalidField
from relay.core.instants import SECOND, micros
from relay.core.policy import HandlerPolicy, RetryPolicy
from relay.engine.engine import Engine
from relay.v1 import delivery_service_pb2 as pb

DAY = 86_400
MOST_ATTEMPTS = 1_000_000


def agreed(
    engine: Engine, asked: Iterable[pb.HandlerSettings], topics: Iterable[str]
) -> dict[str, HandlerPolicy]:
    """Return what holds for each topic whose handler asks for something. Raises `InvalidField`."""
    known = set(topics)
    found: dict[str, HandlerPolicy] = {}
    for place, each in enumerate(asked):
        field = f"handlers[{place}]"
        if each.topic not in known:
            raise InvalidField(
                f"{field}.topic", "is none of the topics; add it to them, or leave the entry out"
            )
        if each.topic in found:
            raise InvalidField(f"{field}.topic", "came twice; give one entry for each topic")
        found[each.topic] = engine.narrowed(each.topic, _read(field, each))
    return found


def told(agreed: Mapping[str, HandlerPolicy]) -> list[pb.HandlerSettings]:
    """Return what holds, as the application is told."""
    return [_written(topic, policy) for topic, policy in agreed.items()]


def _read(field: str, asked: pb.HandlerSettings) -> HandlerPolicy:
    if not 0 <= asked.max_attempts <= MOST_ATTEMPTS:
        raise InvalidField(f"{field}.max_attempts", f"is {asked.max_attempts}; give 1 to {MOST_ATTEMPTS:,}")
    backoff = None
    if asked.HasField("backoff"):
        factor = asked.backoff.multiplier
        if not 1 <= factor <= 100:  # NaN is outside, too
            raise InvalidField(f"{field}.backoff.multiplier", f"is {factor}; give 1 to 100")
        backoff = RetryPolicy(
            initial=_seconds(f"{field}.backoff.initial", asked.backoff.initial, 0, DAY),
            multiplier=factor,
            max=_seconds(f"{field}.backoff.max", asked.backoff.max, 0, 7 * DAY),
        )
    timeout = 0.0
    if asked.HasField("timeout"):
        timeout = _seconds(f"{field}.timeout", asked.timeout, 1, 7 * DAY)
    return HandlerPolicy(max_attempts=asked.max_attempts, backoff=backoff, timeout=timeout)


def _seconds(field: str, length: Duration, least: int, most: int) -> float:
    """Read a length of at least `least` microseconds and at most `most` seconds."""
    found = times.length(field, length)
    if not least <= found <= most * SECOND:
        wanted = "more than 0" if least else "0"
        raise InvalidField(field, f"is {found / SECOND:g} seconds; give {wanted} to {most:,}")
    return found / SECOND


def _written(topic: str, policy: HandlerPolicy) -> pb.HandlerSettings:
    settings = pb.HandlerSettings(topic=topic, max_attempts=policy.max_attempts)
    if policy.backoff is not None:
        settings.backoff.multiplier = policy.backoff.multiplier
        settings.backoff.initial.CopyFrom(_duration(policy.backoff.initial))
        settings.backoff.max.CopyFrom(_duration(policy.backoff.max))
    if policy.timeout:
        settings.timeout.CopyFrom(_duration(policy.timeout))
    return settings


def _duration(seconds: float) -> Duration:
    whole, rest = divmod(micros(seconds), SECOND)
    return Duration(seconds=whole, nanos=rest * 1000)
