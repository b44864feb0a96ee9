"""Nonces, errors, and when to try next."""

from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core import errors
from relay.core.outcomes import nonces
from relay.core.pacing import HEAD_START, FailureBackoff, Pacing, seconds_until
from relay.core.policy import TopicPolicy

POLICY = TopicPolicy(polling_interval=0.05, max_polling_interval=5.0)
jitters = st.floats(0, 1, exclude_max=True)


def test_nonces_never_repeat() -> None:
    """Sixteen bytes each, different within an instance and between two."""
    sources = [nonces() for _ in range(20)]
    made = [source() for source in sources for _ in range(500)]
    assert len(set(made)) == len(made)
    assert {len(nonce) for nonce in made} == {16}
    assert bytes(16) not in made


def test_a_nonce_is_instance_and_sequence() -> None:
    """The instance can be told, and the sequence counts."""
    source = nonces(b"instance")
    made = list(islice(iter(source, None), 3))
    assert made == [b"instance" + n.to_bytes(8, "big") for n in (1, 2, 3)]


def test_an_errors_docstring_is_its_message() -> None:
    """Unless a better one is given; InvalidField keeps field and problem apart."""
    assert str(errors.TimerNotFound()) == "There is no such timer."
    assert str(errors.StoreFull("no room")) == "no room"
    refusal = errors.InvalidField("topic", "is empty")
    assert (str(refusal), refusal.field, refusal.problem) == ("topic: is empty", "topic", "is empty")


def test_the_error_tree() -> None:
    """Every error is a RelayError with words of its own; a store's failures are StoreErrors."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.ServiceError) and kind.__doc__ for kind in kinds)
    store: set[type] = {errors.StoreUnavailable, errors.StoreFull, errors.WrongKeyType, errors.StoreRefused}
    store.update((errors.GivenUp, errors.OpenOutcome, errors.OtherLayout))
    store.update((errors.DurabilityMissed, errors.ReplicasAway, errors.NotOffered))
    assert {kind for kind in kinds if issubclass(kind, errors.StoreError)} == {errors.StoreError, *store}


@given(st.lists(jitters, min_size=1, max_size=60))
def test_backing_off(draws: list[float]) -> None:
    """Each wait lies between half of and the full doubled delay, and never beyond the limit."""
    source = iter(draws)
    backoff = FailureBackoff(lambda: next(source), first=0.1, limit=5.0)
    for n in range(len(draws)):
        full = min(0.1 * 2.0**n, 5.0)
        assert full / 2 <= backoff.failed() <= full


def test_backing_off_starts_over() -> None:
    """After one success the next failure waits as the first did."""
    backoff = FailureBackoff(lambda: 0.0, first=0.2)
    assert [backoff.failed() for _ in range(3)] == [0.1, 0.2, 0.4]
    backoff.worked()
    assert backoff.failed() == 0.1


@given(until=st.floats(-10, 1e6), taken=st.booleans(), lost=st.booleans(), draw=jitters)
def test_a_topic_sleeps_until_its_next_timer(until: float, taken: bool, lost: bool, draw: float) -> None:
    """Never below zero, never beyond `max_polling_interval`, and never past the next timer unless it lost."""
    wait = Pacing(POLICY, lambda: draw).after_claim(taken=taken, lost=lost, until_next=until)
    assert 0 <= wait <= POLICY.max_polling_interval
    if not lost:
        assert wait <= max(until, 0)


def test_an_empty_topic_sleeps_long() -> None:
    """Up to `max_polling_interval`, jittered by a tenth."""
    waits = [
        Pacing(POLICY, lambda draw=draw: draw).after_claim(taken=False, lost=False, until_next=math.inf)  # type: ignore[misc]
        for draw in (0.0, 0.999)
    ]
    assert waits == pytest.approx([5.0, 4.5], abs=0.01)


def test_who_loses_steps_back() -> None:
    """`polling_interval` is the floor between two lost races; it doubles thrice; a win resets it."""
    pacing = Pacing(POLICY, lambda: 0.5)
    lost = [pacing.after_claim(taken=False, lost=True, until_next=0) for _ in range(6)]
    assert lost == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.4, 0.4])
    assert pacing.after_claim(taken=True, lost=False, until_next=0) == 0
    assert pacing.after_claim(taken=False, lost=True, until_next=0) == pytest.approx(0.05)


def test_who_comes_second_leaves_timers_to_the_first() -> None:
    """For `max_polling_interval`, each further rank for four times as long. While help is needed that is next
    to nothing; whoever came first meanwhile has forgotten it."""
    pacing = Pacing(POLICY, lambda: 0.0)
    found = []
    for rank in range(4):
        pacing.take_rank(rank)
        found.append(pacing.patience)
    assert found == [0, *(POLICY.max_polling_interval * times for times in (1, 4, 16))]
    pacing.take_rank(2)
    pacing.begin_to_help()
    assert pacing.patience == 2 * HEAD_START
    for wait in (0.1, 0.2, 0.4):
        pacing.after_claim(taken=False, lost=True, until_next=math.inf)
        assert pacing.patience == pytest.approx(wait)
    pacing.take_rank(0)
    pacing.take_rank(1)
    assert pacing.patience == POLICY.max_polling_interval


def test_a_pause_is_no_reason_to_help() -> None:
    """Timers are due, and nobody may take them: that calls nobody to the help of those who come first."""
    pacing = Pacing(POLICY, lambda: 0.0)
    pacing.take_rank(1)
    pacing.after_claim(taken=False, lost=False, until_next=-1.0, paused=True)
    assert pacing.patience == POLICY.max_polling_interval
    pacing.after_claim(taken=False, lost=False, until_next=-1.0)
    assert pacing.patience == HEAD_START


def test_seconds_until() -> None:
    """From one instant to another; infinitely long where there is none."""
    assert seconds_until(3_000_000, 1_500_000) == 1.5
    assert seconds_until(1, 2) < 0
    assert seconds_until(None, 5) == math.inf


def test_a_poller_that_stays_behind_comes_a_second_later() -> None:
    """Than it would: for the next timer, for one that others take first, and for one that is due already."""
    pacing = Pacing(POLICY, lambda: 0.0)
    pacing.behind = 1.0
    assert pacing.after_claim(taken=True, lost=False, until_next=0.5) == 1.5
    assert pacing.after_claim(taken=False, lost=False, until_next=-0.25) == 0.75
    assert pacing.after_claim(taken=False, lost=False, until_next=-1.0) == 0.0
    assert pacing.patience == 1.0
