"""Promise 7, no orphans: timeline and payloads hold the same ids, and leases a subset of them.

What another writer leaves behind is repaired and counted.

Each of these breaks was seen to fail here:
- `timeline/settle` keeps the payload of what was acknowledged.
- The janitor repairs nothing.
"""

from __future__ import annotations

import pytest

from relay.client import Delivery, Nack, NewTimer, Reject, RelayClient
from tests.promises.world import Handler, World, serving
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")


async def test_every_end_leaves_nothing_behind(world: World) -> None:
    """Timers end by ACK, after a NACK, by REJECT and by cancel. At each instant the keys hold the same ids
    (`world.ids` compares them in one transaction), and in the end they hold none."""

    async def end(delivery: Delivery) -> None:
        world.ids(topic)
        if delivery.payload == b"reject":
            raise Reject("asked for")
        if delivery.payload == b"nack" and delivery.attempt == 1:
            raise Nack(retry_after=0)

    topic, handler = world.topic(), Handler(world, held=True, end=end)
    async with serving(world.ahead, topic, handler) as client:
        for payload in (b"ack", b"nack", b"reject", b"cancel"):
            await client.schedule_batch([NewTimer(topic=topic, payload=payload, delay=0) for _ in range(5)])
        await handler.has(20)
        for delivery in handler.started:
            if delivery.payload == b"cancel":
                await client.cancel(topic, delivery.timer_id)
        assert len(world.ids(topic)) == 15
        handler.gate.set()
        await until(lambda: not world.ids(topic), "all have ended")
        await until(lambda: world.client.hlen(f"timers_leases:{topic}") == 0, "no record is left")


async def test_what_other_writers_leave_behind_is_repaired(world: World) -> None:
    """A foreign publisher dies after the first of its two writes. A foreign worker commits a timer that a
    relay holds, and knows nothing of the lease record. The relay removes the payload and the record that have
    no timer, counts them and says so in its log. The timer beside them stays."""
    topic, handler = world.topic(), Handler(world, held=True)
    async with serving(world.ahead, topic, handler), RelayClient(world.behind.target) as producer:
        await producer.schedule(topic, b"", delay=3600, timer_id="kept")
        await producer.schedule(topic, b"", delay=0, timer_id="taken")
        await until(lambda: world.received(topic) == 1, "Redis knows that its handler has started")
        with world.client.pipeline(transaction=True) as worker:  # the janitor comes every half second
            worker.zrem(f"timers_timeline:{topic}", "taken")
            worker.hdel(f"timers_payloads:{topic}", "taken")
            worker.execute()
        world.client.hset(f"timers_payloads:{topic}", "half-published", b"")
        await until(lambda: world.counted("relay_timers_repaired_total", topic) == 2, "both are removed")
        assert world.ids(topic) == {"kept"}
        assert world.client.hlen(f"timers_leases:{topic}") == 0
        lines = await until(lambda: world.logged("without a timer removed", topic), "the log says so")
        assert sum(line["payloads"] for line in lines) == 1
        assert sum(line["leases"] for line in lines) == 1
