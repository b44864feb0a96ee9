"""What one writes the other reads, in every form that there has been."""

from __future__ import annotations

import json
from typing import cast

import pytest

from relay.core.instants import SECOND
from relay.store.keys import KeyNames
from tests.interop.neighbours import Neighbours, fresh, now
from tests.worlds.waiting import until

JSON = "application/json"
HEADERS = {"trace": "00-4bf9", "naïve": "日本語", "ключ": "🔑"}


async def test_their_publisher_our_claim(both: Neighbours) -> None:
    """Id, body, headers, content type and due time arrive, to the microsecond and beyond ASCII."""
    due = now() - 5 * SECOND
    await both.publish("счёт-1", {"sum": "12 €"}, due, headers=HEADERS, correlation_id="c-1")
    timer = await both.one(fresh())
    assert (timer.timer_id, timer.due, timer.attempt) == ("счёт-1", due, 1)
    assert (timer.approximate, timer.readable) == (False, True)
    assert json.loads(timer.payload) == {"sum": "12 €"}
    assert timer.headers == {**HEADERS, "correlation_id": "c-1"}
    assert timer.content_type == "application/json"


@pytest.mark.parametrize("body", [b"\x00\xff raw", "text ü", "", b""])
async def test_their_bodies(both: Neighbours, body: str | bytes) -> None:
    """Bytes and text come as they are."""
    await both.publish("a", body)
    timer = await both.one(fresh())
    assert timer.payload == (body if isinstance(body, bytes) else body.encode())


async def test_our_timer_their_handler(both: Neighbours) -> None:
    """Their subscriber gets body, headers and id of what we stored, and removes it for good."""
    payload = json.dumps({"sum": "12 €"}, ensure_ascii=False).encode()
    await both.schedule("счёт-1", 1, payload, headers=HEADERS, content_type="application/json")
    async with both.working():
        await until(lambda: len(both.seen) == 1)
        await until(lambda: gone(both))
    ((timer_id, body, headers),) = both.seen
    assert (timer_id, body) == ("счёт-1", {"sum": "12 €"})
    assert headers == {**HEADERS, "content-type": "application/json"}


@pytest.mark.parametrize("payload", [b"\x00\xff raw", "ü".encode(), b""])
async def test_our_bytes_their_handler(both: Neighbours, payload: bytes) -> None:
    """A payload without content type is delivered as bytes, or as the text or JSON that it is."""
    await both.schedule("a", 1, payload)
    async with both.working():
        await until(lambda: len(both.seen) == 1)
    body = both.seen[0][1]
    assert (body if isinstance(body, bytes) else str(body).encode()) == payload


@pytest.mark.parametrize(
    ("stored", "payload", "content_type"),
    [  # hexadecimal, JSON, bare
        (b'{"b": "7b2261223a20317d", "ct": "application/json"}', b'{"a": 1}', JSON),
        (b'{"data": "{\\"a\\": 1}", "headers": {"content-type": "application/json"}}', b'{"a": 1}', JSON),
        (b'{"a": 1}', b'{"a": 1}', ""),
    ],
    ids=["hexadecimal", "json", "bare"],
)  # fmt: skip
async def test_what_older_versions_left(
    both: Neighbours, stored: bytes, payload: bytes, content_type: str
) -> None:
    """Timers that were written years ago mean the same to both."""
    timeline, payloads, _ = KeyNames().of(both.topic)[:3]
    await both.redis.zadd(timeline, {"a": 1.0})
    await both.redis.hset(payloads, "a", cast("str", stored))
    nonce = fresh()
    timer = await both.one(nonce)
    assert (timer.payload, timer.content_type) == (payload, content_type)
    await both.redis.zadd(timeline, {"a": 1.0})
    async with both.working():
        await until(lambda: len(both.seen) == 1)
    assert both.seen[0][1] == {"a": 1}


async def gone(both: Neighbours) -> bool:
    return (await both.sizes())[:2] == (0, 0)
