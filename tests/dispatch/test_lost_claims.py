"""stream/claimed.lua: what a claim of a group took whose reply was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import Limits, Reason, Verb, Verdict
from relay.core.timers import NewTimer
from tests.worlds.scripts.asking import LEASE, NOW
from tests.worlds.scripts.desk import Desk, Reader


async def found(reader: Reader, **which: Any) -> list[str]:
    return list((await reader.find(**which)).timers.timer_ids)


def entries(fan: Desk) -> list[Any]:
    """The entries of the stream, in their order."""
    return [entry for entry, _ in cast("list[Any]", fan.raw.xrange(fan.stream))]


def everything(fan: Desk) -> list[Any]:
    """All that the group has."""
    raw: Any = fan.raw
    retries, group = fan.keys_of()
    pending = raw.xpending_range(fan.stream, "billing", "-", "+", 1000)
    names = [{**each, "time_since_delivered": 0} for each in pending]
    return [names, raw.zrange(retries, 0, -1, withscores=True), raw.hgetall(group), raw.xlen(fan.stream)]


async def test_it_is_as_the_claim_said(fan: Desk) -> None:
    """The timers whole, whichever way the claim has come by each, and the true end of their leases; nothing
    changes."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW - 9 + n) for n in range(4)])
    retried, received, _, released = await two.take()
    await two.settle(retried, Verb.RELEASE, received=True, suspect=True)
    await two.settle(released, Verb.RELEASE, unsent=True)
    await two.extend(received, received=True)
    two.idle(30.0)
    new = [NewTimer(f"n{n:02}", b"payload", NOW - 3, None, {"k": "ü"}, "text/plain") for n in range(40)]
    await fan.store.schedule(fan.topic, new)
    claim = await one.claim()
    told = {timer.timer_id: (timer.attempt, timer.suspect, timer.claims) for timer in claim.timers}
    assert {name: told[name] for name in ("t0", "t1", "t2", "t3", "n00")} == {
        "t0": (2, True, 2),
        "t1": (2, False, 2),
        "t2": (1, False, 2),
        "t3": (1, False, 1),
        "n00": (1, False, 1),
    }
    before = everything(fan)
    fan.now = NOW + 7
    again = await one.find()
    assert list(again.timers) == list(claim.timers)
    assert (again.now, again.deadline, again.next) == (NOW + 7, claim.deadline, None)
    assert everything(fan) == before
    for timer in again.timers:
        assert await one.settle(timer) is Verdict.OK


async def test_as_many_as_a_claim_takes(fan: Desk) -> None:
    one = fan.reader()
    names = [f"t{n:03}" for n in range(501)]
    await fan.store.schedule(fan.topic, [NewTimer(name, b"", NOW - 1) for name in names[:-1]])
    await fan.schedule(names[-1])
    assert await one.names(limit=500) == await found(one) == names[:-1]


async def test_a_claim_that_did_not_run_took_nothing(fan: Desk) -> None:
    """Whatever else this relay, or another one of the group, holds."""
    one, two, audit = fan.reader("one"), fan.reader("two"), fan.reader("one", "audit")
    await audit.claim()
    await fan.schedule("a")
    assert (await found(one), await found(one, back=-1)) == ([], [])
    assert (await one.names(), await audit.names()) == (["a"], ["a"])
    assert (await found(two), await found(one, back=-1)) == ([], [])
    await fan.schedule("b")
    assert await two.names() == ["b"]
    assert (await found(one), await found(two), await found(audit)) == (["a"], ["b"], ["a"])


async def test_an_earlier_claim_is_not_found(fan: Desk) -> None:
    """Its reply has come, or it was asked for: the relay claims nothing before."""
    one = fan.reader()
    for name in "ab":
        await fan.schedule(name)
        assert await one.names() == [name]
    assert (await found(one), await found(one, back=1)) == (["b"], [])
    assert await one.names() == []
    assert await found(one) == [], "an empty claim has taken nothing"


async def test_what_was_for_another_group_is_not_found(fan: Desk) -> None:
    one = fan.reader()
    await one.claim()
    fan.raw.xadd(fan.stream, {"timer_id": "a"})
    fan.raw.xadd(fan.stream, {"timer_id": "theirs", "only_group": "audit"})
    fan.raw.xadd(fan.stream, {"timer_id": "b"})
    assert await one.names() == await found(one) == ["a", "b"]


