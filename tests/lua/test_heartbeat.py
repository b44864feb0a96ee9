"""layout/heartbeat: which relays poll a topic, by the server's clock."""

from __future__ import annotations

import pytest

from relay.core.errors import WrongKeyType
from relay.core.instants import SECOND
from relay.store.verbs import layout
from tests.worlds.scripts.bench import Bench

LASTS = 3 * SECOND


async def beat(bench: Bench, relay: str, lasts: int = LASTS) -> set[str]:
    return {name.decode() for name in await bench.redis.call(layout.heartbeat(bench.topic, relay, lasts))}


async def test_relays_hear_of_each_other(bench: Bench) -> None:
    """Each of those that were there before it, and of itself."""
    assert await beat(bench, "a") == {"a"}
    assert await beat(bench, "b") == {"a", "b"}
    assert await beat(bench, "a") == {"a", "b"}


async def test_a_relay_that_is_silent(bench: Bench) -> None:
    """It is there for as long as its last heartbeat counts, and again with the next one."""
    await beat(bench, "a")
    bench.now += LASTS - 1
    assert await beat(bench, "b") == {"a", "b"}
    bench.now += 1
    assert await beat(bench, "b") == {"b"}
    assert bench.raw.zcard(bench.relays) == 1
    assert await beat(bench, "a") == {"a", "b"}


async def test_the_clock_steps_back(bench: Bench) -> None:
    """A relay that has died before counts for no longer than others do; whoever lives says so again."""
    await beat(bench, "dead")
    await beat(bench, "a")
    bench.now -= 3_600 * SECOND
    assert await beat(bench, "b", 0) == {"dead", "a"}
    assert await beat(bench, "a") == {"a"}
    bench.now += LASTS - 1
    assert await beat(bench, "b") == {"a", "b"}


async def test_a_relay_that_leaves(bench: Bench) -> None:
    """At once; and nothing is left behind where nobody polls."""
    await beat(bench, "a")
    await beat(bench, "b")
    assert await beat(bench, "a", 0) == {"b"}
    assert await beat(bench, "b", 0) == set()
    assert not bench.raw.exists(bench.relays)


async def test_many_relays_that_are_gone(bench: Bench) -> None:
    """More than one command takes: the rest goes with the next heartbeats."""
    bench.raw.zadd(bench.relays, {f"old-{n}": 1.0 for n in range(2_500)})
    for left in (1_501, 501, 1):
        await beat(bench, "a")
        assert bench.raw.zcard(bench.relays) == left
    assert await beat(bench, "a") == {"a"}


async def test_another_type(bench: Bench) -> None:
    bench.raw.set(bench.relays, "x")
    with pytest.raises(WrongKeyType, match=bench.relays):
        await beat(bench, "a")


async def test_a_full_server_hears_them(bench: Bench) -> None:
    """Who polls what is to be known there, too, so that timers drain."""
    with bench.full():
        assert await beat(bench, "a") == {"a"}
