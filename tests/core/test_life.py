"""What holds of every state and every event of a timer's life, by the rules alone."""

from __future__ import annotations

from functools import cache

from relay.core.life import Effect, LifeEvent, LifeState, TimerLife, step
from relay.core.outcomes import Reason, Verdict
from relay.core.timers import Change
from tests.contract.life_cases import STARTS, Happening, happenings

NEW = (LifeEvent.SCHEDULE, LifeEvent.RESCHEDULE)
COUNTED = (LifeEvent.NACK, LifeEvent.REJECT)
REFUSALS = (
    Verdict.STALE,
    Verdict.GONE,
    *set(Change) - {Change.CREATED, Change.REPLACED, Change.CANCELLED, Change.RUN},
)


@cache
def cells() -> list[tuple[TimerLife | None, Happening, Effect]]:
    """Each state, with each event, and what comes of it."""
    return [
        (start.life, happening, step(start.life, happening.event, happening.given))
        for happening in happenings()
        for start in STARTS
    ]


def test_what_is_refused_changes_nothing() -> None:
    """Whatever was asked for."""
    assert all(effect.after is before for before, _, effect in cells() if effect.answer in REFUSALS)


def test_never_early() -> None:
    """Nothing but a new intent or a person's wish moves a due time, and nothing is claimed before it."""
    for before, happening, effect in cells():
        if before is None or effect.after is None or happening.event in (*NEW, LifeEvent.RUN):
            continue
        assert effect.after.due == before.due
        if effect.after is not before and effect.after.state is not LifeState.DEAD:
            assert effect.after.next_claim >= before.due


def test_honest_attempts() -> None:
    """One more at most, and none unless the application received the call."""
    for before, happening, effect in cells():
        after = effect.after
        if before is None or after is None or happening.event in NEW:
            continue
        told = happening.event in COUNTED or (
            happening.event is LifeEvent.RELEASE and happening.given.received
        )
        assert before.attempts <= after.attempts <= before.attempts + (before.received or told)


def test_one_live_lease() -> None:
    """A token goes with a lease, and with nothing else; only a claim makes one."""
    for before, happening, effect in cells():
        after = effect.after
        if after is None:
            continue
        assert bool(after.nonce) == (after.state is LifeState.LEASED)
        if after.nonce and happening.event is not LifeEvent.CLAIM:
            assert before is not None
            assert after.nonce == before.nonce


def test_every_end_has_a_word() -> None:
    """A timer leaves by an ACK, a cancel, a death that is told, or as an orphan that the journal names."""
    for before, _, effect in cells():
        if before is not None and effect.after is None:
            assert effect.record is not None
            assert effect.answer in (Verdict.OK, Change.CANCELLED, None) or isinstance(effect.answer, Reason)
            assert effect.record.kind.ends
