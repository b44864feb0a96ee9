"""Both want the same timer: the newest intent wins, and our stale tokens change nothing."""

from __future__ import annotations

import time
from typing import cast

import anyio

from relay.core.instants import SECOND
from relay.core.outcomes import Extension, Verb, Verdict
from tests.interop.neighbours import Neighbours, fresh, now
from tests.worlds.waiting import until

LEASE = 30 * SECOND


async def test_they_reschedule_what_we_hold(both: Neighbours) -> None:
    """Our ACK is stale, and the new time and content stand."""
    nonce, due = fresh(), now() + 3600 * SECOND
    await both.schedule("a")
    await both.one(nonce)
    await both.publish("a", "later", due)
    for verb in Verb:
        assert await both.settle("a", nonce, verb) is Verdict.STALE
    assert await both.store.extend(both.topic, [Extension("a", nonce)], lease=LEASE) == [Verdict.STALE]
    timer = await both.store.get(both.topic, "a")
    assert timer is not None
    assert (timer.due, timer.payload, timer.attempts) == (due, b"later", 0)


async def test_they_reschedule_it_for_now(both: Neighbours) -> None:
    """The second delivery runs while the first is settled late; only the second counts."""
    first, second, due = fresh(), fresh(), now() - SECOND
    await both.schedule("a")
    await both.one(first)
    await both.publish("a", "again", due)
    timer = await both.one(second)
    assert (timer.payload, timer.due, timer.attempt) == (b"again", due, 1)
    assert await both.settle("a", first) is Verdict.STALE
    assert await both.settle("a", second) is Verdict.OK
    assert await both.sizes() == (0, 0, 0)


async def test_they_reschedule_at_our_deadline(both: Neighbours) -> None:
    """Even for the very microsecond at which our lease ends."""
    nonce = fresh()
    await both.schedule("a")
    deadline = (await both.claim(nonce)).deadline
    await both.publish("a", "later", deadline)
    assert await both.settle("a", nonce) is Verdict.STALE
    timer = await both.store.get(both.topic, "a")
    assert timer is not None
    assert (timer.due, timer.attempts) == (deadline, 0)


async def test_they_cancel_what_we_hold(both: Neighbours) -> None:
    """Our token finds it gone, and its record goes too."""
    nonce = fresh()
    await both.schedule("a")
    await both.one(nonce)
    await both.broker.cancel_timer(both.topic, "a")
    assert await both.settle("a", nonce) is Verdict.GONE
    assert await both.sizes() == (0, 0, 0)


async def test_they_cancel_and_publish_anew(both: Neighbours) -> None:
    """The record that stayed behind does not speak for the new timer."""
    nonce, due = fresh(), now() + 3600 * SECOND
    await both.schedule("a")
    await both.one(nonce)
    await both.broker.cancel_timer(both.topic, "a")
    await both.publish("a", "new", due)
    assert await both.settle("a", nonce) is Verdict.STALE
    timer = await both.store.get(both.topic, "a")
    assert timer is not None
    assert (timer.due, timer.attempts) == (due, 0)


async def test_their_worker_leaves_a_lease_alone(both: Neighbours) -> None:
    """What we hold is not due for it; it handles the rest."""
    nonce = fresh()
    await both.schedule("ours")
    await both.one(nonce)
    async with both.working():
        await both.schedule("free")
        await until(lambda: len(both.seen) == 1)
        await until(lambda: only_ours(both))
    assert [timer_id for timer_id, _, _ in both.seen] == ["free"]
    assert await both.settle("ours", nonce) is Verdict.OK


async def only_ours(both: Neighbours) -> bool:
    return (await both.sizes())[:2] == (1, 1)


async def test_their_worker_takes_over(both: Neighbours) -> None:
    """A lease of ours that ran out is theirs: while their handler runs our token is stale, then gone."""
    nonce, hold = fresh(), anyio.Event()
    await both.schedule("a")
    await both.one(nonce, lease=1000)
    async with both.working(hold=hold):
        await until(lambda: len(both.seen) == 1)
        for verb in Verb:
            assert await both.settle("a", nonce, verb) is Verdict.STALE
        assert not (await both.claim(fresh())).timers
        hold.set()
        await until(lambda: committed(both))
    assert await both.settle("a", nonce) is Verdict.GONE
    assert await both.sizes() == (0, 0, 0)


async def committed(both: Neighbours) -> bool:
    return (await both.sizes())[:2] == (0, 0)


async def test_their_worker_dies(both: Neighbours) -> None:
    """Its lease ends, and we deliver: with the due time and the attempts that we knew."""
    first, due = fresh(), now() - 5 * SECOND
    await both.schedule("a", due=due)
    assert (await both.one(first, lease=1000)).attempt == 1
    assert await both.store.extend(both.topic, [Extension("a", first, received=True)], lease=1000)
    theirs = both.broker.config.broker_config.store
    start = time.time()
    while await theirs.claim(both.topic, "a", time.time(), 1) is None:
        assert time.time() < start + 60
    leased_until = cast("float", await both.redis.zscore(f"timers_timeline:{both.topic}", "a"))
    second = fresh()
    while not (claim := await both.claim(second)).timers:
        assert time.time() < start + 60
    assert claim.now >= int(leased_until * SECOND)
    (timer,) = claim.timers
    on_the_grid = round(leased_until * SECOND) / SECOND == leased_until
    if not on_the_grid:  # about one clock reading in four looks like a publisher's
        assert (timer.due, timer.attempt, timer.approximate) == (due, 2, True)
    assert await both.settle("a", first) is Verdict.STALE
    assert await both.settle("a", second) is Verdict.OK


async def test_their_late_commit(both: Neighbours) -> None:
    """It is not fenced: it removes what we hold by now. Our token finds that out and harms nothing."""
    theirs = both.broker.config.broker_config.store
    await both.publish("a", due=now() - SECOND)
    long_ago = time.time() - 0.5
    assert await theirs.claim(both.topic, "a", long_ago, 0) is not None, "a lease that is over already"
    nonce = fresh()
    await both.one(nonce)
    await theirs.remove(both.topic, "a")
    assert await both.settle("a", nonce) is Verdict.GONE
    assert await both.sizes() == (0, 0, 0)


async def test_they_cancel_everything(both: Neighbours) -> None:
    """Their cancel_all removes our timers; what is left of our records is in nobody's way."""
    nonce = fresh()
    for timer_id in ("held", "later"):
        await both.schedule(timer_id, due=1 if timer_id == "held" else now() + 3600 * SECOND)
    await both.one(nonce)
    assert await both.broker.cancel_all(both.topic) == 2
    assert (await both.claim(fresh())).next is None
    assert await both.settle("held", nonce) is Verdict.GONE
    assert await both.sizes() == (0, 0, 0)


async def test_they_see_our_timers(both: Neighbours) -> None:
    """Pending ones are shown to them, and cancelled by us they are gone for them."""
    await both.schedule("a", due=now() + 3600 * SECOND)
    assert await both.broker.has_pending(both.topic, "a")
    await both.store.cancel(both.topic, ["a"])
    assert not await both.broker.has_pending(both.topic, "a")
