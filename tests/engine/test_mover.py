"""Who works on a move, how fast, and what happens where it can't go on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from relay.core.dispatch import Dispatch
from relay.core.errors import InvalidField, OtherLayout, StoreUnavailable
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.engine.upkeep.mover import PATIENCE, RETRY, Mover
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import FakeClock, settle

TOPIC = "t"


class Moves:
    """A `Moves` in the test's hand, and the `Layouts` of the relay that works on them."""

    def __init__(self) -> None:
        self.changed: list[Callable[[str], None]] = []
        self.there = Layout(TOPIC, 1, 2)
        self.progress = 0
        self.limit = 0
        self.works: list[Layout] = []
        self.batches: list[int] = []
        self.failures: list[Exception] = []
        self.unknown: list[Exception] = []
        """What is answered to those who ask for the progress."""
        self.gate = anyio.Event()
        self.gate.set()

    def known(self, topic: str) -> Layout | None:
        return self.there

    async def ask(self, topic: str) -> Layout:
        return self.there

    def becomes(self, layout: Layout) -> None:
        """Have the relay learn of another layout."""
        self.there = layout
        for changed in self.changed:
            changed(TOPIC)

    async def begin(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        self.limit = rate
        if partitions != self.there.count:
            self.becomes(Layout(topic, self.there.epoch + 1, self.there.count, partitions))
        return self.there

    async def rate(self, layout: Layout) -> int:
        return self.limit

    async def last(self, layout: Layout) -> str:
        if self.unknown:
            raise self.unknown.pop(0)
        return str(self.progress)

    async def run(self, layout: Layout, moved: Callable[[int], Awaitable[None]]) -> None:
        self.works.append(layout)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        for size in self.batches:
            await moved(size)
        self.becomes(Layout(TOPIC, layout.epoch + 1, layout.towards))


class House:
    """A mover at work."""

    def __init__(self) -> None:
        self.moves, self.clock, self.counts = Moves(), FakeClock(), Counts()
        self.policy = TopicPolicy()
        self.mover = Mover(
            self.moves, self.moves, lambda _: self.policy, self.clock, self.counts, lambda: 0.0
        )


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.mover.run)
        await settle()
        yield house
        tasks.cancel_scope.cancel()


async def test_a_relay_does_what_it_has_begun(house: House) -> None:
    """At once, until the topic is at rest; the moved timers are counted."""
    house.moves.batches = [500, 20]
    layout = await house.mover.begin(TOPIC, 4)
    assert layout == Layout(TOPIC, 2, 2, 4)
    await settle()
    assert house.moves.works == [layout]
    assert house.moves.there == Layout(TOPIC, 3, 4)
    assert house.counts.total["timers.moved"] == 520


async def test_a_number_that_is_there_is_no_work(house: House) -> None:
    assert await house.mover.begin(TOPIC, 2) == Layout(TOPIC, 1, 2)
    await settle()
    assert house.moves.works == []


@pytest.mark.parametrize(
    ("partitions", "policy", "problem"),
    [
        (3, TopicPolicy(), "must be a power of two from 1 to 1024, got 3"),
        (0, TopicPolicy(), "must be a power of two"),
        (2048, TopicPolicy(), "must be a power of two"),
        (4, TopicPolicy(dispatch=Dispatch.LIST), "a topic with dispatch list has one"),
    ],
)
async def test_what_can_t_be(house: House, partitions: int, policy: TopicPolicy, problem: str) -> None:
    """It is refused before anything begins."""
    house.policy = policy
    with pytest.raises(InvalidField, match=f"^partitions: .*{problem}"):
        await house.mover.begin(TOPIC, partitions)
    assert house.moves.there == Layout(TOPIC, 1, 2)


async def test_the_rate_holds(house: House) -> None:
    """Three batches of 100 at 50 a second take six seconds."""
    house.moves.batches = [100, 100, 100]
    await house.mover.begin(TOPIC, 4, rate=50)
    await settle()
    for count in (100, 200, 300):
        assert house.counts.total["timers.moved"] == count
        assert house.moves.there.towards == 4
        await house.clock.advance(2.0)
    assert house.moves.there == Layout(TOPIC, 3, 4)


