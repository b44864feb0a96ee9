"""timeline/claim.lua: a timer whose payload is missing is put aside, and removed only if it stays so."""

from __future__ import annotations

from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import Change, Changed
from relay.store.codec.lease_record import LEASED, NO_NONCE, PARKED
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import GRACE, Bench
from tests.worlds.scripts.states import EMPTY, State, alone, own, record, score

DUE = score(NOW - SECOND)
PARKED_UNTIL = own(NOW + GRACE)


async def test_parked_for_the_grace_period(bench: Bench) -> None:
    """It is not delivered and not removed; its score moves to the end of the grace period."""
    bench.put("a", DUE, stored=None)
    claim = await bench.claim(N1)
    assert (list(claim.timers), claim.parked, claim.orphans, claim.next) == ([], 1, (), NOW + GRACE)
    kept = record(PARKED, PARKED_UNTIL, due=DUE, claims=0, occurrence=NO_NONCE)
    assert bench.state() == State({"a": PARKED_UNTIL}, {}, {"a": kept})


async def test_removed_after_the_grace_period(bench: Bench) -> None:
    """Still without payload, it goes, and the claim names it; until then it stays."""
    bench.put("a", DUE, stored=None)
    await bench.claim(N1)
    before = bench.state()
    bench.now = NOW + GRACE
    assert (await bench.claim(N2)).orphans == ()
    assert bench.state() == before
    bench.now += 1
    claim = await bench.claim(N2)
    assert (list(claim.timers), claim.parked, claim.orphans, claim.next) == ([], 0, ("a",), None)
    assert bench.state() == EMPTY


async def test_saved_by_its_payload(bench: Bench) -> None:
    """A payload that comes within the grace period makes it an ordinary timer, with its due time."""
    bench.put("a", DUE, stored=None)
    await bench.claim(N1)
    bench.put_payload("a")
    bench.now = NOW + GRACE + 1
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.due, timer.attempt, timer.occurrence_id) == (NOW - SECOND, 1, f"a/{N2.hex()}")
    deadline = own(bench.now + LEASE)
    assert bench.state() == alone("a", deadline, record(LEASED, deadline, due=DUE, nonce=N2, occurrence=N2))


async def test_published_anew_while_parked(bench: Bench) -> None:
    """A publisher's new due time stands, and is delivered then and not after the grace period."""
    bench.put("a", DUE, stored=None)
    await bench.claim(N1)
    bench.put("a", score(NOW + SECOND))
    bench.now = NOW + SECOND
    (timer,) = (await bench.claim(N2)).timers
    assert timer.due == NOW + SECOND


async def test_a_lost_payload_ends_a_lapsed_lease(bench: Bench) -> None:
    """Attempts and occurrence are kept while parked, the old token is not."""
    lapsed = own(NOW - 1)
    bench.put("a", lapsed, record(LEASED, lapsed, due=DUE, nonce=N1, received=1, attempts=1), stored=None)
    assert (await bench.claim(N2)).parked == 1
    kept = record(PARKED, PARKED_UNTIL, due=DUE, attempts=2, suspect=1)
    parked = State({"a": PARKED_UNTIL}, {}, {"a": kept})
    assert bench.state() == parked
    for verb in Verb:
        assert await bench.settle("a", N1, verb) is Verdict.STALE
    assert await bench.extend("a", NO_NONCE) is Verdict.STALE
    assert bench.state() == parked


async def test_others_in_the_same_claim(bench: Bench) -> None:
    """Orphans, parked timers and whole ones are told apart within one call."""
    bench.put("orphan", DUE, stored=None)
    bench.now = NOW - GRACE - 1
    bench.put("orphan", score(bench.now), stored=None)
    await bench.claim(N1)
    bench.now = NOW
    bench.put("parked", DUE, stored=None)
    bench.put("whole", DUE)
    claim = await bench.claim(N2)
    assert [timer.timer_id for timer in claim.timers] == ["whole"]
    assert (claim.parked, claim.orphans) == (1, ("orphan",))
    state = bench.state()
    assert set(state.timeline) == set(state.leases) == {"parked", "whole"}


async def test_a_parked_timer_is_not_shown(bench: Bench) -> None:
    """There is nothing to show without a payload; it can be cancelled and replaced."""
    bench.put("a", DUE, stored=None)
    await bench.claim(N1)
    assert await bench.store.get(bench.topic, "a") is None
    assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.CANCELLED)]
    assert bench.state() == EMPTY
