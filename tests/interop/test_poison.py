"""What neither side expects to find: each does what it does, and the timers beside it flow."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from relay.core.errors import WrongKeyType
from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Verdict
from relay.store.keys import KeyNames
from tests.interop.neighbours import Neighbours, fresh, now
from tests.interop.sides import SIDES, Side, cancel, empty, no_timers, publish, score, working
from tests.worlds.waiting import until

HOUR = 3600 * SECOND
JSON = {"content-type": "application/json"}


async def put(pair: Neighbours, timer_id: str | bytes, stored: bytes | None, due: float = 1.0) -> None:
    """Write the two keys by hand; without `stored` only the timeline."""
    timeline, payloads, _ = KeyNames().of(pair.topic)[:3]
    redis: Any = pair.redis
    if stored is not None:
        await redis.hset(payloads, timer_id, stored)
    await redis.zadd(timeline, {timer_id: due})


async def test_an_entry_without_payload_at_the_peer(pair: Neighbours) -> None:
    """It is removed at sight."""
    await put(pair, "ghost", None)
    async with working(pair, "peer") as one:
        await publish(pair, "peer", "real")
        await one.called()
        await until(lambda: empty(pair))
    assert [call.timer_id for call in one.calls] == ["real"]


async def test_an_entry_without_payload_at_a_relay(pair: Neighbours) -> None:
    """It is parked for a minute, in case that its payload is to come; the peer leaves it alone meanwhile."""
    await put(pair, "ghost", None)
    for side in SIDES:
        async with working(pair, side) as one:
            await publish(pair, side, "real")
            assert (await one.called()).timer_id == "real"
            await until(lambda: only_the_ghost(pair))
        parked = await score(pair, "ghost")
        assert parked is not None
        assert parked > now() + 30 * SECOND
    await cancel(pair, "relay", "ghost")
    assert await empty(pair)


async def only_the_ghost(pair: Neighbours) -> bool:
    return await pair.sizes() == (1, 0, 1)


async def test_the_peer_removes_what_a_relay_parked(pair: Neighbours) -> None:
    """Once the minute is over. The record of it stays, and goes when the id is scheduled."""
    await put(pair, "ghost", None)
    assert (await pair.claim(fresh())).parked == 1
    theirs = pair.broker.config.broker_config.store
    a_minute_later = now() / SECOND + 61
    assert await theirs.claim(pair.topic, "ghost", a_minute_later, 30) is None
    assert await pair.sizes() == (0, 0, 1)
    await publish(pair, "relay", "ghost")
    async with working(pair, "peer") as one:
        await one.called()
        await until(lambda: empty(pair))


async def test_a_payload_that_comes_late(pair: Neighbours, worker: Side) -> None:
    """To a parked entry: it is delivered when the minute is over, by either side."""
    await put(pair, "late", None)
    await pair.claim(fresh())
    timeline, payloads, _ = KeyNames().of(pair.topic)[:3]
    redis: Any = pair.redis
    await redis.hset(payloads, "late", b"here")
    parked = await redis.zscore(timeline, "late")
    assert parked > now() / SECOND + 30
    await redis.zadd(timeline, {"late": parked - 61})  # in the place of a minute's wait
    async with working(pair, worker) as one:
        assert (await one.called()).body == b"here"
        await until(lambda: no_timers(pair))
    await cancel(pair, "relay", "late")


async def test_an_id_that_is_not_text_at_the_peer(pair: Neighbours) -> None:
    """It is removed at sight, though it has a payload."""
    await put(pair, b"\xff\xfe", b"payload")
    async with working(pair, "peer") as one:
        await until(lambda: empty(pair))
    assert one.calls == []


async def test_an_id_that_is_not_text_at_a_relay(pair: Neighbours) -> None:
    """It is dead, since no application can be told of it, and kept as a dead letter; the others go on."""
    await put(pair, b"\xff\xfe", b"payload")
    dead = KeyNames().of(pair.topic)[3]
    redis: Any = pair.redis

    async def kept() -> bool:
        return cast("int", await redis.xlen(dead)) == 1

    async with working(pair, "relay") as ours:
        await until(kept)
        await publish(pair, "peer", "real")
        assert (await ours.called()).timer_id == "real"
    ((_, letter),) = await redis.xrange(dead)
    assert (letter[b"timer_id"], letter[b"reason"]) == (b"\xff\xfe", b"unreadable")
    assert letter[b"envelope"].endswith(b"payload")
    assert await pair.sizes() == (0, 0, 0)
    await redis.flushdb()


async def test_names_that_our_api_refuses(pair: Neighbours, worker: Side) -> None:
    """The peer checks no ids: braces, control characters and 300 bytes come to either side's handler."""
    names = ["a{b}c", "line\nbreak", "x" * 300, " ", "\x00"]
    for name in names:
        await publish(pair, "peer", name)
    async with working(pair, worker) as one:
        await one.called(len(names))
        await until(lambda: empty(pair))
    assert sorted(call.timer_id for call in one.calls) == sorted(names)


