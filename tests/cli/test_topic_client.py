"""`relay.client.calls.topics`, the two doors that the command line's calls go through, against the double."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from relay.client.calls.channel import GrpcWire, SyncGrpcWire
from relay.client.calls.topics import DeadLetterFilter, RedriveResult, SyncTopics, Topics
from relay.client.errors import InvalidArgument
from tests.cli.double import NOW, Double

pytestmark = pytest.mark.usefixtures("one_try")

START = datetime.fromtimestamp(NOW, UTC)


@pytest.fixture
async def topics(double: Double) -> AsyncIterator[Topics]:
    wire = GrpcWire(double.target)
    yield Topics(lambda: wire, 60.0)
    await wire.close()


@pytest.fixture
def blocking(double: Double) -> Iterator[SyncTopics]:
    wire = SyncGrpcWire(double.target)
    yield SyncTopics(lambda: wire, 60.0)
    wire.close()


async def test_both_doors_say_the_same(double: Double, topics: Topics, blocking: SyncTopics) -> None:
    """Every call, by asyncio and in a thread: pages, filters, values."""
    ids = [double.topics.die("t", f"x{n}", payload=b"p", headers={"k": "v"}) for n in range(5)]
    double.topics.die("u", "y")
    assert [t.topic async for t in topics.list(page_size=1)] == [t.topic for t in blocking.list(page_size=1)]
    assert await topics.get("t") == blocking.get("t")
    wanted = DeadLetterFilter(
        died_since=START + timedelta(seconds=1), died_before=START + timedelta(seconds=3)
    )
    found = [letter async for letter in topics.dead_letters("t", wanted, page_size=2)]
    assert [letter.dead_id for letter in found] == ids[1:3]
    assert found == list(blocking.dead_letters("t", wanted, page_size=2))
    assert all(wanted(letter) for letter in found)
    letter = await topics.dead_letter("t", ids[0])
    assert letter is not None
    assert (letter.payload, letter.headers, letter.death_time) == (b"p", {"k": "v"}, START)
    assert letter == blocking.dead_letter("t", ids[0])
    assert await topics.dead_letter("t", "9-9") is blocking.dead_letter("t", "9-9") is None


async def test_pause_and_resume(topics: Topics, blocking: SyncTopics) -> None:
    paused = await topics.pause("t", duration=60)
    assert (paused.paused, paused.paused_until) == (True, START + timedelta(seconds=60))
    assert (await topics.resume("t")).paused is False
    assert blocking.pause("t", until=START).paused_until == START
    assert blocking.pause("u").paused_until is None
    assert blocking.resume("t").paused_until is None


async def test_reshard(double: Double, topics: Topics, blocking: SyncTopics) -> None:
    begun = await topics.reshard("t", 2, max_rate=5)
    assert (begun.partitions, begun.moving_to) == (1, 2)
    assert blocking.reshard("t", 2) == begun
    assert [call.max_rate for call in double.topics.asked("ReshardTopic")] == [5, 0]
    for partitions, max_rate, field in ((0, 0, "partitions"), (1025, 0, "partitions"), (2, -1, "max_rate")):
        with pytest.raises(InvalidArgument) as caught:
            await topics.reshard("t", partitions, max_rate=max_rate)
        assert caught.value.field == field


async def test_redrive_and_purge_in_calls_of_500(
    double: Double, topics: Topics, blocking: SyncTopics
) -> None:
    ids = [double.topics.die("t", f"x{n}") for n in range(1100)]
    double.topics.alive = {"x1"}
    results = await topics.redrive("t", ["9-9", *ids[:600]])
    assert results[:3] == [RedriveResult.NOT_FOUND, RedriveResult.REDRIVEN, RedriveResult.CONFLICT]
    assert set(results[3:]) == {RedriveResult.REDRIVEN}
    assert blocking.redrive("t", ids[600:601]) == [RedriveResult.REDRIVEN]
    assert await topics.purge("t", ids[601:]) == 499
    assert blocking.purge("t", ids) == 1
    assert [len(call.dead_ids) for call in double.topics.asked("RedriveDeadLetters")] == [500, 101, 1]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (DeadLetterFilter(died_since=datetime(2030, 1, 1)), "died_since"),  # noqa: DTZ001
        (DeadLetterFilter(reason="\ud800"), "reason"),
    ],
)
def test_what_is_plainly_wrong_is_refused_before_the_call(
    double: Double, blocking: SyncTopics, wanted: DeadLetterFilter, field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        list(blocking.dead_letters("t", wanted))
    assert caught.value.field == field
    with pytest.raises(InvalidArgument, match="topic"):
        blocking.get("")
    with pytest.raises(InvalidArgument, match="until and duration"):
        blocking.pause("t", until=START, duration=1)
    assert double.topics.calls == []
