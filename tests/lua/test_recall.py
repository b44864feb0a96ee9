"""timeline/ahead.lua and timeline/recall.lua: leases from before the server's clock stepped back."""

from __future__ import annotations

from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import NO_LIMITS, Verb, Verdict
from relay.core.timers import Change
from relay.engine.claiming.recaller import SPARE
from relay.store.codec.lease_record import LEASED, PENDING
from relay.store.timeline.clocks import RedisClocks
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, alone, own, record, score

HOUR = 3600 * SECOND
LONG_DUE = score(NOW - 2 * HOUR)
DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
OLD = record(LEASED, DEADLINE, due=LONG_DUE, nonce=N1)
"""A lease of a timer that is due by the clock of an hour before, too."""
NEW = record(LEASED, DEADLINE, due=DUE, nonce=N1)
"""One of a timer that is not."""


async def recalled(bench: Bench, stood: float | None = None, *, back: int = 0) -> dict[str, float]:
    """Recall the lease of 'a'."""
    clocks, scores = RedisClocks(bench.redis), {"a": stood}
    told = await clocks.recall(bench.topic, scores, lease=LEASE, back=back, limits=NO_LIMITS)
    assert told[0] == bench.now
    return told[1]


async def ahead(bench: Bench) -> list[str]:
    return await RedisClocks(bench.redis).leases_ahead(bench.topic, lease=LEASE)


async def test_leases_are_found(bench: Bench) -> None:
    """Those that end later than one that is given now, and no other record."""
    bench.put("far", DEADLINE, OLD)
    near = own(NOW - HOUR + LEASE)
    bench.put("near", near, OLD._replace(score=near))
    bench.put("retry", DEADLINE, OLD._replace(state=PENDING))
    bench.put("limited", DEADLINE, "debounced 1 until 2")
    bench.now = NOW
    assert await ahead(bench) == []
    bench.now = NOW - HOUR
    assert await ahead(bench) == ["far"]


async def test_leases_are_found_in_parts(bench: Bench) -> None:
    """All of more than one part."""
    for n in range(1_200):
        bench.put(f"{n:04}", DEADLINE, OLD)
    bench.now = NOW - 1
    assert sorted(await ahead(bench)) == [f"{n:04}" for n in range(1_200)]


async def test_a_small_step_that_nobody_saw(bench: Bench) -> None:
    """A relay that begins to poll later can't tell such a lease from that of a relay with a longer
    `lease_ttl`, and leaves it. It is over by itself: later by the step, which is a minute at most."""
    spare = round(SPARE * SECOND)
    for step, found in ((spare, []), (spare + 1, ["a"])):
        bench.put("a", DEADLINE, OLD)
        bench.now = NOW - step
        clocks = RedisClocks(bench.redis)
        assert await clocks.leases_ahead(bench.topic, lease=LEASE + spare) == found
    bench.now = NOW - spare + LEASE + 1
    assert await bench.claimed(N2) == []
    bench.now += spare
    assert await bench.claimed(N2) == ["a"]


async def test_a_lease_of_before_is_cut(bench: Bench) -> None:
    """It ends a lease from now; its token stays, and who sleeps until it ends is told."""
    bench.put("a", DEADLINE, OLD)
    bench.now = NOW - HOUR
    with bench.listening() as ear:
        assert await recalled(bench) == {}
        cut = own(bench.now + LEASE)
        assert bench.state() == alone("a", cut, OLD._replace(score=cut))
        assert ear.heard() == [cut]
        assert await recalled(bench) == {}
        assert ear.heard() == []
    bench.now += LEASE + 1
    assert await bench.claimed(N2) == ["a"]


async def test_a_lease_keeps_what_it_had_by_the_clock_of_before(bench: Bench) -> None:
    """By how much that was ahead is known: a lease that was over in five seconds still is."""
    bench.put("a", DEADLINE, OLD)
    bench.now = NOW - HOUR + LEASE - 5 * SECOND
    assert await recalled(bench, back=HOUR) == {}
    cut = own(bench.now + 5 * SECOND)
    assert bench.state() == alone("a", cut, OLD._replace(score=cut))


async def test_a_lease_that_was_over_by_the_clock_of_before(bench: Bench) -> None:
    """It ends now if it ended since the step. One that seems to have ended long before is one of the new
    clock, of a relay with a longer `lease_ttl`: that is cut to ours, and not taken from who lives."""
    bench.now = NOW - HOUR + LEASE + SECOND
    bench.put("a", DEADLINE, OLD)
    assert await recalled(bench, back=HOUR) == {}
    assert bench.state().timeline == {"a": own(bench.now - SECOND)}
    longer = own(bench.now + 3 * LEASE)
    bench.put("a", longer, OLD._replace(score=longer))
    assert await recalled(bench, back=HOUR) == {}
    assert bench.state().timeline == {"a": own(bench.now + LEASE)}
    assert await bench.claimed(N2) == []


