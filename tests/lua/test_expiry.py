"""timeline/schedule.lua and timeline/claim.lua: timers that expire."""

from __future__ import annotations

import pytest

from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Limits, Verb, Verdict
from relay.core.timers import Change, Changed, NewTimer
from relay.store.codec.lease_record import NO_NONCE, PENDING
from tests.lua.test_options import NEW, new, schedule, waiting
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, Letter, alone, record, score

DUE = score(NOW - SECOND)


async def test_an_expiry_is_kept(bench: Bench) -> None:
    """In the record, as an instant; the score is one that no publisher writes."""
    expected = waiting(NOW + 3 * SECOND)
    for timer in (
        new(expires=NOW + 3 * SECOND),
        new(expires_after=2 * SECOND),
        NewTimer("a", b"new", delay=SECOND, expires=NOW + 3 * SECOND),
        NewTimer("a", b"new", delay=SECOND, expires_after=2 * SECOND),
    ):
        (result,) = await schedule(bench, timer)
        assert result.due == NOW + SECOND
        assert bench.state() == expected
        stored = await bench.store.get(bench.topic, "a")
        assert stored is not None
        assert (stored.due, stored.next_claim) == (NOW + SECOND, NOW + SECOND)


async def test_an_expiry_past_9999(bench: Bench) -> None:
    """A distance that ends later ends there."""
    await schedule(bench, new(expires_after=LATEST))
    assert bench.state() == waiting(LATEST)


async def test_the_later_entry_brings_its_own_expiry(bench: Bench) -> None:
    """A timer without one that replaces one with it, in a call or after it, never expires."""
    await schedule(bench, new(expires=NOW + 5), new())
    assert bench.state() == alone("a", score(NOW + SECOND), stored=NEW)
    await schedule(bench, new(expires=NOW + 5))
    await schedule(bench, new())
    assert bench.state() == alone("a", score(NOW + SECOND), stored=NEW)


@pytest.mark.slow
@pytest.mark.parametrize("base", [NOW, 1_100_000_000 * SECOND, 2_200_000_000 * SECOND])
async def test_never_at_or_after_its_expiry(bench: Bench, base: int) -> None:
    """One microsecond before it is delivered; then it is not, to the microsecond, and it is removed."""
    for due in range(base, base + 30):
        for timer, end in (
            (new(due=due, expires=due + 7), due + 7),
            (new(due=due, expires_after=7), due + 7),
            (new(due=due, expires_after=50), due + 50),
        ):
            bench.now = end - 1
            await schedule(bench, timer)
            assert await bench.claimed() == ["a"]
            await schedule(bench, timer)
            bench.now = end
            claim = await bench.claim()
            assert (list(claim.timers), claim.deaths, claim.next) == ([], (("a", "expired"),), None)
            assert bench.state() == EMPTY


async def test_expired_timers_are_kept_if_asked(bench: Bench) -> None:
    """As dead letters only where the topic wants the expired too; else they are gone."""
    for limits in (Limits(), Limits(keep=True), Limits(keep_expired=True)):
        await schedule(bench, new(due=NOW - 5, expires=NOW))
        assert (await bench.claim(limits=limits)).deaths == (("a", "expired"),)
        assert bench.state() == EMPTY
    await schedule(bench, new(due=NOW - 5, expires=NOW))
    await bench.claim(limits=Limits(keep=True, keep_expired=True))
    letter = Letter("a", "expired", 0, 0, score(NOW - 5), NOW, NO_NONCE, envelope=NEW)
    assert bench.state() == EMPTY._replace(dead=(letter,))


async def test_an_expiry_survives_a_failure(bench: Bench) -> None:
    """NACK, release, lapse, renewal and a foreign worker's lease keep it."""
    kept = record(PENDING, DUE, due=DUE, expires=score(NOW + 2 * LEASE), claims=0)
    for how in ("nack", "release", "lapse", "foreign"):
        bench.now = NOW
        bench.put("a", DUE, kept)
        assert await bench.claimed(N1) == ["a"]
        await bench.extend("a", N1, received=True)
        if how == "nack":
            await bench.settle("a", N1, Verb.NACK, retry_after=0)
        elif how == "release":
            await bench.settle("a", N1, Verb.RELEASE)
        elif how == "foreign":
            bench.put("a", score(NOW + 5 * SECOND) + 2**-22)
        bench.now = NOW + 2 * LEASE
        assert (await bench.claim(N2)).deaths == (("a", "expired"),)


async def test_what_is_in_flight_does_not_expire(bench: Bench) -> None:
    """A delivery that began before may go on and end well after it."""
    await schedule(bench, new(due=NOW - 5, expires=NOW + 5))
    await bench.claim(N1)
    bench.now = NOW + 6
    assert await bench.extend("a", N1, received=True) is Verdict.OK
    assert (await bench.claim(N2)).deaths == ()
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert bench.state() == EMPTY


async def test_a_foreign_republish_of_an_expiring_timer(bench: Bench) -> None:
    """It is a new intent that never expires, also where it is for the very same due time."""
    for due in (NOW + SECOND, NOW + 2 * SECOND, NOW - SECOND):
        bench.now = NOW
        await schedule(bench, new(expires=NOW + 3 * SECOND))
        bench.put("a", score(due), stored=ENVELOPE)
        bench.now = NOW + 10 * SECOND
        claim = await bench.claim(N1)
        assert ([timer.due for timer in claim.timers], claim.deaths) == ([due], ())


async def test_an_expired_timer_runs_and_comes_back(bench: Bench) -> None:
    """Running it does not save it; redriving it does."""
    limits = Limits(keep=True, keep_expired=True)
    await schedule(bench, new(due=NOW + LEASE, expires=NOW + SECOND))
    bench.now = NOW + SECOND
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    bench.now += 1
    assert (await bench.claim(N1, limits=limits)).deaths == (("a", "expired"),)
    await bench.topics.redrive(bench.topic, bench.dead_ids())
    bench.now += LEASE
    assert await bench.claimed(N2, limits=limits) == ["a"]
