"""bulk/pace.lua: turns that all loads with a rate take together. Times in microseconds."""

from __future__ import annotations

from relay.core.instants import SECOND
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

TEN = 10 * SECOND


async def test_turns_lie_one_behind_the_other(bench: Bench) -> None:
    """Each waits until all that was given away before it is over."""
    assert [bench.turn(TEN), bench.turn(TEN), bench.turn(SECOND), bench.turn(TEN)] == [
        0,
        TEN,
        2 * TEN,
        21 * SECOND,
    ]
    bench.now += 25 * SECOND
    assert bench.turn(TEN) == 6 * SECOND


async def test_time_that_nobody_used_is_gone(bench: Bench) -> None:
    """A load that comes after a rest begins at once, and does not catch up on the rest."""
    bench.turn(TEN)
    bench.now += 12 * SECOND
    assert [bench.turn(TEN), bench.turn(TEN)] == [0, TEN]


async def test_a_clock_that_steps_back(bench: Bench) -> None:
    """What was given away by a clock that was ahead holds nobody up."""
    bench.turn(TEN)
    bench.now = NOW - 3600 * SECOND
    assert [bench.turn(TEN), bench.turn(TEN)] == [0, TEN]


async def test_nothing_stays_when_all_turns_are_over(bench: Bench) -> None:
    """The key goes when the time that it names has come."""
    bench.turn(TEN)
    bench.turn(TEN)
    assert 10_000 < bench.raw.pttl(bench.pace) <= 20_000
