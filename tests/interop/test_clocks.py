"""Clocks that are wrong. Relays go by the clock of Redis; the peer's publishers and workers by their own."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from faststream_redis_timers import response
from faststream_redis_timers.subscriber import usecase

from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from tests.interop.neighbours import Neighbours, fresh, now
from tests.interop.sides import empty, no_timers, publish, score, working
from tests.worlds.waiting import until

HOUR = 3600 * SECOND


def set_workers_clock(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """The clock of the peer's workers goes ahead by so many seconds."""
    monkeypatch.setattr(usecase, "time", SimpleNamespace(time=lambda: time.time() + ahead))


async def test_a_worker_that_is_ahead_handles_early(
    pair: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the peer's whose clock is an hour ahead takes what is due in half an hour, from us too."""
    set_workers_clock(monkeypatch, 3600)
    await publish(pair, "relay", due=now() + HOUR // 2)
    async with working(pair, "relay") as ours, working(pair, "peer") as theirs:
        await theirs.called()
        await until(lambda: empty(pair))
    assert ours.calls == []


async def test_a_worker_that_is_ahead_takes_what_we_hold(
    pair: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock says that our lease is over: both handle the timer. Our token is stale while it does, and
    finds the timer gone when it has."""
    set_workers_clock(monkeypatch, 3600)
    hold, nonce = anyio.Event(), fresh()
    await publish(pair, "relay")
    await pair.one(nonce)
    async with working(pair, "peer", lambda _: hold.wait()) as theirs:
        await theirs.called()
        assert await pair.settle("a", nonce, Verb.NACK) is Verdict.STALE
        assert await pair.settle("a", nonce) is Verdict.STALE
        hold.set()
        await until(lambda: no_timers(pair))
    assert await pair.settle("a", nonce) is Verdict.GONE
    assert await empty(pair)


async def test_what_a_worker_that_is_ahead_drops(pair: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it dies with a timer, that comes when *its* lease is over: late by what its clock was ahead."""
    set_workers_clock(monkeypatch, 3600)
    hold = anyio.Event()
    await publish(pair, "relay")
    async with working(pair, "peer", lambda _: hold.wait()) as theirs:
        await theirs.called()
        leased_until = await score(pair)
        assert leased_until is not None
        assert leased_until > now() + HOUR
        assert not (await pair.claim(fresh())).timers
        hold.set()
        await until(lambda: empty(pair))


async def test_a_worker_that_is_behind_has_no_lease(
    pair: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is an hour behind sees only what is an hour late, and its lease on that is over
    as soon as it is taken: a relay delivers it too. Neither is early, and nothing is lost."""
    set_workers_clock(monkeypatch, -3600)
    hold = anyio.Event()
    await publish(pair, "relay", "old", due=now() - 2 * HOUR)
    async with working(pair, "peer", lambda _: hold.wait(), concurrency=1) as theirs:
        await theirs.called()
        async with working(pair, "relay") as ours:
            assert (await ours.called()).timer_id == "old"
            assert theirs.ended == 0, "both are at work"
            await until(lambda: empty(pair))
            hold.set()
            await until(lambda: theirs.ended == 1)
            due = now() + SECOND // 4
            await publish(pair, "relay", "new", due=due)
            assert (await ours.called(2)).at >= due
            await until(lambda: empty(pair))
    assert len(theirs.calls) == 1


@pytest.mark.parametrize("ahead", [-600, 600])
async def test_a_publisher_that_is_wrong(
    pair: Neighbours, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Its activate_in counts from its own clock, so the due time is off by as much. Ours counts by Redis."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=ahead)

    monkeypatch.setattr(response, "datetime", Clock)
    begin = now()
    await pair.broker.publish("body", pair.topic, timer_id="a", activate_in=timedelta(hours=1))
    end = now()
    timer = await pair.store.get(pair.topic, "a")
    assert timer is not None
    assert begin <= timer.due - HOUR - ahead * SECOND <= end
    await pair.store.cancel(pair.topic, ["a"])
