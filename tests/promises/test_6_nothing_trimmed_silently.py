"""Promise 6, nothing is trimmed silently: a cap has a setting that asks for it, a counter and a log line.

Each of these breaks of the janitor was seen to fail here:
- It counts nothing.
- It logs nothing.
- It trims topics that have no cap.
"""

from __future__ import annotations

from functools import partial

import pytest

from relay.client import Delivery, Reject, ResourceExhausted
from tests.promises.world import CAPPED, FULL, Handler, World, serving
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")


async def reject(_: Delivery) -> None:
    raise Reject("no such customer")


async def test_a_cap_of_dead_letters_is_counted_and_logged(world: World) -> None:
    """Five timers die in a topic that keeps 3 dead letters, and five in one without a cap. The relay removes
    two, the oldest of the first topic; it counts them and says so in its log. The other topic keeps all."""
    uncapped, handler = world.topic(), Handler(world, end=reject)
    async with serving(world.ahead, CAPPED, handler) as client, serving(world.ahead, uncapped, handler):
        for number in range(5):
            for topic in (uncapped, CAPPED):
                await client.schedule(topic, b"", delay=0, timer_id=f"{topic}-{number}")
                await handler.has([f"{topic}-{number}"])
        trimmed = partial(world.counted, "relay_dead_letters_trimmed_total", CAPPED)
        await until(lambda: trimmed() == 2, "two are removed, and counted")
        kept = [letter.timer_id async for letter in client.topics.dead_letters(CAPPED)]
        assert sorted(kept) == [f"{CAPPED}-{number}" for number in (2, 3, 4)]
        assert len([letter async for letter in client.topics.dead_letters(uncapped)]) == 5
    lines = await until(lambda: world.logged("dead letters removed", CAPPED), "the log says so")
    assert sum(line["count"] for line in lines) == 2
    assert all("dead_letters.max_count" in line["message"] for line in lines)
    assert world.counted("relay_dead_letters_trimmed_total", uncapped) == 0


async def test_a_full_topic_refuses_instead_of_dropping(world: World) -> None:
    """Where `max_waiting` bounds a topic, a further timer is refused, and all that were accepted stay."""
    topic, handler = FULL, Handler(world)
    async with serving(world.ahead, world.topic(), handler) as client:
        accepted = {(await client.schedule(topic, b"", delay=3600)).timer_id for _ in range(3)}
        with pytest.raises(ResourceExhausted, match="max_waiting"):
            await client.schedule(topic, b"", delay=3600)
        assert world.ids(topic) == accepted
