"""layout/begin: who is the first to come decides how many partitions a topic has; and what the layout says to
relays that take the topic for one of one partition, of now and from before there were layouts."""

from __future__ import annotations

import time

import pytest
from redis.exceptions import ResponseError

from relay.core.errors import OtherLayout, WrongKeyType
from relay.core.instants import SECOND
from relay.core.timers import NewTimer
from relay.store.keys import KeyNames
from relay.store.server.manifest import manifest
from relay.store.server.scripts import Call, Scripts
from relay.store.verbs import layout
from tests.store.test_verbs import CALLS
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break
from tests.worlds.scripts.states import ENVELOPE
from tests.worlds.scripts.texts import texts

KEPT = ("timeline", "payloads", "leases", "dead", "pause", "marks")
UNTOLD = Break("lib/prelude", "layout-told")
"""The scripts as relays from before there were layouts have them."""
TIMERS = [call for call in CALLS if manifest(call.verb).writes and "leases" in manifest(call.verb).keys]
"""A call of each script that changes a topic's timers."""


async def begin(bench: Bench, partitions: int) -> str:
    return (await bench.redis.call(layout.begin(bench.topic, partitions))).decode()


def keep(bench: Bench, name: str) -> None:
    """Let there be something under one of the topic's keys."""
    key = KeyNames().key(name, bench.topic)
    if name == "timeline":
        bench.raw.zadd(key, {"a": 1.0})
    elif name == "pause":
        bench.raw.set(key, NOW + SECOND)
    elif name in ("dead", "journal"):
        bench.raw.xadd(key, {"b": ENVELOPE})
    else:
        bench.raw.hset(key, "a", "x")


async def test_a_new_topic_begins(bench: Bench) -> None:
    """It has the layout that is asked for first, and nobody changes it by asking for another."""
    assert await begin(bench, 8) == "1 8"
    assert bench.raw.get(bench.leases) == b"1 8"
    for other in (1, 2, 8, 16):
        assert await begin(bench, other) == "1 8"
    assert bench.raw.get(bench.leases) == b"1 8"


async def test_a_topic_of_one_partition_has_no_layout(bench: Bench) -> None:
    """Nothing is written for it, so that its keys are what they always were."""
    assert await begin(bench, 1) == ""
    assert not bench.raw.exists(*bench.keys)


@pytest.mark.parametrize("name", KEPT)
async def test_a_topic_of_which_something_is_kept(bench: Bench, name: str) -> None:
    """It goes on as it is."""
    keep(bench, name)
    before = bench.raw.dump(bench.leases)
    assert await begin(bench, 8) == ""
    assert bench.raw.dump(bench.leases) == before


async def test_a_journal_is_kept_of_the_topic(bench: Bench) -> None:
    """A journal that is left of a topic without timers tells of one partition."""
    bench.keep = 100
    keep(bench, "journal")
    assert await begin(bench, 8) == ""
    assert not bench.raw.exists(bench.leases)


async def test_a_layout_that_is_lost(bench: Bench) -> None:
    """Who goes by it brings it back, though timers came meanwhile, but not over what others have begun."""
    keep(bench, "timeline")
    assert (await bench.redis.call(layout.begin(bench.topic, 4, "1 8"))) == b"1 8"
    assert bench.raw.get(bench.leases) == b"1 8"
    assert (await bench.redis.call(layout.begin(bench.topic, 4, "1 16"))) == b"1 8"
    bench.raw.delete(bench.leases)
    keep(bench, "leases")
    assert (await bench.redis.call(layout.begin(bench.topic, 4, "1 8"))) == b""


async def test_the_layout_is_told(bench: Bench) -> None:
    """A relay that takes the topic for one of one partition learns better, and has written nothing."""
    await begin(bench, 8)
    with pytest.raises((OtherLayout, WrongKeyType)) as refusal:
        await bench.store.schedule(bench.topic, [NewTimer("a", b"x", due=NOW)])
    assert isinstance(refusal.value, OtherLayout)
    assert refusal.value.layout == "1 8"
    assert not bench.raw.exists(bench.timeline, bench.payloads)


async def test_an_idle_poll_hears_of_the_layout(bench: Bench) -> None:
    """Otherwise a relay that takes the topic for one of one partition would poll the first of them for as
    long as nothing is due there, and never those that have something due."""
    assert await bench.claimed() == []
    await begin(bench, 8)
    with pytest.raises(OtherLayout):
        await bench.claim(N1)


@pytest.mark.parametrize("call", TIMERS, ids=lambda call: call.verb)
@pytest.mark.parametrize("journal", [0, 9], ids=["plain", "journal"])
async def test_a_relay_from_before(bench: Bench, call: Call[object], journal: int) -> None:
    """Every script of a relay that knows nothing of layouts finds a string where it wants a hash, and writes
    nothing."""
    bench.put("a", 1.0)
    bench.raw.delete(bench.leases)
    bench.raw.set(bench.leases, "1 8")
    before = {key: bench.raw.dump(key) for key in bench.raw.keys("*")}
    old = Scripts(KeyNames(), texts(("",), UNTOLD))
    command = old.prepare(call._replace(topic=bench.topic), lambda _: journal).command(
        (int(time.time()) + 60) * SECOND, known=False
    )
    with pytest.raises(ResponseError, match=f"^WRONGKEYTYPE {bench.leases} holds a string, not a hash"):
        bench.raw.execute_command(*command)
    assert {key: bench.raw.dump(key) for key in bench.raw.keys("*")} == before
