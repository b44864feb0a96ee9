"""What movers do to each other, and what is left of those that die: each race stands at a gate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest

from relay.client import RelayClient
from relay.outbox import cancel, handing_over, schedule
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.mover import OutboxMover
from relay.outbox.ports import LANES
from tests.ghosts.slow_line import SlowLine
from tests.outbox.desk import BOTH, HOUR, Desk
from tests.worlds.waiting import until


class Gated(OutboxMover):
    """It waits at gates, when it has read its rows, and when the relay has taken them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.before, self.behind = asyncio.Event(), asyncio.Event()
        self.rows: list[str] = []
        self.handed_over = False

    async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
        self.rows = [row.timer_id for row in rows]
        await self.before.wait()
        done = await super().hand_over(rows, deadline)
        self.handed_over = True
        await self.behind.wait()
        return done


@BOTH
async def test_rows_of_a_timer_are_never_on_their_way_in_two_movers(desk: Desk) -> None:
    """The first mover has read a Schedule and stands. The timer's Cancel waits for it, although its row is
    not locked; other timers don't. If the Cancel went ahead, the timer would stand in the end."""
    async with desk.client() as client:
        first = Gated(desk.database, client, call_time=60.0)
        second = desk.mover(client)
        desk.write(desk.new("a"))
        step = asyncio.create_task(first.step())
        await until(lambda: first.rows == ["a"])
        desk.cancel("a")
        desk.write(*(desk.new(f"b{n}") for n in range(5)))
        await desk.drained(second)
        left = {row["timer_id"] for row in desk.rows()}
        lane_of_a = {row["lane"] for row in desk.rows()}
        assert "a" in left
        assert len(lane_of_a) == 1, "only the lane that is held waits"
        first.before.set()
        first.behind.set()
        assert (await step).taken
        await desk.drained(second)
        await first.database.close()
        assert desk.rows() == []
        assert "a" not in desk.timers()
        assert len(desk.timers()) == 5


@BOTH
async def test_a_mover_that_lost_its_lane(desk: Desk) -> None:
    """It was stopped between the relay's OK and its own transaction for longer than the lane was held, and
    another has moved the row and the timer's next one, which was refused. It takes back nothing of that, nor
    the lane."""
    async with desk.client() as client:
        first = Gated(desk.database, client, call_time=0.3)
        desk.write(desk.new("a"))
        step = asyncio.create_task(first.step())
        first.before.set()
        await until(lambda: first.handed_over)
        second = Gated(desk.database, client, call_time=60.0)
        second.before.set()
        desk.write(desk.new("a", b"newer"))
        other: list[asyncio.Task[HandedOver]] = []

        async def has_taken_over() -> bool:
            if not other or other[-1].done():
                other.append(asyncio.create_task(second.step()))
            return second.handed_over

        await until(has_taken_over)
        holders = desk.held().keys()
        first.behind.set()
        await step
        assert desk.held().keys() == holders, "the lane is the second one's still"
        second.behind.set()
        await other[-1]
        assert desk.rows() == []
        assert desk.timers()["a"].endswith(b"newer")
        for mover in (first, second):
            await mover.database.close()


@pytest.mark.slow
@BOTH
async def test_a_call_of_a_dead_mover_comes_too_late(desk: Desk) -> None:
    """A mover dies while its Schedule hangs between its relay and Redis. Another one moves the row, and the
    Cancel behind it, only when that call can't act any more: so the timer stays cancelled."""
    with SlowLine(desk.stage.server.port) as line:
        slow = desk.stage.relay("slow", {"RELAY_REDIS__WRITE_TTL": "60"}, url=line.url)
        try:
            desk.write(desk.new("ghost"))
            async with RelayClient(slow.target) as doomed:
                first = desk.mover(doomed, call_time=2.0)
                line.hold("ghost")

                async def work() -> None:
                    while not line.holds:  # on a busy machine a call's time may be over before it is sent
                        await first.step()

                step = asyncio.create_task(work())
                await until(lambda: line.holds)
                step.cancel()  # as a kill does: nothing is settled, and its connections are cut
                await asyncio.gather(step, return_exceptions=True)
                await first.database.close()
            desk.cancel("ghost")
            async with desk.client() as client:
                second = desk.mover(client)

                async def moved() -> bool:
                    await second.step()
                    return desk.rows() == []

                await until(moved)
                await second.database.close()
                line.deliver()
                assert desk.timers() == {}
        finally:
            slow.kill()
            desk.stage._processes.remove(slow)


