"""Heartbeats in Redis, and those of engine tests in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from relay.core.instants import SECOND
from relay.core.ports import Heartbeats
from relay.store.partitions.heartbeats import RedisHeartbeats
from tests.worlds.engine.doubles import Beats
from tests.worlds.engine.fake_clock import FakeClock
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


class Hearts(NamedTuple):
    """The heartbeats, a topic, and what lets its clock go on by microseconds."""

    heartbeats: Heartbeats
    topic: str
    go_on: Callable[[int], None]


@pytest.fixture(params=["redis", "memory"])
async def hearts(
    request: pytest.FixtureRequest, valkey: RunningServer, keyspace: Keyspace
) -> AsyncIterator[Hearts]:
    topic = keyspace.topic()
    if request.param == "memory":
        clock, passed = FakeClock(), [0]
        yield Hearts(Beats(lambda: clock.server() + sum(passed)), topic, passed.append)
        return
    bench = Bench(valkey, topic)
    instants = [NOW]

    def go_on(micros: int) -> None:
        instants.append(instants[-1] + micros)
        bench.now = instants[-1]

    yield Hearts(RedisHeartbeats(bench.redis), topic, go_on)
    await bench.close()


async def test_who_is_there(hearts: Hearts) -> None:
    """Whoever has said so lately, and has not said otherwise."""
    beat = hearts.heartbeats.beat
    assert await beat(hearts.topic, "a", lasts=2 * SECOND) == ["a"]
    assert set(await beat(hearts.topic, "b", lasts=9 * SECOND)) == {"a", "b"}
    hearts.go_on(2 * SECOND - 1)
    assert set(await beat(hearts.topic, "b", lasts=9 * SECOND)) == {"a", "b"}
    hearts.go_on(1)
    assert await beat(hearts.topic, "b", lasts=9 * SECOND) == ["b"]
    assert set(await beat(hearts.topic, "a", lasts=9 * SECOND)) == {"a", "b"}
    assert await beat(hearts.topic, "b", lasts=0) == ["a"]
    assert await beat(hearts.topic, "a", lasts=9 * SECOND) == ["a"]
    assert list(await beat(f"{hearts.topic}-other", "a", lasts=0)) == []
