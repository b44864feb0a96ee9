"""The judge sees the ghosts: the histories in which a call that was given up acted later."""

from __future__ import annotations

import pytest

from relay.core.instants import SECOND
from tests.asked_for import AskedFor, ghosts
from tests.audit.forge import START, Forge, instant
from tests.judge import Trial

HOUR, TWO = 3600.0, 7200.0


def schedule(began: float, ended: float, due: float, *, answered: bool = True) -> AskedFor:
    began, ended = (START / SECOND + at for at in (began, ended))
    return AskedFor("t", began, ended, answered, instant(due))


def cancel(began: float, ended: float, *, answered: bool = True) -> AskedFor:
    began, ended = (START / SECOND + at for at in (began, ended))
    return AskedFor("t", began, ended, answered, cancels=True)


def moved() -> Forge:
    """Scheduled by the second try, and moved."""
    return Forge().wait(1.5).scheduled("t", HOUR).wait(1).replaced("t", TWO, HOUR)


MOVED = [schedule(0, 2, HOUR), schedule(2, 3, TWO)]


def anew() -> Forge:
    """Scheduled, cancelled by the second try, and scheduled anew."""
    return Forge().wait(0.5).scheduled("t", HOUR).wait(2).cancelled("t", due=HOUR).wait(2).scheduled("t", TWO)


ANEW = [schedule(0, 1, HOUR), cancel(1, 3), schedule(4, 5, TWO)]


@pytest.mark.parametrize(
    ("history", "asked"),
    [
        (moved().wait(2).replaced("t", HOUR, TWO), MOVED),
        (anew().wait(2).cancelled("t", due=TWO), ANEW),
        (Forge().wait(2).scheduled("t", HOUR), [schedule(0, 1, HOUR, answered=False)]),
        (moved().wait(2).cancelled("t", due=TWO), MOVED),
    ],
    ids=["the old due time comes back", "a cancel of before", "given up for good", "nobody cancels"],
)
def test_a_late_call_is_seen(history: Forge, asked: list[AskedFor]) -> None:
    """The ledger of what was accepted does not see it, for the timer is in the journal."""
    Trial(history.batches).agrees(["t"], [])
    (ghost,) = ghosts(asked, history.batches)
    assert ghost.time == history.batches[-1].time
    assert str(ghost).startswith("t was ")


@pytest.mark.parametrize(
    ("history", "asked"),
    [
        (moved(), MOVED),
        (anew(), ANEW),
        (Forge().wait(0.5).scheduled("t", HOUR).wait(1).replaced("t", HOUR, HOUR), MOVED),
        (Forge().wait(0.5).scheduled("t", HOUR), [schedule(0, 1, HOUR, answered=False)]),
        (Forge().wait(9).scheduled("other", HOUR), MOVED),
    ],
    ids=["moved", "scheduled anew", "both tries act", "given up, and in time", "another's"],
)
def test_what_was_asked_for_is_no_ghost(history: Forge, asked: list[AskedFor]) -> None:
    """A call may act as long as its caller waits, and with each of its tries."""
    assert not ghosts(asked, history.batches)
