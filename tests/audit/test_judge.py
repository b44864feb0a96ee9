"""The judge of the end-to-end tests fails where a journal and the ledgers of others differ."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.forge import Forge, nonce
from tests.judge import Trial
from tests.worlds.relay.processes import Event


def event(kind: str, timer_id: str = "t", attempt: int = 1, first: int = 1, **fields: Any) -> Event:
    occurrence = f"{timer_id}/{nonce(first).hex()}"
    return Event(kind, 0.0, 1, "topic", timer_id, attempt, occurrence, **fields)


def handled(*, again: bool = False) -> Forge:
    forge = Forge().scheduled("t").claimed("t", 1)
    return forge.nacked("t", 1, 1, 1).again(1, 2) if again else forge.acked("t", 1)


def test_agreement() -> None:
    """A first attempt that failed, and a second one that did not."""
    events = [event("start"), event("end"), event("start", attempt=2), event("end", attempt=2)]
    trial = Trial(handled(again=True).batches)
    trial.agrees(["t"], events)
    assert trial.committed_ids() == {"t": 1}


def test_a_claim_whose_delivery_did_not_come() -> None:
    """At least once: a claim may have no handler, but no handler is without a claim."""
    Trial(handled(again=True).batches).agrees(["t"], [event("start", attempt=2), event("end", attempt=2)])


def test_an_accepted_timer_is_missing() -> None:
    """The producer had an OK for it."""
    with pytest.raises(AssertionError, match="accepted, and not in the journal"):
        Trial(handled().batches).agrees(["t", "other"], [event("start"), event("end")])


@pytest.mark.parametrize(
    "start",
    [event("start", attempt=2), event("start", first=2), event("start", "other")],
    ids=["attempt", "occurrence", "timer"],
)
def test_a_handler_without_a_claim(start: Event) -> None:
    """Another attempt, occurrence or timer than the journal has."""
    with pytest.raises(AssertionError, match="more often than the journal has claims"):
        Trial(handled().batches).agrees(["t"], [event("start"), event("end"), start])


def test_one_claim_for_two_handlers() -> None:
    """The number counts."""
    with pytest.raises(AssertionError, match="more often than the journal has claims"):
        Trial(handled().batches).agrees([], [event("start"), event("start"), event("end")])


def test_a_commit_without_a_handler() -> None:
    """Nobody came to the end of it."""
    with pytest.raises(AssertionError, match="no handler came to its end"):
        Trial(handled().batches).agrees([], [event("start")])


def test_a_commit_too_many() -> None:
    """One occurrence is committed once, though its handler ran twice."""
    events = [event("start"), event("end"), event("end")]
    with pytest.raises(AssertionError, match="committed twice"):
        Trial(handled().acked("t", 1).batches).agrees([], events)


def test_foreign_workers_have_no_claims() -> None:
    """Their handlers know no attempt."""
    Trial(handled().batches).agrees([], [event("start"), event("end"), event("start", "peer", 0)])
