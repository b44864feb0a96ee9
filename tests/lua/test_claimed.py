"""timeline/claimed.lua: what a claim took whose reply was lost."""

from __future__ import annotations

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest
from relay.core.timers import Claim
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import own, record, score

DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=score(NOW - SECOND), nonce=N1)


async def find(bench: Bench, *, max_bytes: int = 1 << 20) -> Claim:
    """What a claim under N1 has leased that was sent at NOW, and given up a second later."""
    request = ClaimRequest(limit=100, lease=LEASE, nonce=N1, max_bytes=max_bytes)
    return await bench.store.claimed(bench.topic, request, since=NOW, until=NOW + SECOND)


async def test_the_others_are_not_found(bench: Bench) -> None:
    """Another claim's, at the very score; a foreign worker's; one that only waits; one whose record has
    another score."""
    bench.put("ours", DEADLINE, HELD)
    bench.put("theirs", DEADLINE, record(LEASED, DEADLINE, due=score(NOW), nonce=N2))
    bench.put("foreign", DEADLINE + 1e-7)
    bench.put("waiting", score(NOW + LEASE))
    bench.put("moved", own(NOW + LEASE + 1), HELD)
    before = bench.state()
    claim = await find(bench)
    assert list(claim.timers.timer_ids) == ["ours"]
    assert (claim.now, claim.deadline) == (NOW, NOW + LEASE)
    assert bench.state() == before


async def test_one_that_has_run_out(bench: Bench) -> None:
    """It is due, and the next claim takes it."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW + LEASE + 1
    assert list((await find(bench)).timers) == []
    assert await bench.claimed(N2) == ["a"]


async def test_one_without_payload(bench: Bench) -> None:
    """It is not delivered. When its lease ends it is parked."""
    bench.put("a", DEADLINE, HELD, stored=None)
    bench.put("b", DEADLINE, HELD)
    assert list((await find(bench)).timers.timer_ids) == ["b"]


async def test_the_byte_bound(bench: Bench) -> None:
    """That of the claim, in which all had room; a foreign writer may have let them grow."""
    for timer_id in "abc":
        bench.put(timer_id, DEADLINE, HELD, stored=envelope.encode(bytes(10_000), {}, ""))
    assert list((await find(bench, max_bytes=25_000)).timers.timer_ids) == ["a", "b"]
    assert list((await find(bench, max_bytes=1)).timers.timer_ids) == ["a"]


@pytest.mark.parametrize("before", [1, 998, 999, 1_000, 2_500])
async def test_a_part_ends_between_two_scores(bench: Bench, before: int) -> None:
    """However many others stand before them, those of the claim come together."""
    bench.raw.zadd(bench.timeline, {f"n{n:04}": own(NOW + LEASE - 2_600 + n) for n in range(before)})
    for timer_id in "abc":
        bench.put(timer_id, DEADLINE + 0.01, HELD._replace(score=DEADLINE + 0.01))
    request = ClaimRequest(limit=100, lease=LEASE, nonce=N1, max_bytes=1 << 20)
    claim = await bench.store.claimed(bench.topic, request, since=NOW - SECOND, until=NOW + SECOND)
    assert list(claim.timers.timer_ids) == ["a", "b", "c"]


async def test_many_of_a_publisher_are_passed_over(bench: Bench) -> None:
    """Thousands with one due time, of which a part can't see the end."""
    bench.raw.zadd(bench.timeline, {f"n{n:04}": score(NOW + LEASE) for n in range(2_500)})
    bench.put("a", DEADLINE, HELD)
    assert list((await find(bench)).timers.timer_ids) == ["a"]
