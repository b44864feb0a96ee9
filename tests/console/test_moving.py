"""A timer that is moved by a page is read and scheduled again: what comes in between stands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.api.looking.moving import TimerMoves
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.timers import Change, Condition, NewTimer, StoredTimer
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served, on_server

pytestmark = pytest.mark.anyio

DUE, LATER = 4_000_000_000 * SECOND, 4_100_000_000 * SECOND

SCHEDULED_MEANWHILE = {
    "other contents": NewTimer("t", b"new", DUE, headers={"a": "1"}, content_type="text/plain"),
    "other headers": NewTimer("t", b"old", DUE, headers={"a": "2"}, content_type="text/plain"),
    "another instant": NewTimer("t", b"old", DUE + 1, headers={"a": "1"}, content_type="text/plain"),
}


@pytest.fixture
async def relay(valkey: RunningServer) -> AsyncIterator[Served]:
    async with on_server(valkey.url) as relay:
        yield relay


@pytest.fixture
async def topic(relay: Served, keyspace: Keyspace) -> str:
    topic = keyspace()
    await relay.engine.schedule(
        topic, NewTimer("t", b"old", DUE, headers={"a": "1"}, content_type="text/plain")
    )
    return topic


async def test_a_move_keeps_what_the_timer_carries(relay: Served, topic: str) -> None:
    moves = TimerMoves(relay.engine)
    seen = await moves.read(topic, "t")
    result = await moves.move(topic, "t", Condition(True, DUE, content=seen.digest), LATER)
    assert (result.change, result.due) == (Change.REPLACED, LATER)
    after = await moves.read(topic, "t")
    assert (after.due, after.payload, after.headers, after.content_type) == (
        LATER,
        b"old",
        {"a": "1"},
        "text/plain",
    )


async def test_a_move_may_bring_another_payload(relay: Served, topic: str) -> None:
    """Whose length is bounded as any payload's."""
    moves = TimerMoves(relay.engine)
    seen = Condition(True, DUE, content=(await moves.read(topic, "t")).digest)
    with pytest.raises(InvalidField, match="payload: is 1048577 bytes long"):
        await moves.move(topic, "t", seen, LATER, payload=b"x" * ((1 << 20) + 1))
    assert (await moves.move(topic, "t", seen, DUE, payload=b"new")).change is Change.REPLACED
    after = await moves.read(topic, "t")
    assert (after.due, after.payload, after.headers) == (DUE, b"new", {"a": "1"})
    assert (await moves.move(topic, "t", seen, DUE, payload=b"newer")).change is Change.UNCHANGED


@pytest.mark.parametrize("read", [1, 2], ids=["behind the page", "behind the move's own read"])
@pytest.mark.parametrize("newer", SCHEDULED_MEANWHILE)
async def test_what_is_scheduled_meanwhile_stands(
    relay: Served, topic: str, newer: str, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: the page, or the move itself, has read the timer; then its producer schedules it; then the
    move writes."""
    timer, reads, get = SCHEDULED_MEANWHILE[newer], 0, relay.engine.get

    async def get_and_lose(topic: str, timer_id: str) -> StoredTimer | None:
        nonlocal reads
        found = await get(topic, timer_id)
        reads += 1
        if reads == read:
            await relay.engine.schedule(topic, timer)
        return found

    monkeypatch.setattr(relay.engine, "get", get_and_lose)
    moves = TimerMoves(relay.engine)
    seen = await moves.read(topic, "t")
    result = await moves.move(topic, "t", Condition(True, DUE, content=seen.digest), LATER)
    assert (result.change, result.due) == (Change.UNCHANGED, timer.due)
    left = await get(topic, "t")
    assert left is not None
    assert (left.due, left.payload, left.headers) == (timer.due, timer.payload, timer.headers)
