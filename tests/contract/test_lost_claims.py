"""`LeaseSource.claimed`: what a claim took whose reply was lost, as `TimerStore` states it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Verb, Verdict
from relay.core.timers import Claim, NewTimer
from tests.contract.subject import Subject
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW

WHILE = SECOND // 2
"""How long the claim may have been under way, before and after (microseconds)."""


async def find(
    subject: Subject, nonce: bytes = N1, *, since: int = NOW - WHILE, until: int = NOW + WHILE
) -> Claim:
    request = ClaimRequest(limit=100, lease=LEASE, nonce=nonce, max_bytes=1 << 20)
    return await subject.store.claimed(subject.topic, request, since=since, until=until)


async def found(subject: Subject, nonce: bytes = N1, *, since: int = NOW - WHILE) -> list[str]:
    return list((await find(subject, nonce, since=since)).timers.timer_ids)


async def test_it_is_as_the_claim_said(subject: Subject) -> None:
    """The timers whole, and the true end of their leases, by the store's time of now; nothing changes."""
    timer = NewTimer("a", b"payload", NOW - 3, None, {"k": "ü"}, "text/plain")
    await subject.store.schedule(subject.topic, [timer, NewTimer("b", b"", NOW)])
    claim = await subject.claim(N1)
    before = await subject.everything()
    subject.now = NOW + 7
    again = await find(subject)
    assert list(again.timers) == list(claim.timers)
    assert (again.now, again.deadline, again.next) == (NOW + 7, claim.deadline, None)
    assert await subject.everything() == before
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_a_claim_that_did_not_run_took_nothing(subject: Subject) -> None:
    """Neither what is pending nor what others hold is found."""
    await subject.schedule("a")
    await subject.schedule("later", NOW + LEASE)
    assert await found(subject) == []
    await subject.claim(N2)
    assert await found(subject) == []


@pytest.mark.parametrize(
    ("since", "until", "there"),
    [(-WHILE, 0, True), (0, WHILE, True), (-WHILE, -1, False), (1, WHILE, False)],
)
async def test_it_ran_while_it_could(subject: Subject, since: int, until: int, there: bool) -> None:
    """To the microsecond, from the first instant to the last."""
    await subject.schedule("a")
    await subject.claim(N1)
    claim = await find(subject, since=NOW + since, until=NOW + until)
    assert bool(claim.timers) == there


async def replaced(subject: Subject) -> None:
    await subject.schedule("a", NOW + 60 * SECOND)


async def replaced_at_the_deadline(subject: Subject) -> None:
    await subject.schedule("a", NOW + LEASE)


async def cancelled(subject: Subject) -> None:
    await subject.store.cancel(subject.topic, ["a"])


async def settled(subject: Subject) -> None:
    """As if somebody had known the nonce."""
    assert await subject.settle("a", N1, Verb.NACK, retry_after=LEASE) is Verdict.OK


async def lapsed(subject: Subject) -> None:
    subject.now = NOW + LEASE + 1


async def taken_over(subject: Subject) -> None:
    """By a claim whose own leases end within the same time."""
    subject.now = NOW + LEASE + 1
    assert "a" in await subject.claimed(N2, lease=1)
    subject.now = NOW


@pytest.mark.parametrize(
    "change", [replaced, replaced_at_the_deadline, cancelled, settled, lapsed, taken_over]
)
async def test_what_is_not_held_any_more(
    subject: Subject, change: Callable[[Subject], Awaitable[None]]
) -> None:
    """A newer intent, a cancel, an end: its lease is over, and it is not found."""
    await subject.schedule("a")
    await subject.claim(N1)
    assert await found(subject) == ["a"]
    await change(subject)
    assert await found(subject) == []


async def test_the_others_of_the_claim_are_still_there(subject: Subject) -> None:
    for timer_id in "abc":
        await subject.schedule(timer_id)
    await subject.claim(N1)
    await cancelled(subject)
    assert await found(subject) == ["b", "c"]


async def test_one_that_was_renewed(subject: Subject) -> None:
    """Nobody knows the nonce, so nobody renews; if somebody did, the end that is told is the earliest."""
    await subject.schedule("a")
    await subject.schedule("b")
    await subject.claim(N1)
    subject.now = NOW + WHILE
    assert await subject.extend("a", N1) is Verdict.OK
    claim = await find(subject)
    assert sorted(claim.timers.timer_ids) == ["a", "b"]
    assert claim.deadline == NOW + LEASE


async def test_one_among_many(subject: Subject) -> None:
    """Thousands are due, or leased by others, at the claim's deadline and around it."""
    due = [NewTimer(f"due-{n:04}", b"x", NOW + LEASE) for n in range(1_500)]
    spread = [NewTimer(f"spread-{n:04}", b"x", NOW + LEASE - WHILE + n) for n in range(1_100)]
    expiring = [
        NewTimer(f"e-{n:04}", b"x", NOW + LEASE - n % 3, expires=NOW + 2 * LEASE) for n in range(1_200)
    ]
    held = [NewTimer(f"held-{n:03}", b"x", NOW) for n in range(450)]
    await subject.store.schedule(subject.topic, held)
    first = await subject.claimed(N1, limit=150)
    second = await subject.claimed(N2, limit=150)
    subject.now = NOW + 1
    third = await subject.claimed(b"3" * 16, limit=150)
    for many in (due, spread, expiring):
        for start in range(0, len(many), 500):
            await subject.store.schedule(subject.topic, many[start : start + 500])
    assert await found(subject, N1) == first
    assert await found(subject, N2) == second
    assert await found(subject, b"3" * 16) == third