async def test_a_pause_that_ends_while_rows_are_read(desk: Desk) -> None:
    """A row is left alone as it is looked at, and its pause is over as the timer's next row is. If that went
    alone, a Cancel would come before its Schedule."""
    desk.write(desk.new("a"))
    desk.cancel("a")
    desk.connection.execute(
        "UPDATE relay_outbox SET again_at = now() + interval '90 minutes' WHERE action = 'schedule'"
    )
    desk.connection.execute("CREATE SEQUENCE looks")
    desk.connection.execute(  # between any two looks at this clock an hour passes
        "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
        "$$ SELECT pg_catalog.clock_timestamp() + nextval('looks') * interval '1 hour' $$"
    )
    own_clock = f"{desk.database}&options=-csearch_path%3Dpublic,pg_catalog"
    async with Desk(own_clock, desk.connection, desk.stage).outbox() as outbox:
        assert await outbox.read(range(LANES), rows=9, size=9) == []


async def test_no_call_begins_after_its_time(desk: Desk) -> None:
    """A mover is stopped by its machine behind the last look at the clock, for longer than it has its
    lanes."""
    begun: list[str] = []

    class Client(RelayClient):
        async def schedule_batch(self, *_: Any, **__: Any) -> Any:
            begun.append("schedule")

        async def cancel(self, *_: Any, **__: Any) -> Any:
            begun.append("cancel")

    class Stopped(list[OutboxRow]):
        """The mover stands while it makes timers of its rows."""

        def __iter__(self) -> Iterator[OutboxRow]:
            time.sleep(0.1)  # longer than the deadline below
            return super().__iter__()

    desk.write(desk.new("a"))
    async with Client(desk.relay.target) as client:
        mover = desk.mover(client)
        for _ in range(2):
            rows = await mover.database.read(range(LANES), rows=9, size=9)
            with patch.object(handing_over, "_waves", lambda rows: [Stopped(rows)]):
                done = await handing_over.hand_over(client, rows, monotonic() + 0.05)
            assert (begun, done.taken, done.is_open) == ([], [], True)
            desk.connection.execute("UPDATE relay_outbox SET action = 'cancel'")
        await mover.database.close()


@BOTH
async def test_a_step_that_gave_a_call_up_keeps_its_lane(desk: Desk) -> None:
    """The call may act until its own deadline."""

    class GivingUp(OutboxMover):
        async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
            return HandedOver([], [], is_open=True)

    async with desk.client() as client:
        desk.write(desk.new("a"))
        mover = GivingUp(desk.database, client)
        began = monotonic()
        await mover.step()
        await mover.database.close()
        assert (await desk.drained(desk.mover(client))).taken == []
        (left,) = desk.held().values()
        assert left + monotonic() - began > 8


@BOTH
async def test_many_movers_and_writers(desk: Desk) -> None:
    """Writers commit and roll back out of the order of their rows; each timer ends as its last transaction
    wants."""
    writers, timers, rounds = 3, 8, 12

    def write(number: int) -> None:
        with desk.connect() as connection:
            for turn in range(rounds):
                name = f"t{number}-{turn % timers}"
                schedule(connection, desk.new(name, b"%d" % turn, delay=HOUR))
                if turn % 3 == 0:
                    connection.rollback()
                    continue
                if turn % 3 == 1:
                    cancel(connection, desk.topic, name)
                connection.commit()

    async with desk.client() as client:
        movers = [desk.mover(client, poll=0.01, rows=3) for _ in range(3)]
        running = [asyncio.create_task(mover.run()) for mover in movers]
        await asyncio.gather(*(asyncio.to_thread(write, n) for n in range(writers)))
        await until(lambda: desk.rows() == [])
        for mover in movers:
            mover.stop()
        await asyncio.gather(*running)
    last: dict[str, bytes] = {}
    for number in range(writers):
        for turn in range(rounds):
            name = f"t{number}-{turn % timers}"
            if turn % 3 == 1:
                last.pop(name, None)
            elif turn % 3 == 2:
                last[name] = b"%d" % turn
    found = desk.timers()
    assert found.keys() == last.keys()
    assert all(found[name].endswith(payload) for name, payload in last.items())
