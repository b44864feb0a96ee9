"""What consumers of every kind share: the topics that they may have, and the outcomes of deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from relay.api import translate
from relay.core.dispatch import Dispatch
from relay.core.errors import InvalidField
from relay.core.outcomes import ACKED, Ending
from relay.engine.delivery.session import Problem, Session
from relay.engine.engine import Engine
from relay.v1 import delivery_service_pb2 as pb

EXTEND = pb.OUTCOME_EXTEND

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
