"""What consumers share: the topics that they may have, their handlers' wishes, the outcomes of deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from google.protobuf.duration_pb2 import Duration

from relay.api import times, translate
from relay.core.dispatch import Dispatch
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.outcomes import ACKED, Ending
from relay.core.policy import HandlerPolicy, RetryPolicy
from relay.engine.delivery.session import Problem, Session
from relay.engine.engine import Engine
from relay.v1 import delivery_service_pb2 as pb

EXTEND = pb.OUTCOME_EXTEND

DAY = 86_400
MOST_ATTEMPTS = 1_000_000

WRONG = {"outcome": Problem.INVALID_OUTCOME, "retry_after": Problem.INVALID_RETRY_AFTER}
"""Problems by the field of a settlement that is wrong."""

PROBLEMS = {
    Problem.UNKNOWN_TOKEN: pb.PROBLEM_REASON_UNKNOWN_TOKEN,
    Problem.DUPLICATE: pb.PROBLEM_REASON_DUPLICATE,
    Problem.STALE: pb.PROBLEM_REASON_STALE,
    Problem.GONE: pb.PROBLEM_REASON_GONE,
    Problem.INVALID_OUTCOME: pb.PROBLEM_REASON_INVALID,
    Problem.INVALID_RETRY_AFTER: pb.PROBLEM_REASON_INVALID,
    Problem.INVALID_RESCHEDULE: pb.PROBLEM_REASON_INVALID,
}


def problem(token: bytes, what: Problem) -> pb.Problem:
    """A settlement that changed nothing, as callers see it."""
    return pb.Problem(token=token, reason=PROBLEMS[what], message=what.value)


def admit(engine: Engine, field: str, topics: Sequence[str]) -> None:
    """Raises `InvalidField` for topics whose deliveries can't be requested."""
    pushed = engine.pushed()
    for topic in topics:
        engine.admit(field, topic)
        if topic in pushed:
            raise InvalidField(field, f"{topic!r} is pushed; set its delivery.mode to stream first")
        if engine.dispatch(topic) is Dispatch.LIST:
            raise InvalidField(
                field, f"{topic!r} is dispatched to a list, from which workers take its timers in Redis"
            )


def take(
    engine: Engine,
    session: Session,
    settlements: Iterable[pb.Settlement],
    acknowledged: Sequence[bytes] = (),
    *,
    wrong: Callable[[bytes, InvalidField], None],
    extends: bool = True,
) -> None:
    """Take outcomes in their order, those in a row that are alike together, and then the tokens in
    `acknowledged`.

    If two outcomes are about one delivery, the first one counts. `wrong` is called with the token of each
    outcome that is wrong itself, and why; that delivery is still open. Without `extends`, EXTEND is wrong,
    too.
    """
    alike: list[bytes] = []
    ending = ACKED
    for settlement in settlements:
        token = settlement.token
        if extends and settlement.outcome == EXTEND:
            engine.end(session, alike, ending)
            alike = []
            engine.extend(session, token)
            continue
        try:
            said = _said(engine, session, token, settlement)
        except InvalidField as failure:
            engine.end(session, alike, ending)
            alike = []
            wrong(token, failure)
            continue
        if said != ending:
            engine.end(session, alike, ending)
            alike, ending = [], said
        alike.append(token)
    if ending is not ACKED:
        engine.end(session, alike, ending)
        alike = []
    engine.end(session, [*alike, *acknowledged], ACKED)


def end(engine: Engine, session: Session, token: bytes, said: translate.Ended) -> None:
    """Take the outcome of a handler that is done. Raises `InvalidField`; the delivery is then still open."""
    engine.end(session, [token], _said(engine, session, token, said))


def _said(engine: Engine, session: Session, token: bytes, said: translate.Ended) -> Ending:
    """Raises `InvalidField`. Most outcomes are ACKs, for which no limit is looked up."""
    if translate.acknowledges(said):
        return ACKED
    return translate.ending(said, engine.payload_limit(session, token))


def invalid(failure: InvalidField) -> Problem:
    """Return the problem of an outcome that is wrong itself."""
    return WRONG.get(failure.field, Problem.INVALID_RESCHEDULE)


def agreed(
    engine: Engine, asked: Iterable[pb.HandlerSettings], topics: Iterable[str]
) -> dict[str, HandlerPolicy]:
    """Return what holds for each topic whose handler asks for something. Raises `InvalidField`."""
    known = set(topics)
    found: dict[str, HandlerPolicy] = {}
    for place, each in enumerate(asked):
        field = f"handlers[{place}]"
        if each.topic not in known:
            raise InvalidField(f"{field}.topic", "is not among topics; add it there, or leave this entry out")
        if each.topic in found:
            raise InvalidField(f"{field}.topic", "came twice; give one entry for each topic")
        found[each.topic] = engine.narrowed(each.topic, _read(field, each))
    return found


def told(agreed: Mapping[str, HandlerPolicy]) -> list[pb.HandlerSettings]:
    """Return the agreed settings as `Opened` has them."""
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
        settings.backoff.initial.FromMicroseconds(round(policy.backoff.initial * SECOND))
        settings.backoff.max.FromMicroseconds(round(policy.backoff.max * SECOND))
    if policy.timeout:
        settings.timeout.FromMicroseconds(round(policy.timeout * SECOND))
    return settings