async def test_a_payload_beyond_our_limit(pair: Neighbours) -> None:
    """The peer checks no sizes either: five MiB, where ours takes one, is delivered all the same."""
    body = b"\x00" * (5 << 20)
    await publish(pair, "peer", "big", body)
    await publish(pair, "peer", "small", b"small", 2 * SECOND)
    async with working(pair, "relay") as one:
        await one.called(2)
        await until(lambda: empty(pair))
    assert {call.timer_id: len(call.body) for call in one.calls} == {"big": len(body), "small": 5}


@pytest.mark.parametrize("stored", [b'{"b": "no hex"}', b'{"b": 5, "ct": "text/plain"}'])
async def test_a_legacy_form_that_is_broken(pair: Neighbours, stored: bytes) -> None:
    """The peer removes it and calls nobody; a relay delivers it as it is."""
    await put(pair, "a", stored)
    async with working(pair, "peer") as theirs:
        await until(lambda: empty(pair))
    assert theirs.calls == []
    await put(pair, "a", stored)
    async with working(pair, "relay") as ours:
        assert (await ours.called()).body == stored
        await until(lambda: empty(pair))


async def test_json_that_is_none(pair: Neighbours) -> None:
    """The peer can't decode it, and tries for ever without a call; a relay hands over the bytes."""
    await publish(pair, "peer", "a", b"{oops", headers=JSON)
    async with working(pair, "peer", lease=0.1) as theirs:
        first = await score(pair)
        tries: set[int | None] = {first}

        async def tried_thrice() -> bool:
            tries.add(await score(pair))
            return len(tries) > 3

        await until(tried_thrice)
    assert theirs.calls == []
    async with working(pair, "relay") as ours:
        assert (await ours.called()).body == b"{oops"
        await until(lambda: empty(pair))


async def test_names_beyond_ascii_in_their_own_headers(pair: Neighbours) -> None:
    """The peer's writer counts characters where its reader counts bytes: its own handler is given the whole
    envelope without any header; a relay reads what was meant."""
    await publish(pair, "peer", "a", json.dumps("body").encode(), headers={**JSON, "name": "größe"})
    async with working(pair, "peer") as theirs:
        call = await theirs.called()
        await until(lambda: empty(pair))
    assert call.headers == {}
    assert call.body.startswith(b"\x89BIN")
    await publish(pair, "peer", "a", json.dumps("body").encode(), headers={**JSON, "name": "größe"})
    async with working(pair, "relay") as ours:
        call = await ours.called()
        await until(lambda: empty(pair))
    assert call.body == b'"body"'
    assert call.headers == {**JSON, "name": "größe", "correlation_id": "a"}


@pytest.mark.parametrize("due", [-SECOND, 0, 2**31 * SECOND, LATEST])
async def test_due_times_at_the_ends(pair: Neighbours, due: int) -> None:
    """Before 1970 means now; far ahead is kept as it was given."""
    await publish(pair, "peer", "a", due=due)
    timer = await pair.store.get(pair.topic, "a")
    assert timer is not None
    assert timer.due == max(due, 0)
    if due <= 0:
        nonce = fresh()
        assert (await pair.one(nonce)).due == 0
        assert await pair.settle("a", nonce) is Verdict.OK
    assert await empty(pair) is (due <= 0)


@pytest.mark.parametrize("kind", ["timeline", "payloads", "leases"])
async def test_a_key_of_another_type(both: Neighbours, kind: str) -> None:
    """A relay refuses the topic and changes nothing, until the key is moved away. The peer knows two of the
    keys: the third does not trouble it."""
    keys = dict(zip(("timeline", "payloads", "leases"), KeyNames().of(both.topic), strict=False))
    await both.publish("a")
    redis: Any = both.redis
    await redis.delete(keys[kind])
    await redis.set(keys[kind], "somebody else's")
    with pytest.raises(WrongKeyType, match=keys[kind]):
        await both.claim(fresh())
    assert await redis.get(keys[kind]) == b"somebody else's"
    if kind == "leases":
        async with working(both, "peer") as theirs:
            await theirs.called()
    await redis.delete(*keys.values())
    await both.publish("b")
    async with working(both, "relay") as ours:
        assert (await ours.called()).timer_id == "b"
        await until(lambda: empty(both))


async def test_their_client_that_decodes(pair: Neighbours) -> None:
    """A worker on a client with decode_responses=True reads our envelopes, binary and beyond ASCII."""
    redis = Redis.from_url(pair.url, decode_responses=True)
    try:
        await publish(pair, "relay", "ключ", b"\xff\x00", headers={"name": "größe"})
        store = type(pair.broker)(redis).config.broker_config.store
        assert await store.due(pair.topic, now() / SECOND, 10) == ["ключ"]
        stored = await store.claim(pair.topic, "ключ", now() / SECOND, 30)
        assert stored is not None
        assert stored.endswith(b"\xff\x00")
        await store.remove(pair.topic, "ключ")
    finally:
        await redis.aclose()
    assert await empty(pair)
