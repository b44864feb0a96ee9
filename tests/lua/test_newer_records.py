"""Relays of two versions on one topic: what a newer one has written about a timer, an older one leaves alone.

The newer relay here runs the same scripts but for the version that they write into records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.core.outcomes import NO_LIMITS, Verb, Verdict
from relay.core.timers import Change, Changed, Condition, TimerState
from relay.store.verbs.terms import limit_words
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import GRACE, Bench
from tests.worlds.scripts.rules import Break
from tests.worlds.scripts.states import own, record, score

LEASED = 1
LAPSED = NOW + LEASE + 1
LONGER = bytes((3, LEASED)) + b"a record of another size, as a newer relay may need it" * 2


NEWER = Break("lib/prelude", "records-have-our-version", "local VERSION, RECORD_SIZE = 3, 69")


@pytest.fixture
async def newer(bench: Bench) -> AsyncIterator[Bench]:
    """A newer relay on the topic of `bench`."""
    async with Bench(bench.server, bench.topic, NEWER) as newer:
        yield newer


async def lease_by(newer: Bench) -> None:
    """Have it take all that is due; its records are not read here."""
    limits = limit_words(NO_LIMITS)
    await newer.run("timeline/claim", 100, LEASE, N2, 1 << 20, GRACE, *limits, 100, 0)


def stored(bench: Bench) -> tuple[object, ...]:
    """All that the topic's keys hold, as it is."""
    timeline = bench.raw.zrange(bench.timeline, 0, -1, withscores=True)
    return timeline, bench.raw.hgetall(bench.payloads), bench.raw.hgetall(bench.leases)


def standing(bench: Bench, timer_id: str) -> tuple[object, ...]:
    """One timer's score, envelope and record."""
    records = bench.raw.hget(bench.leases, timer_id)
    return bench.raw.zscore(bench.timeline, timer_id), bench.raw.hget(bench.payloads, timer_id), records


async def test_a_lease_of_a_newer_relay_that_ran_out(bench: Bench, newer: Bench) -> None:
    """Who can't read how often it was tried must not begin anew: the newer relays go on with it."""
    bench.put("a", score(NOW))
    await lease_by(newer)
    bench.put("b", own(LAPSED - 1), record(0, own(LAPSED - 1), due=score(NOW)))
    bench.now = newer.now = LAPSED + LEASE
    before = standing(bench, "a")
    assert await bench.claimed(N1) == ["b"], "what stands behind it is taken"
    assert standing(bench, "a") == before
    assert await newer.settle("a", N2, Verb.ACK) == Verdict.OK, "its lease held all the time"


async def test_a_record_of_another_size(bench: Bench) -> None:
    bench.put("a", score(NOW))
    bench.put_record("a", LONGER)
    before = stored(bench)
    assert await bench.claimed() == []
    assert stored(bench) == before


async def test_text_is_no_record(bench: Bench) -> None:
    """What somebody else has written there holds up nothing."""
    bench.put("a", score(NOW))
    bench.put_record("a", b"junk")
    assert await bench.claimed() == ["a"]


async def test_a_token_for_it_is_stale(bench: Bench, newer: Bench) -> None:
    """Even the right one: an older relay never had it."""
    bench.put("a", score(NOW))
    await lease_by(newer)
    before = stored(bench)
    assert await bench.settle("a", N2, Verb.ACK) == Verdict.STALE
    assert await bench.settle("a", N2, Verb.NACK) == Verdict.STALE
    assert await bench.extend("a", N2, received=True) == Verdict.STALE
    assert stored(bench) == before


async def test_it_counts_as_leased(bench: Bench, newer: Bench) -> None:
    """For whoever lists it, makes it due now, or changes it unless it is in flight."""
    bench.put("a", score(NOW))
    await lease_by(newer)
    before = stored(bench)
    found = await bench.store.get(bench.topic, "a")
    assert found is not None
    assert found.state is TimerState.LEASED
    assert [*await bench.store.run(bench.topic, ["a"])] == [
        Changed(Change.IN_FLIGHT, delivery_under_way=True)
    ]
    assert [*await bench.store.cancel(bench.topic, ["a"], Condition(only_pending=True))] == [
        Changed(Change.IN_FLIGHT, delivery_under_way=True)
    ]
    assert stored(bench) == before


async def test_the_newest_intent_wins_over_it(bench: Bench, newer: Bench) -> None:
    """A cancel of any version takes the timer away, and the newer relay's token with it."""
    bench.put("a", score(NOW))
    await lease_by(newer)
    cancelled = Changed(Change.CANCELLED, delivery_under_way=True)
    assert [*await bench.store.cancel(bench.topic, ["a"])] == [cancelled]
    assert await newer.settle("a", N2, Verb.ACK) == Verdict.GONE
    assert stored(bench) == ([], {}, {})
