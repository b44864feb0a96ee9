"""What Lua 5.1 and 5.4 do otherwise is the same in Relay's scripts: each of these holds on every server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from relay.core.timers import NewTimer
from relay.store.server.manifest import verbs
from relay.store.server.scripts import source, variants
from tests.worlds.scripts.asking import N1, NOW

if TYPE_CHECKING:
    from tests.worlds.scripts.bench import Bench

pytestmark = pytest.mark.every_server

ODD = 9_007_199_254_740_993
"""Microseconds: no double has that many."""


async def test_sums_are_those_of_doubles(bench: Bench) -> None:
    """A delay of 285 years is rounded before it is added to the clock, and its sum once more."""
    bench.now = NOW + 1
    await bench.store.schedule(bench.topic, [NewTimer("a", b"", delay=ODD)])
    wanted = (float(NOW + 1) + float(ODD)) / 1e6
    assert wanted != (NOW + 1 + ODD) / 1e6, "integers tell another sum"
    assert bench.state().timeline == {"a": wanted}


@pytest.mark.parametrize("score", [math.inf, -math.inf])
async def test_scores_without_an_end(bench: Bench, score: float) -> None:
    """A foreign writer's timer that is never due, or always was, is one like any other."""
    bench.put("a", score)
    bench.put("b", NOW / 1e6)
    assert await bench.claimed(N1) == (["a", "b"] if score < 0 else ["b"])
    await bench.schedule("a", NOW + 5)
    assert bench.state().timeline["a"] == (NOW + 5) / 1e6


def test_all_scripts_begin_with_it() -> None:
    """Whatever comes behind reads numbers by its `tonumber`."""
    for verb in verbs():
        for name in variants(verb):
            assert source(name).startswith("-- lib/server/dialect.lua")
