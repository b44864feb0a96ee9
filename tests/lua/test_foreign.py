"""What foreign writers' scores mean: publishers and workers that know the first two keys only."""

from __future__ import annotations

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import TimerState
from relay.store.codec.lease_record import LEASED, NO_NONCE, PENDING, LeaseRecord
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1, received=1, attempts=3, suspect=1)
BACKED_OFF = record(PENDING, DEADLINE, due=DUE, attempts=3)
ON_GRID = score(NOW + 5 * SECOND)
OFF_GRID = ON_GRID + 2**-22  # a quarter of a microsecond later: no publisher writes it

assert ON_GRID < OFF_GRID < own(NOW + 5 * SECOND)


async def settled_stale(bench: Bench, nonce: bytes = N1) -> None:
    """Nothing that the token's holder says changes anything."""
    before = bench.state()
    for verb in Verb:
        assert await bench.settle("a", nonce, verb, received=True) is Verdict.STALE
    assert await bench.extend("a", nonce, received=True) is Verdict.STALE
    assert bench.state() == before


async def test_a_republish_voids_the_lease(bench: Bench) -> None:
    """A publisher's new due time is a new intent: the token is stale, attempts start anew."""
    bench.put("a", DEADLINE, HELD)
    bench.put("a", ON_GRID)
    await settled_stale(bench)
    bench.now = NOW + 5 * SECOND
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.due, timer.attempt, timer.approximate, timer.suspect) == (bench.now, 1, False, False)
    assert timer.occurrence_id == f"a/{N2.hex()}"
    deadline = own(bench.now + LEASE)
    assert bench.state() == alone(
        "a", deadline, record(LEASED, deadline, due=ON_GRID, nonce=N2, occurrence=N2)
    )


async def test_a_republish_at_exactly_our_deadline(bench: Bench) -> None:
    """A publisher can't write the score that a lease has, so it is told apart all the same."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.put("a", score(NOW + LEASE))
    await settled_stale(bench)
    bench.now = NOW + LEASE
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.due, timer.attempt) == (NOW + LEASE, 1)


async def test_a_republish_at_exactly_the_end_of_a_back_off(bench: Bench) -> None:
    """The same after a NACK, a release and a renewal: a new intent, with attempts from the start."""
    for verb in (Verb.NACK, Verb.RELEASE):
        bench.put("a", DEADLINE, HELD)
        await bench.settle("a", N1, verb, retry_after=SECOND)
        at = round(bench.state().timeline["a"] * 1e6)
        bench.put("a", score(at))
        stored = await bench.store.get(bench.topic, "a")
        assert stored is not None
        assert (stored.due, stored.attempts) == (at, 0)
    bench.put("a", DEADLINE, HELD)
    await bench.extend("a", N1, lease=2 * LEASE)
    bench.put("a", score(NOW + 2 * LEASE))
    await settled_stale(bench)


async def test_a_republish_into_the_past(bench: Bench) -> None:
    """A score before the due time is a new intent on any grid."""
    for at in (score(NOW - 2 * SECOND), score(NOW - 2 * SECOND) + 2**-22):
        bench.put("a", DEADLINE, HELD)
        bench.put("a", at)
        await settled_stale(bench)
        (timer,) = (await bench.claim(N2)).timers
        assert (timer.due, timer.attempt) == (NOW - 2 * SECOND, 1)
        await bench.store.cancel(bench.topic, ["a"])


@pytest.mark.parametrize("before", [HELD, BACKED_OFF], ids=["held", "backed off"])
async def test_a_foreign_lease_keeps_what_we_know(bench: Bench, before: LeaseRecord) -> None:
    """A worker's lease is no new intent: due time, attempts and occurrence stay, our token does not."""
    bench.put("a", DEADLINE, before)
    bench.put("a", OFF_GRID)
    await settled_stale(bench)
    attempts = 3 + before.received
    stored = await bench.store.get(bench.topic, "a")
    assert stored is not None
    assert (stored.state, stored.due, stored.attempts) == (TimerState.PENDING, NOW - SECOND, attempts)
    bench.now = NOW + 5 * SECOND
    assert await bench.claimed(N2) == []
    bench.now += 1
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.due, timer.attempt, timer.approximate) == (NOW - SECOND, attempts + 1, True)
    assert timer.occurrence_id == f"a/{N1.hex()}"
    deadline = own(bench.now + LEASE)
    kept = before._replace(
        state=LEASED, score=deadline, attempts=attempts, claims=2, nonce=N2, received=0, approximate=1
    )
    assert bench.state() == alone("a", deadline, kept)


async def test_a_foreign_lease_of_a_timer_that_we_never_held(bench: Bench) -> None:
    """Its due time is a guess, and said to be one."""
    bench.put("a", OFF_GRID)
    bench.now = NOW + 6 * SECOND
    (timer,) = (await bench.claim(N1)).timers
    assert (timer.due, timer.attempt, timer.approximate) == (NOW + 5 * SECOND, 1, True)


async def test_a_foreign_commit(bench: Bench) -> None:
    """It removes a timer that we hold; the token then finds it gone and clears the record."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.raw.zrem(bench.timeline, "a")
    bench.raw.hdel(bench.payloads, "a")
    assert await bench.extend("a", N2) is Verdict.GONE
    assert bench.state() == EMPTY


async def test_a_foreign_commit_and_a_new_publish(bench: Bench) -> None:
    """The record that stayed behind fits neither the new timer nor the old token."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.raw.zrem(bench.timeline, "a")
    bench.put("a", ON_GRID)
    await settled_stale(bench)
    stored = await bench.store.get(bench.topic, "a")
    assert stored is not None
    assert (stored.due, stored.attempts) == (NOW + 5 * SECOND, 0)


async def test_a_takeover_by_another_relay(bench: Bench) -> None:
    """The token of the lease before is stale while the second delivery runs; the second's holds."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now = NOW + LEASE + 1
    await bench.claim(N2)
    await settled_stale(bench, N1)
    assert await bench.settle("a", N2, Verb.ACK) is Verdict.OK
    assert bench.state() == EMPTY


async def test_two_claims_that_share_a_deadline(bench: Bench) -> None:
    """Equal scores do not make equal tokens: the nonce is compared too."""
    bench.put("a", DUE)
    await bench.claim(N1)
    held = bench.state()
    bench.put("a", DUE)
    await bench.claim(N2)
    assert bench.state().timeline == held.timeline
    await settled_stale(bench, N1)


async def test_the_empty_nonce_is_no_token(bench: Bench) -> None:
    """What a pending record holds in the nonce's place proves nothing."""
    for verb in (Verb.NACK, Verb.RELEASE):
        bench.put("a", DEADLINE, HELD)
        assert await bench.settle("a", N1, verb) is Verdict.OK
        await settled_stale(bench, N1)
        await settled_stale(bench, NO_NONCE)
    bench.put("b", DUE)
    assert await bench.settle("b", NO_NONCE, Verb.ACK) is Verdict.STALE
