"""A mover hands rows to a relay: each once, in order, and what is refused holds up its own timer alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from relay.client import CallError, RelayClient
from relay.outbox import writing
from relay.outbox.handing_over import HandedOver
from relay.outbox.mover import OutboxMover
from relay.outbox.ports import DatabaseAway, OutboxMissing
from tests.outbox.desk import BOTH, HOUR, Desk
from tests.servers import free_port
from tests.worlds.waiting import until


@BOTH
async def test_rows_become_timers(desk: Desk) -> None:
    """Those that are scheduled, moved and cancelled; several of one timer come in order, in one step."""
    async with desk.client() as client:
        desk.write(*(desk.new(f"t{n}", b"%d" % n, headers={"n": str(n)}) for n in range(20)))
        desk.write(desk.new("t1", b"again"))
        writing.move(desk.connection, desk.new("t2", b"moved", delay=2 * HOUR))
        writing.move(desk.connection, desk.new("nobody", b""))
        desk.cancel("t3")
        desk.cancel("t4")
        desk.write(desk.new("t4", b"back"))
        assert desk.count() == 26
        done = await desk.drained(desk.mover(client))
        assert (len(done.taken), done.not_taken) == (26, [])
        assert desk.rows() == []
        timers = {timer.timer_id: timer async for timer in client.list(desk.topic)}
        assert timers.keys() == {f"t{n}" for n in range(20)} - {"t3"}
        found = {name: await client.get(desk.topic, name) for name in ("t0", "t1", "t2", "t4")}
        assert [(each.payload, dict(each.headers)) for each in found.values() if each] == [
            (b"0", {"n": "0"}), (b"again", {}), (b"moved", {}), (b"back", {}),
        ]  # fmt: skip


@BOTH
async def test_a_test_of_an_application_moves_all_at_once(desk: Desk) -> None:
    """All lanes are empty when it returns. What is refused stays, and a relay that is away is an error."""
    async with desk.client() as client:
        desk.write(*(desk.new(f"t{n}") for n in range(40)), desk.new("no", b"x" * ((1 << 20) + 1)))
        assert await desk.mover(client, rows=7).move_all() == 40
        assert [row["timer_id"] for row in desk.rows()] == ["no"]
        assert await desk.mover(client).move_all() == 0
    desk.write(desk.new("late"))
    async with RelayClient(f"127.0.0.1:{free_port()}") as nobody:
        with pytest.raises(CallError):
            await desk.mover(nobody, call_time=0.5).move_all()
    assert len(desk.rows()) == 2


@BOTH
async def test_a_delay_counts_from_the_row(desk: Desk) -> None:
    """What has passed of it while no mover was there is not waited for again."""
    desk.write(desk.new("a", delay=HOUR), desk.new("b", delay=60))
    desk.age(1800)
    async with desk.client() as client:
        before = desk.stage.client.time()[0]
        await desk.drained(desk.mover(client))
        a, b = await client.get(desk.topic, "a"), await client.get(desk.topic, "b")
    assert a is not None
    assert b is not None
    assert 1800 - 1 <= a.due_time.timestamp() - before <= 1800 + 60
    assert b.due_time.timestamp() - before <= 60


@BOTH
async def test_tables_without_their_lanes(desk: Desk) -> None:
    """As SQLAlchemy's `create_all` leaves them: rows are written, and no mover would ever find them."""
    desk.connection.execute("DELETE FROM relay_outbox_lanes")
    desk.write(desk.new("a"))
    async with desk.client() as client:
        mover = desk.mover(client)
        with pytest.raises(OutboxMissing, match="0 of 64 lanes; run relay outbox migrate"):
            await mover.step()
        await mover.database.close()
        await mover.database.migrate()
        await desk.drained(mover)
    assert desk.timers().keys() == {"a"}


def is_lost(mover: OutboxMover) -> OutboxMover:
    """Its connection is lost between the relay's OK and the deletion of its rows."""

    async def settle(*_: Any, **__: Any) -> None:
        await mover.database.close()
        raise DatabaseAway("gone")

    mover.database.settle = settle  # type: ignore[method-assign]  # of this mover alone
    return mover


@pytest.mark.slow
@BOTH
async def test_a_row_that_is_handed_over_twice_is_one_occurrence(desk: Desk) -> None:
    """Its delivery is under way when the second mover comes: it keeps its lease, and the handler is called
    once."""
    seen: list[str] = []
    gate = asyncio.Event()
    client = RelayClient(desk.relay.target)

    @client.on(desk.topic)
    async def handle(delivery: Any) -> None:
        seen.append(delivery.occurrence_id)
        await gate.wait()

    async with client:
        desk.write(desk.new("a", delay=0))
        (row,) = desk.rows()
        with pytest.raises(DatabaseAway, match="gone"):
            await is_lost(desk.mover(client, call_time=4.0)).step()  # time enough on a busy machine
        await until(lambda: seen)
        second = desk.mover(client)
        assert await second.step() == HandedOver([], [])  # the lane is held, until its time is over

        async def moved() -> bool:
            await second.step()
            return desk.rows() == []

        await until(moved, "the lane is free again")
        gate.set()
        await until(lambda: desk.timers() == {})
        await second.database.close()
    assert seen == [f"a/{row['occurrence'].hex}"]