async def test_a_relay_that_lives_keeps_its_lease(bench: Bench) -> None:
    """Whether it renews before the cut or after."""
    for renews_first in (True, False):
        bench.put("a", DEADLINE, OLD)
        bench.now = NOW - HOUR
        if renews_first:
            assert await bench.extend("a", N1) is Verdict.OK
        assert await recalled(bench) == {}
        bench.now += LEASE // 2
        assert await bench.extend("a", N1) is Verdict.OK
        assert bench.state().timeline == {"a": own(bench.now + LEASE)}
        assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
        assert bench.state() == EMPTY


async def test_no_timer_comes_before_its_due_time(bench: Bench) -> None:
    """A lease is cut to the due time at most, and one whose due time lies further ahead is left."""
    due = score(NOW - HOUR + LEASE - SECOND)
    bench.put("a", DEADLINE, OLD._replace(due=due))
    bench.now = NOW - HOUR
    assert await recalled(bench, back=HOUR + LEASE) == {}
    assert bench.state().timeline == {"a": own(NOW - HOUR + LEASE - SECOND)}
    bench.put("a", DEADLINE, NEW)
    assert await recalled(bench) == {"a": DEADLINE}
    assert bench.state() == alone("a", DEADLINE, NEW)


async def test_a_lease_that_nobody_renews(bench: Bench) -> None:
    """It ends where its due time lies ahead: an attempt counts if it was received, and the timer can be
    run."""
    for received in (0, 1):
        bench.put("a", DEADLINE, NEW._replace(received=received))
        bench.now = NOW - HOUR
        with bench.listening() as ear:
            assert await recalled(bench, DEADLINE) == {}
            waits = own(NOW - SECOND)
            assert ear.heard() == [waits]
        left = record(PENDING, waits, due=DUE, attempts=received)
        assert bench.state() == alone("a", waits, left)
        assert await bench.extend("a", N1) is Verdict.STALE
        assert (await bench.store.run(bench.topic, ["a"]))[0].change is Change.RUN
        bench.now += 1
        assert await bench.claimed(N2) == ["a"]
        assert await bench.settle("a", N2, Verb.ACK) is Verdict.OK


async def test_a_lease_that_is_renewed(bench: Bench) -> None:
    """It stays where its due time lies ahead: each renewal changes the score."""
    bench.put("a", DEADLINE, NEW)
    bench.now = NOW - HOUR
    stood = (await recalled(bench))["a"]
    for _ in range(3):
        assert await bench.extend("a", N1) is Verdict.OK
        again = await recalled(bench, stood)
        assert again["a"] != stood
        stood = again["a"]
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_what_is_not_a_lease_of_ours(bench: Bench) -> None:
    """Retries, foreign scores and what is not there stay as they are."""
    bench.now = NOW - HOUR
    bench.put("a", DEADLINE, OLD._replace(state=PENDING))
    before = bench.state()
    assert await recalled(bench, DEADLINE) == {}
    assert bench.state() == before
    bench.put("a", score(NOW + LEASE), OLD)
    before = bench.state()
    assert await recalled(bench, score(NOW + LEASE)) == {}
    assert bench.state() == before
    bench.raw.zrem(bench.timeline, "a")
    assert await recalled(bench) == {}


async def test_the_journal(bench: Bench) -> None:
    """A cut is a renewal, and an end is a release."""
    bench.keep = 100
    bench.put("a", DEADLINE, OLD)
    bench.now = NOW - HOUR
    assert await recalled(bench) == {}
    bench.put("a", DEADLINE, NEW._replace(received=1))
    assert await recalled(bench, DEADLINE) == {}
    cut, ended = [record for batch in await bench.batches() for record in batch.records]
    assert (cut.kind, cut.nonce, cut.score) == (RecordKind.EXTENDED, N1, NOW - HOUR + LEASE)
    assert (ended.kind, ended.nonce, ended.score) == (RecordKind.RELEASED, N1, NOW - SECOND)
    assert (ended.received, ended.attempts) == (True, 1)


async def test_a_full_server(bench: Bench) -> None:
    """Leases end there, too, so that timers drain."""
    bench.put("a", DEADLINE, OLD)
    bench.now = NOW - HOUR
    with bench.full():
        assert await recalled(bench) == {}
    assert bench.state().timeline == {"a": own(NOW - HOUR + LEASE)}
