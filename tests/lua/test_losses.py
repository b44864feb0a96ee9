"""Which timers go alone: those whose leases were lost again, whoever writes that down. See 0003."""

from __future__ import annotations

from typing import Any

from relay.core.outcomes import NO_LIMITS, Limits, Verb
from relay.store.codec.lease_record import LEASED
from relay.store.timeline.clocks import RedisClocks
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import own, record, score

LAPSED = own(NOW - 1)
DEADLINE = own(NOW + LEASE)
DUE = score(NOW - 3 * LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
TWICE = Limits(max_attempts=2)
THRICE = Limits(max_attempts=3)


async def lapsed(bench: Bench, limits: Limits = NO_LIMITS, **known: Any) -> tuple[int, int]:
    """Attempts, and whether it is a suspect, of a timer with these counts whose lease is over."""
    bench.put("a", LAPSED, HELD._replace(score=LAPSED, **known))
    bench.now = NOW
    (timer,) = (await bench.claim(N2, limits=limits)).timers
    kept = bench.state().leases["a"]
    assert (timer.suspect, timer.attempt) == (kept.suspect == 1, kept.attempts + 1)
    return kept.attempts, kept.suspect


async def released(
    bench: Bench, limits: Limits = NO_LIMITS, *, said: dict[str, bool], **known: Any
) -> tuple[int, int]:
    """The same of one that is released."""
    bench.put("a", DEADLINE, HELD._replace(**known))
    bench.now = NOW
    await bench.settle("a", N1, Verb.RELEASE, limits=limits, **said)
    kept = bench.state().leases["a"]
    return kept.attempts, kept.suspect


async def recalled(bench: Bench, limits: Limits = NO_LIMITS, **known: Any) -> tuple[int, int]:
    """The same of one whose lease was given by a clock of before."""
    bench.put("a", DEADLINE, HELD._replace(due=score(NOW), **known))
    bench.now = NOW - 2 * LEASE
    clocks = RedisClocks(bench.redis)
    await clocks.recall(bench.topic, {"a": DEADLINE}, lease=LEASE, back=0, limits=limits)
    kept = bench.state().leases["a"]
    return kept.attempts, kept.suspect


async def test_a_lapse(bench: Bench) -> None:
    """The first that counts makes no suspect, and the next does; so does any if one attempt is left."""
    assert await lapsed(bench, received=1, claims=5) == (1, 0)
    assert await lapsed(bench, received=1, attempts=1) == (2, 1)
    assert await lapsed(bench, TWICE, received=1) == (1, 1)
    assert await lapsed(bench, THRICE, received=1) == (1, 0)


async def test_a_lapse_without_receipt(bench: Bench) -> None:
    """Nobody was at work: what stood before stands, however often it was claimed."""
    assert await lapsed(bench, TWICE, attempts=1, claims=5) == (1, 0)
    assert await lapsed(bench, suspect=1) == (0, 1)


async def test_a_stream_that_broke(bench: Bench) -> None:
    """The same as a lapse; without a receipt it is the claims that tell of losses before."""
    broke = {"broken": True}
    for said in (broke, {**broke, "received": True}):
        known: dict[str, Any] = {"received": 0 if "received" in said else 1}
        assert await released(bench, said=said, claims=5, **known) == (1, 0)
        assert await released(bench, said=said, attempts=1, **known) == (2, 1)
        assert await released(bench, TWICE, said=said, **known) == (1, 1)
    assert await released(bench, said=broke) == (0, 0)
    assert await released(bench, said=broke, claims=2) == (0, 1)
    assert await released(bench, TWICE, said=broke, attempts=1) == (1, 1)
    assert await released(bench, THRICE, said=broke, attempts=1) == (1, 0)


async def test_suspects_that_are_lost(bench: Bench) -> None:
    """They stay suspects, also where nothing was counted before."""
    assert await lapsed(bench, received=1, suspect=1) == (1, 1)
    assert await released(bench, said={"broken": True, "received": True}, suspect=1) == (1, 1)


async def test_a_release_in_order(bench: Bench) -> None:
    """It clears the mark, if the timer was sent; and makes one if that is asked for."""
    assert await released(bench, said={}, suspect=1, claims=3) == (0, 0)
    assert await released(bench, said={"suspect": True}) == (0, 1)
    for suspect in (0, 1):
        assert await released(bench, said={"unsent": True}, suspect=suspect, claims=3) == (0, suspect)


async def test_a_recall(bench: Bench) -> None:
    """The same as a lapse."""
    assert await recalled(bench, received=1) == (1, 0)
    assert await recalled(bench, received=1, attempts=1) == (2, 1)
    assert await recalled(bench, TWICE, received=1) == (1, 1)
    assert await recalled(bench, TWICE, attempts=1, claims=5) == (1, 0)