async def test_another_relays_move_goes_on_by_itself(house: House) -> None:
    """A relay that sees progress keeps out of it, however long it takes."""
    layout = Layout(TOPIC, 2, 2, 4)
    house.moves.becomes(layout)
    for _ in range(5):
        await settle()
        house.moves.progress += 1
        await house.clock.advance(PATIENCE)
    assert house.moves.works == []
    await house.clock.advance(PATIENCE)
    assert house.moves.works == [layout]
    assert house.moves.there == Layout(TOPIC, 3, 4)


async def test_nodes_that_come_and_go_do_not_make_the_wait_longer(house: House) -> None:
    """Whether they are away as the relay looks for progress, or once it has taken the move up."""
    layout = Layout(TOPIC, 2, 2, 4)
    house.moves.becomes(layout)
    await settle()
    house.moves.unknown = [StoreUnavailable("gone")] * 2
    await house.clock.advance(PATIENCE)
    house.moves.failures = [StoreUnavailable("gone")] * 2
    await house.clock.advance(RETRY)
    assert house.moves.works == []
    await house.clock.advance(RETRY)
    assert house.moves.works == [layout]
    await house.clock.advance(2 * RETRY)
    assert house.moves.works == [layout] * 3
    assert house.moves.there == Layout(TOPIC, 3, 4)


async def test_a_node_that_is_away_as_progress_is_made(house: House) -> None:
    """The wait begins again with the progress that is seen then."""
    house.moves.becomes(Layout(TOPIC, 2, 2, 4))
    await settle()
    house.moves.unknown = [StoreUnavailable("gone")]
    house.moves.progress += 1
    await house.clock.advance(PATIENCE + RETRY)
    await house.clock.advance(PATIENCE - RETRY)
    assert house.moves.works == []
    await house.clock.advance(RETRY)
    assert len(house.moves.works) == 1


async def test_a_move_that_ends_meanwhile(house: House) -> None:
    """Nobody works on it; the next one is waited for in turn."""
    house.moves.becomes(Layout(TOPIC, 2, 2, 4))
    await settle()
    house.moves.becomes(Layout(TOPIC, 3, 4))
    await house.clock.advance(PATIENCE)
    assert house.moves.works == []
    layout = await house.mover.begin(TOPIC, 2)
    await settle()
    assert house.moves.works == [layout]


async def test_another_ends_what_this_one_works_on(house: House) -> None:
    """The store says so, and the mover stops."""
    house.moves.gate = anyio.Event()
    layout = await house.mover.begin(TOPIC, 4)
    await settle()
    house.moves.becomes(Layout(TOPIC, 3, 4))
    house.moves.failures = [OtherLayout("3 4")]
    house.moves.gate.set()
    await settle()
    assert house.moves.works == [layout]


@pytest.mark.parametrize("failure", [StoreUnavailable("gone"), RuntimeError("gone")])
async def test_what_fails_is_tried_again(
    house: House, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    """Each second, with one line in the log, whatever it is."""
    house.moves.failures = [failure, failure]
    with caplog.at_level(logging.WARNING):
        layout = await house.mover.begin(TOPIC, 4)
        for _ in range(3):
            await settle()
            await house.clock.advance(RETRY)
    assert house.moves.works == [layout] * 3
    assert house.moves.there == Layout(TOPIC, 3, 4)
    (record,) = caplog.records
    assert (vars(record)["topic"], vars(record)["reason"]) == (TOPIC, "gone")


async def test_a_refusal_that_says_nothing_new(house: House) -> None:
    """Redis has lost data, and has an older layout than the relay: the next try is a second later."""
    house.moves.failures = [OtherLayout("1 2"), OtherLayout("1 2")]
    layout = await house.mover.begin(TOPIC, 4)
    for tries in (1, 2, 3):
        await settle()
        assert house.moves.works == [layout] * tries
        await house.clock.advance(RETRY)
    assert house.moves.there == Layout(TOPIC, 3, 4)