async def test_one_that_looks_new_and_is_not(fan: Desk) -> None:
    """Somebody has set the deliveries of an entry to none. What this relay holds behind it is left alone."""
    one, two = fan.reader("one"), fan.reader("two")
    for name, reader in (("a", two), ("b", one)):
        await fan.schedule(name)
        assert await reader.names() == [name]
    await fan.schedule("c")
    fan.raw.xclaim(fan.stream, "billing", "two", 0, entries(fan)[:1], idle=30_000, retrycount=0, justid=True)
    assert await one.names() == await found(one) == ["a", "c"]


async def settled(fan: Desk, one: Reader) -> None:
    """As if somebody had known the proof."""
    timer = (await one.find()).timers[0]
    assert await one.settle(timer, Verb.NACK, retry_after=LEASE) is Verdict.OK


async def acknowledged(fan: Desk, one: Reader) -> None:
    fan.raw.xack(fan.stream, "billing", entries(fan)[0])


async def trimmed(fan: Desk, one: Reader) -> None:
    fan.raw.xdel(fan.stream, entries(fan)[0])


async def taken_over(fan: Desk, one: Reader) -> None:
    """By a plain consumer that counts no delivery."""
    fan.raw.xclaim(fan.stream, "billing", "plain", 0, entries(fan)[:1], justid=True)


async def delivered_once_more(fan: Desk, one: Reader) -> None:
    fan.raw.xclaim(fan.stream, "billing", "one", 0, entries(fan)[:1])


@pytest.mark.parametrize("again", [False, True], ids=["new", "again"])
@pytest.mark.parametrize("change", [settled, acknowledged, trimmed, taken_over, delivered_once_more])
async def test_what_is_not_held_any_more(
    fan: Desk, change: Callable[[Desk, Reader], Awaitable[None]], again: bool
) -> None:
    """Its lease is over, and it is not found; the others are."""
    one = fan.reader()
    await fan.schedule("a", NOW - 1)
    await fan.schedule("b")
    if again:
        assert await one.names() == ["a", "b"]
        one.idle(30.0)
    assert await one.names() == await found(one) == ["a", "b"]
    await change(fan, one)
    assert await found(one) == ["b"]


async def test_a_lease_that_has_run_out(fan: Desk) -> None:
    """The next round takes the entry."""
    one = fan.reader()
    await fan.schedule("a")
    await one.claim()
    fan.now = NOW + LEASE - 1
    assert await found(one) == ["a"]
    fan.now = NOW + LEASE
    assert await found(one) == []


async def test_one_that_was_renewed(fan: Desk) -> None:
    """Nobody knows the proof, so nobody renews; if somebody did, the deliveries stay, and so it is found."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    assert await one.extend(timer, received=True) is Verdict.OK
    assert await found(one) == ["a"]


async def test_a_group_that_is_gone(fan: Desk) -> None:
    one = fan.reader()
    await fan.schedule("a")
    await one.claim()
    fan.raw.xgroup_destroy(fan.stream, "billing")
    assert await found(one) == []
    fan.raw.delete(fan.stream)
    assert await found(one) == []


async def test_the_dead_are_not_found(fan: Desk) -> None:
    one = fan.reader()
    await fan.schedule("a", NOW - 1)
    await fan.schedule("b", NOW - 1, expires=NOW + SECOND)
    await fan.promote()
    fan.later(1)
    claim = await one.claim(limits=Limits(keep=True))
    assert claim.deaths == (("b", Reason.EXPIRED.value),)
    assert await found(one) == ["a"]


async def test_it_is_kept_for_as_long_as_the_leases(fan: Desk) -> None:
    """Also by a Redis at its maxmemory; and no other key is."""
    one = fan.reader()
    await one.claim()
    assert fan.raw.exists(one.latest()) == 0
    await fan.schedule("a")
    fan.raw.config_set("maxmemory", 1)
    try:
        await one.claim()
        assert await found(one) == ["a"]
    finally:
        fan.raw.config_set("maxmemory", 0)
    assert 0 < fan.raw.pttl(one.latest()) <= LEASE // 1000
    assert [fan.raw.pttl(key) for key in (fan.stream, one.latest() + "x")] == [-1, -2]
    assert one.traces() == (0, 0)
