"""Promise 9, every instant: each nominal instant of a recurrence has one occurrence, or is counted under the
reason why it has none. What somebody triggers is a further run. An occurrence that dies stops nothing.

Each of these breaks was seen to fail here:
- A turn is written whatever has been written since it was read.
- A relay goes on from the present instead of from the recurrence's next instant.
- The occurrence that dies is the last one.
"""

from __future__ import annotations

from datetime import timedelta

from relay.client import Delivery, Reject, RelayClient
from relay.client.calls.recurrence_values import PastInstant
from tests.promises.world import World
from tests.worlds.waiting import until

SECOND = timedelta(seconds=1)


def assert_whole(history: list[PastInstant]) -> None:
    """Instants follow one another, each once, and none came early."""
    times = [past.time for past in history]
    assert times == [times[0] + n * SECOND for n in range(len(times))]
    assert all(bool(past.timer_id) != bool(past.left_out) for past in history)
    assert all(past.lateness >= timedelta() for past in history)


async def history(client: RelayClient, topic: str, name: str) -> list[PastInstant]:
    return list(await client.recurrences.history(topic, name))


async def test_two_relays_tick_whose_clocks_are_wrong(world: World) -> None:
    """An hour ahead and an hour behind: each instant comes once, and in its second."""
    topic = world.topic()
    async with RelayClient(world.ahead.target) as ahead, RelayClient(world.behind.target) as behind:
        for client in (ahead, behind):  # the same twice is one
            await client.recur("r", topic=topic, every=1, overlap="allow")
        await until(lambda: len(world.ids(topic)) >= 6, "both tick")
        for client in (ahead, behind):
            past = await history(client, topic, "r")
            assert len(past) >= 5
            assert_whole(past)
            assert {each.timer_id for each in past if each.timer_id} <= world.ids(topic)


async def test_occurrences_that_die(world: World) -> None:
    """Every one is rejected, and they go on coming."""
    topic = world.topic()
    rejected: list[str] = []
    worker = RelayClient(world.behind.target)

    @worker.on(topic)
    async def reject(delivery: Delivery) -> None:
        rejected.append(delivery.timer_id)
        raise Reject("never")

    async with RelayClient(world.ahead.target) as client:
        await client.recur("r", topic=topic, every=1)
        async with worker:
            await until(lambda: len(rejected) >= 4, "four have died")
        assert len(set(rejected)) == len(rejected)
        assert_whole(await history(client, topic, "r"))


async def test_instants_without_an_occurrence_are_counted(world: World) -> None:
    """The first one has not ended; then it is paused; then it is triggered, which is a further run."""
    topic = world.topic()
    async with RelayClient(world.ahead.target) as client:
        await client.recur("r", topic=topic, every=1)

        async def left_out(reason: str) -> bool:
            stands = await client.recurrences.get(topic, "r")
            return stands is not None and stands.left_out.get(reason, 0) >= 2

        await until(lambda: left_out("overlap"), "two are left out")
        assert len(world.ids(topic)) == 1
        await client.recurrences.pause(topic, "r", "too much")
        await until(lambda: left_out("paused"), "two are left out")
        await client.cancel(topic, next(iter(world.ids(topic))))
        name = await client.recurrences.trigger(topic, "r")
        assert name.endswith("~2")
        assert world.ids(topic) == {name}
        nominal = [past for past in await history(client, topic, "r") if not past.timer_id.endswith("~2")]
        assert_whole(nominal)
