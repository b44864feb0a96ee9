"""Every measurement, in a tiny form: it runs, checks its own results, and yields rows that make sense."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import NoReturn

import pytest

from bench import measures, targets
from bench.harness.plan import TINY
from bench.harness.rows import Key
from bench.harness.server import NotEmpty, server
from bench.harness.timers import load_due
from bench.harness.world import World, Wrong
from bench.measures import lateness, peers, persistence, relays
from bench.peers import catalogue
from bench.peers.install import Installed, Missing
from tests.bench import forking
from tests.chaos import in_long

SHORT = ("drain", "schedule", "dispatch", "payloads", "waiting", "cost")
"""What `make test-all` measures. The others start more servers, relays and peers than they measure timers."""

PYTHON_PEERS = tuple(peer for peer in catalogue.PEERS if peer.name in ("faststream-redis-timers", "rq"))
"""Those that need no other toolchain, and come with the extra."""


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure has a relay and an application, whose imports took longer than what is measured."""
    monkeypatch.setattr(asyncio, "create_subprocess_exec", forking.start)


@pytest.fixture(autouse=True)
def _python_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PEERS", PYTHON_PEERS)
    monkeypatch.setattr(lateness, "PEERS", PYTHON_PEERS)
    monkeypatch.setattr(persistence, "PEERS", PYTHON_PEERS[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHORT, *in_long(name for name in measures.MEASURES if name not in SHORT)])
async def test_a_measure(name: str) -> None:
    """Each figure is there, and positive where nothing else is possible."""
    async with server() as running:
        rows = [row async for row in measures.MEASURES[name](World(TINY, running))]
        assert await running.left() == 0
    assert rows
    assert len({row.key for row in rows}) == len(rows), "a figure came twice"
    for row in rows:
        assert row.measure == name
        assert row.value is not None, row
        assert row.value > 0 or name in ("cost", "lateness", "cluster"), row
    more = {(name, words, "") for words in (relays.calls(8), relays.rate(4), relays.rate(8))}
    lost = read_by_targets(name) - {row.key for row in rows} - more
    assert lost == set(), "a target reads figures that this measure does not yield"


def read_by_targets(measure: str) -> set[Key]:
    """The figures of a measure that targets read by name."""
    read: set[Key] = set()

    class Run(dict[Key, float]):
        def __missing__(self, key: Key) -> float:
            read.add(key)
            return 1.0

    for target in targets.TARGETS:
        with suppress(KeyError):  # of those that look for whatever counts there are
            target.figure(Run())
    return {key for key in read if key[0] == measure}


async def test_a_run_that_lost_timers_is_no_run() -> None:
    """One that is missing, one that came twice, or a key that is left: each ends the bench."""
    async with server() as running:
        world = World(TINY, running)
        await world.check("it", {"handled": 5, "again": 0}, 5)
        for said in ({"handled": 4, "again": 0}, {"handled": 5, "again": 1}):
            with pytest.raises(Wrong, match="of 5 timers"):
                await world.check("it", said, 5)
        await load_due(running.url, 1, 0)
        with pytest.raises(Wrong, match="2 keys left"):
            await world.check("it", {"handled": 5, "again": 0}, 5, patience=0.1)


async def test_somebody_elses_keys_are_not_flushed() -> None:
    async with server() as running:
        await running.redis.set("precious", 1)
        with pytest.raises(NotEmpty, match="holds keys"):
            async with server(running.url):
                pass
        assert await running.redis.get("precious") == b"1"


async def test_a_peer_that_cannot_be_had_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> NoReturn:
        raise Missing("no such toolchain")

    def broken() -> Installed:
        return (sys.executable, "-c", "raise SystemExit(3)"), "1.0"

    for install, word in ((missing, "no such toolchain"), (broken, "ended with 3")):
        monkeypatch.setattr(peers, "PEERS", (catalogue.Peer("some", install, tunings=({},)),))
        async with server() as running:
            rows = [row async for row in peers.measure(World(TINY, running))]
        assert [(row.value, word in row.note) for row in rows] == [(None, True)]