@BOTH
async def test_what_is_refused_waits_for_somebody(desk: Desk) -> None:
    """It holds up the later rows of its timer and no others, says why, and goes on in order or is dropped."""
    desk.write(desk.new("bad", b"x" * ((1 << 20) + 1)), desk.new("good"), desk.new("bad", b"later"))
    by_hand = (
        f"INSERT INTO relay_outbox (action, topic, timer_id) VALUES ('schedule', '{desk.topic}', 'timeless')"
    )
    desk.connection.execute(by_hand)
    desk.write(desk.new("good", b"later"))
    async with desk.client() as client, desk.outbox() as outbox:
        done = await desk.drained(desk.mover(client))
        assert len(done.taken) == 2
        assert {row["timer_id"]: row["refused_at"] is not None for row in desk.rows()} == {
            "bad": False, "timeless": True,
        }  # fmt: skip
        first, second = await outbox.refused(10)
        assert (first.timer_id, second.timer_id) == ("bad", "timeless")
        assert "max_payload_bytes" in first.reason
        assert "due_time" in second.reason
        found = await outbox.status()
        assert (found.waiting, found.blocked, found.refused, found.lag) == (0, 1, 2, 0)
        assert desk.timers().keys() == {"good"}
        assert await outbox.retry([first.id]) == 1
        assert not (await desk.drained(desk.mover(client))).taken
        assert await outbox.drop(None) == 2
        assert len((await desk.drained(desk.mover(client))).taken) == 1
        assert desk.timers()["bad"].endswith(b"later")
    assert desk.rows() == []


async def test_a_topic_that_the_policy_does_not_give(desk: Desk, tmp_path: Path) -> None:
    """The relay refuses a call whose timers are all of this topic as a whole: each row is put aside."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"rules: [{{principals: [anonymous], topics: [{desk.topic}], verbs: [schedule, read]}}]\n"
    )
    relay = desk.stage.relay("strict", {"RELAY_POLICY_FILE": str(policy)})
    try:
        desk.write(*(desk.new(f"t{n}", topic="denied") for n in range(3)))
        async with RelayClient(relay.target) as client:
            done = await desk.drained(desk.mover(client))
            assert done.failure is None
            assert {"PERMISSION_DENIED" in row["reason"] for row in desk.rows()} == {True}
            async with desk.outbox() as outbox:
                assert (await outbox.status()).refused == 3
            desk.write(desk.new("a"), desk.new("b", topic="denied"))
            assert len((await desk.drained(desk.mover(client))).taken) == 1
    finally:
        relay.kill()
        desk.stage._processes.remove(relay)


@pytest.mark.slow
async def test_a_row_that_no_relay_takes_in_a_message(desk: Desk) -> None:
    """The relay refuses the whole call before it reads it: that holds up no other row, nor the mover."""
    desk.write(desk.new("a"), desk.new("large", b"x" * (17 << 20)), desk.new("b"))
    async with desk.client() as client:
        done = await desk.drained(desk.mover(client))
        assert (len(done.taken), done.failure) == (2, None)
    (left,) = desk.rows()
    assert (left["timer_id"], left["refused_at"]) == ("large", None)
    assert "larger than max" in left["reason"]
    assert desk.timers().keys() == {"a", "b"}


@BOTH
async def test_a_full_topic_is_tried_again_and_holds_up_no_other(desk: Desk) -> None:
    """Its row keeps the reason, and its later rows wait with it."""
    async with desk.client() as client:
        await client.schedule("full", b"", delay=HOUR, timer_id=f"{desk.topic}-first")
        desk.write(
            desk.new("second", topic="full"), desk.new("a"), desk.new("second", b"later", topic="full")
        )
        done = await desk.drained(desk.mover(client))
        assert (len(done.taken), len(done.not_taken)) == (1, 1)
        assert done.not_taken[0].pause == timedelta(seconds=5)
        first, later = desk.rows()
        assert (first["refused_at"], "RESOURCE_EXHAUSTED" in first["reason"], later["reason"]) == (
            None,
            True,
            None,
        )
        assert desk.timers().keys() == {"a"}
        await client.cancel("full", f"{desk.topic}-first")
        desk.end_pauses()
        assert len((await desk.drained(desk.mover(client))).taken) == 2
        await client.cancel("full", "second")


@BOTH
async def test_a_clock_that_is_set_back(desk: Desk) -> None:
    """Lanes that were given back are free though that was in an hour. Those that are held are not."""
    async with desk.client() as client, desk.outbox() as outbox:
        desk.write(desk.new("a"))
        await outbox.take(holder=uuid4(), lease=timedelta(hours=1), most=1)
        desk.connection.execute("UPDATE relay_outbox_lanes SET holder = NULL WHERE holder IS NOT NULL")
        assert len((await desk.drained(desk.mover(client))).taken) == 1
        desk.write(desk.new("a"))
        await outbox.take(holder=uuid4(), lease=timedelta(hours=1), most=1)
        assert (await desk.drained(desk.mover(client))).taken == []


@BOTH
async def test_a_step_is_bounded_by_bytes(desk: Desk) -> None:
    """A row that is larger than the bound goes alone."""
    desk.write(*(desk.new("same", b"x" * 700_000) for _ in range(4)))
    async with desk.client() as client:
        mover = desk.mover(client)
        assert [len((await mover.step()).taken) for _ in range(3)] == [2, 2, 0]
        await mover.database.close()


@BOTH
async def test_a_relay_that_is_away(desk: Desk) -> None:
    """Rows stay, lanes are given back, and the mover goes on as soon as a relay answers."""
    desk.write(desk.new("a"))
    async with RelayClient("127.0.0.1:1", timeout=1.0) as nobody:
        mover = desk.mover(nobody, call_time=0.5)
        done = await mover.step()
        await mover.database.close()
    assert done.failure is not None
    assert desk.count() == 1
    async with desk.client() as client:
        assert len((await desk.drained(desk.mover(client))).taken) == 1
