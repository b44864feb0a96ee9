"""One timer's life, as a relay tells it: by whom and through which relay, with what errors, through moves of
its topic, with a journal and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from relay.client import Delivery, Nack, Reject, RelayClient, SyncRelayClient, TimerEvent, TimerStanding
from relay.core.partitions import partition_number
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")

TOPIC, ID = "orders", "order-4711"
QUICK = {"RELAY_DEFAULTS__RETRY__INITIAL": "0.05", "RELAY_DEFAULTS__RETRY__MAX": "0.05"}


@asynccontextmanager
async def handled(relay: Relay, *outcomes: Exception | None) -> AsyncIterator[RelayClient]:
    """An application whose deliveries end like this, each once its history tells of the receipt: it would be
    merged with a quick outcome."""
    client, left = RelayClient(relay.target, timeout=60.0), list(outcomes)

    @client.on(TOPIC)
    async def handle(delivery: Delivery) -> None:
        async def is_received() -> bool:
            newest = (await client.history(TOPIC, delivery.timer_id, page_size=1)).events[0]
            return newest.kind in ("received", "extended")

        await until(is_received, "the receipt is written")
        if (outcome := left.pop(0)) is not None:
            raise outcome

    async with client:
        running = asyncio.create_task(client.run())
        await client.wait_ready(60.0)
        yield client
        await until(lambda: not left, "all deliveries have ended")
        running.cancel()


async def whole(client: RelayClient, timer_id: str, page_size: int = 100) -> list[TimerEvent]:
    """All events but renewals, which a slow machine adds, the oldest first."""
    events: list[TimerEvent] = []
    token = ""
    while True:
        page = await client.history(TOPIC, timer_id, page_size=page_size, page_token=token)
        assert (page.now is None) == bool(token)
        events += page.events
        if not (token := page.next_page_token):
            return [event for event in events[::-1] if event.kind != "extended"]


def kinds(events: list[TimerEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.relay) for event in events]


async def standing(client: RelayClient, timer_id: str) -> TimerStanding:
    now = (await client.history(TOPIC, timer_id)).now
    assert now is not None
    return now.standing


async def test_a_whole_life(stage: Stage) -> None:
    """Scheduled through one relay, moved and delivered through another: failed, rejected, redriven, done.
    Both relays tell the same, in pages of any size."""
    first, second = (stage.relay(name, {"RELAY_NAME": name, **QUICK}) for name in ("orders-a", "orders-b"))
    async with RelayClient(first.target, timeout=60.0) as client:
        day = await client.schedule(TOPIC, b"secret", timer_id=ID, delay=timedelta(days=1))
        assert await standing(client, ID) is TimerStanding.WAITING
        outcomes = Nack(retry_after=0, reason="busy"), Reject("no such customer"), None
        async with handled(second, *outcomes) as other:
            now = await other.schedule(TOPIC, b"secret", timer_id=ID, delay=0)
            await until(lambda: _is(client, TimerStanding.DEAD), "it has died")
            dead = (await client.history(TOPIC, ID)).now
            assert dead is not None
            (letter,) = dead.dead_letters
            assert (letter.reason, letter.last_error) == ("rejected", "no such customer")
            assert dead.timer is None
            await other.topics.redrive(TOPIC, [letter.dead_id])
            await until(lambda: _is(client, TimerStanding.ABSENT), "it is done")
        events = await whole(client, ID)
        assert await whole(client, ID, page_size=2) == events
    assert kinds(events) == [
        ("scheduled", "orders-a"),
        *((kind, "orders-b") for kind in ("replaced", "claimed", "received", "nacked")),
        *((kind, "orders-b") for kind in ("claimed", "received", "dead", "redriven")),
        *((kind, "orders-b") for kind in ("claimed", "received", "acked")),
    ]
    _, replaced, claimed, received, nacked, again, _, died, redriven, last, _, acked = events
    assert (replaced.previous_due_time, replaced.due_time) == (day.due_time, now.due_time)
    assert claimed.lease == received.lease == nacked.lease != again.lease
    assert (nacked.error, nacked.attempts) == ("busy", 1)
    assert (died.reason, died.error, died.attempts, died.dead_id) == (
        "rejected",
        "no such customer",
        2,
        letter.dead_id,
    )
    assert redriven.dead_id == died.dead_id
    assert last.occurrence_id == claimed.occurrence_id == letter.occurrence_id
    assert last.lease == acked.lease
    assert [event.time for event in events] == sorted(event.time for event in events)
    with SyncRelayClient(second.target) as sync:
        assert [each for each in sync.history(TOPIC, ID).events[::-1] if each.kind != "extended"] == events


async def _is(client: RelayClient, wanted: TimerStanding) -> bool:
    return await standing(client, ID) is wanted


@pytest.mark.slow
async def test_through_moves(stage: Stage) -> None:
    """A timer is followed through all partitions that it was in, and so is its dead letter."""
    relay = stage.relay(settings={"RELAY_NAME": "orders-a", **QUICK})
    moved = next(name for n in count() if partition_number(name := f"order-{n}", 4) == 3)
    async with RelayClient(relay.target, timeout=60.0) as client:
        await client.schedule(TOPIC, b"", timer_id=moved, delay=timedelta(days=1))
        await reshard(relay, 4)
        assert await client.cancel(TOPIC, moved)
        async with handled(relay, Reject("no")):
            await client.schedule(TOPIC, b"", timer_id=moved, delay=0)
        await reshard(relay, 1)
        events = await whole(client, moved)
        assert await whole(client, moved, page_size=1) == events
        now = (await client.history(TOPIC, moved)).now
    told = [(event.kind, event.partition, event.other_partition) for event in events]
    assert told == [
        ("scheduled", 0, None),
        *(("left", 0, 1), ("arrived", 1, 0), ("left", 1, 3), ("arrived", 3, 1)),
        *((kind, 3, None) for kind in ("cancelled", "scheduled", "claimed", "received", "dead")),
        *(("left", 3, 1), ("arrived", 1, 3), ("left", 1, 0), ("arrived", 0, 1)),
    ]
    assert now is not None
    assert [letter.dead_id for letter in now.dead_letters] == [events[-1].dead_id]
    assert now.standing is TimerStanding.DEAD


async def reshard(relay: Relay, partitions: int) -> None:
    arguments = ("topics", "reshard", TOPIC, "--partitions", str(partitions), "--target", relay.target)
    ran = await asyncio.to_thread(command, *arguments, timeout=300.0)
    assert ran.code == 0, ran.err


async def test_occurrences_and_topics_without_a_journal(stage: Stage) -> None:
    """An occurrence names its recurrence. Without a journal, what Redis knows is told, and what to do."""
    settings = {f"RELAY_TOPICS__{name}__JOURNAL": "false" for name in ("plain",)}
    relay = stage.relay(settings={**settings, "RELAY_NAME": "orders-a", **QUICK})
    async with RelayClient(relay.target, timeout=60.0) as client:
        await client.recur("nightly", topic=TOPIC, every=timedelta(days=36_500))
        await client.topics.pause(TOPIC)
        timer_id = await client.recurrences.trigger(TOPIC, "nightly")
        page = await client.history(TOPIC, timer_id)
        (made,) = page.events
        assert (made.kind, made.recurrence_id, made.relay) == ("scheduled", "nightly", "orders-a")
        assert page.now is not None
        assert page.now.standing is TimerStanding.DUE
        assert page.now.paused_until_time is not None
        assert await whole(client, "nightly") == [], "a recurrence is no timer"

        await client.schedule("plain", b"", timer_id=ID, delay=60)
        answer: Any = await client.history("plain", ID)
        assert (answer.now.standing, answer.now.timer.timer_id) == (TimerStanding.WAITING, ID)
        assert (answer.events, answer.next_page_token) == ([], "")
        assert "set journal: true for the topic" in answer.events_missing
        stage.client.xadd(
            "timers_dead:plain",
            {
                "timer_id": ID,
                "reason": "rejected",
                "attempts": 1,
                "claims": 1,
                "due": "1.5",
                "died": "2000000",
                "occurrence": b"o" * 16,
                "error": "no",
                "envelope": b"",
            },
        )
        assert await client.cancel("plain", ID)
        answer = await client.history("plain", ID)
        assert (answer.now.standing, len(answer.now.dead_letters)) == (TimerStanding.DEAD, 1)


async def test_the_command(stage: Stage) -> None:
    """A life as lines of time, as documents, and what it says of a timer that never was."""
    relay = stage.relay(settings={"RELAY_NAME": "orders-a", **QUICK})
    async with handled(
        relay, Nack(retry_after=0, reason="busy\x1b[31m"), Reject("no such customer")
    ) as client:
        await client.schedule(TOPIC, b"", timer_id=ID, delay=0)
        await until(lambda: _is(client, TimerStanding.DEAD), "it has died")
    target = ("--target", relay.target)
    ran = await asyncio.to_thread(command, "history", TOPIC, ID, *target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{TOPIC}/{ID} is dead\n  dead letter ")
    lines = [line.split(" ago ")[1].split()[:2] for line in ran.out.splitlines() if "orders-a" in line]
    told = ["scheduled", "claimed", "received", "nacked", "claimed", "received", "dead"]
    assert [words for words in lines if words[0] != "extended"] == [[kind, "orders-a"] for kind in told]
    assert r"after 1 attempt; busy\x1b[31m; again" in ran.out
    assert "after 2 attempts; rejected; no such customer" in ran.out
    ran = await asyncio.to_thread(command, "history", TOPIC, ID, "--json", "--limit", "2", *target)
    now, *events = ran.documents
    assert (now["standing"], [each["kind"] for each in events][-1]) == ("dead", "dead")
    assert len(events) == 2
    assert events[-1]["dead_id"] == now["dead_ids"][0]
    ran = await asyncio.to_thread(command, "history", TOPIC, "none", *target)
    assert (ran.code, ran.out) == (3, "")
    assert "there is no timer orders/none; the journal has nothing of it" in ran.err
