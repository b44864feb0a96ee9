"""Histories of real stores: none that is legal is refuted, and those of broken scripts are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.core.audit import Audit, Promise, PromiseVerdict, Report
from relay.core.journal import JournalBatch, Journals
from relay.store.memory import MemoryStore
from tests.audit.drive import Driver
from tests.chaos import CHAOS, count
from tests.lua.breaks import BREAKS
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

QUIET = settings(deadline=None, database=None, derandomize=not CHAOS, suppress_health_check=list(HealthCheck))
STEPS = 60
SEEDS = count(15, 100)
HUNT = 150
"""Seeds within which a break must show itself."""


class Clock:
    """A store's clock, in the test's hand."""

    now = NOW


async def in_memory(chance: Random, *, finish: bool) -> list[JournalBatch]:
    """The journal of a random history of the store in memory."""
    clock = Clock()
    store = MemoryStore(lambda: clock.now, journals=Journals(keep=lambda _: 1_000_000))
    driver = Driver(store, "topic", clock, None)
    await driver.drive(chance, STEPS)
    if finish:
        await driver.finish()
    return store.journal("topic")


def judge(batches: list[JournalBatch], living: dict[str, bool] | None, *, at_rest: bool) -> Report:
    """Nobody but relays was there. `living`: the timers that the store has, and whether it has a record."""
    audit = Audit(exclusive=True)
    for batch in batches:
        audit.add(batch)
    if living is not None:
        ids = list(audit.unreconciled())
        audit.reconcile(ids, [(timer_id in living, living.get(timer_id, False)) for timer_id in ids])
    return audit.report(at_rest=at_rest)


def shown(report: Report) -> str:
    return "\n".join(f"{each.promise.title}: {each.doubts} {each.examples}" for each in report.judgements)


@settings(QUIET)
@given(chance=st.randoms(use_true_random=False))
def test_what_the_store_in_memory_does_is_proved(chance: Random) -> None:
    """Anything in any order, and in the end everything is done."""
    batches = asyncio.run(in_memory(chance, finish=True))
    if batches:
        report = judge(batches, None, at_rest=True)
        assert report.verdict is PromiseVerdict.PROVED, shown(report)


@contextmanager
def opened(server: RunningServer, topic: str, *breaks: Break) -> Iterator[tuple[Bench, asyncio.Runner]]:
    with asyncio.Runner() as runner:

        async def made() -> Bench:
            return Bench(server, topic, *breaks)

        bench = runner.run(made())
        bench.keep = 1_000_000
        try:
            yield bench, runner
        finally:
            runner.run(bench.close())


def history(bench: Bench, runner: asyncio.Runner, seed: int, *, finish: bool) -> Report:
    """What the audit says of one random history on a real server."""
    bench.raw.delete(*bench.keys)
    bench.now = NOW
    driver = Driver(bench.store, bench.topic, bench, bench.topics)
    runner.run(driver.drive(Random(seed), STEPS))
    if finish:
        runner.run(driver.finish())
    state = bench.state()
    living = {timer_id: timer_id in state.leases for timer_id in state.timeline}
    for timer_id in set(state.leases) - set(living):
        raise AssertionError(f"an orphan: {timer_id}")
    return judge(runner.run(bench.batches()), living, at_rest=finish)


@pytest.mark.parametrize("finish", [True, False])
def test_what_redis_does_is_proved(finish: bool, valkey: RunningServer, keyspace: Keyspace) -> None:
    """The scripts, whatever is asked of them, at rest and before."""
    with opened(valkey, keyspace.topic()) as (bench, runner):
        for seed in range(SEEDS):
            report = history(bench, runner, seed, finish=finish)
            assert report.verdict is PromiseVerdict.PROVED, f"seed {seed}: {shown(report)}"


CAUGHT = {
    "nonce not compared": Promise.ONE_LEASE,
    "claim keeps the nonce": Promise.ONE_LEASE,
    "renewal changes the nonce": Promise.ONE_LEASE,
    "return before the due time": Promise.NEVER_EARLY,
    "due time lost on claim": Promise.NEWEST_INTENT,
    "nack does not count": Promise.HONEST_ATTEMPTS,
    "lapse does not count": Promise.HONEST_ATTEMPTS,
    "lapse always counts": Promise.HONEST_ATTEMPTS,
    "receipt not recorded": Promise.HONEST_ATTEMPTS,
    "release counts without a receipt": Promise.HONEST_ATTEMPTS,
    "occurrence not kept": Promise.NEWEST_INTENT,
    "redriven as another occurrence": Promise.NEWEST_INTENT,
}


@pytest.mark.parametrize("name", CAUGHT)
def test_broken_scripts_are_refuted(name: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """By their journal alone, which the broken script wrote itself."""
    with opened(valkey, keyspace.topic(), BREAKS[name]) as (bench, runner):
        found: set[Promise] = set()
        for seed in range(HUNT):
            try:
                report = history(bench, runner, seed, finish=False)
            except AssertionError:
                continue
            found |= {each.promise for each in report.judgements if each.verdict is PromiseVerdict.REFUTED}
            if CAUGHT[name] in found:
                return
        raise AssertionError(f"not refuted, but {found}")
