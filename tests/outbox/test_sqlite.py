"""What differs in SQLite: one writer at a time, no types, ids that would come again."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from relay import inbox
from relay.client import Delivery
from relay.outbox import cancel, schedule
from relay.outbox.handing_over import HandedOver
from relay.outbox.ports import DatabaseAway
from relay.outbox.sqlite.database import SqliteOutbox
from tests.outbox.desk import ON_SQLITE, FileDesk
from tests.outbox.test_inbox import deliveries
from tests.worlds.relay.processes import environment
from tests.worlds.waiting import PATIENCE, until

pytestmark = ON_SQLITE

LEASE = timedelta(seconds=60)


async def watched(desk: FileDesk, seen: Callable[[str], object]) -> SqliteOutbox:
    """An outbox whose statements are shown as they begin, in the thread that runs them."""
    outbox = SqliteOutbox(f"/{desk.path}")
    await outbox._thread.run(lambda connection: connection.set_trace_callback(seen))
    return outbox


async def test_an_id_never_comes_again(desk: FileDesk) -> None:
    """A mover stands between the relay's OK and the deletion of its row, and another one has deleted it. The
    next row has another id, so the first mover does not delete that."""
    desk.write(desk.new("a"))
    (row,) = desk.rows()
    async with desk.outbox() as first:
        holder = uuid4()
        lanes = await first.take(holder=holder, lease=LEASE, most=64)
        assert [each.id for each in await first.read(lanes, rows=9, size=9)] == [row["id"]]
        desk.connection.execute("DELETE FROM relay_outbox")
        desk.write(desk.new("b"))
        await first.settle(HandedOver([row["id"]], []), holder=holder, lanes=lanes)
    assert [each["timer_id"] for each in desk.rows()] == ["b"]


async def test_lanes_are_looked_at_and_held_with_the_lock(desk: FileDesk) -> None:
    """Between the look and the hold nobody commits. A transaction that begins without the lock would be
    refused then: what it has read is no more."""
    refused: list[str] = []

    def seen(statement: str) -> None:
        if statement.startswith("UPDATE relay_outbox_lanes"):
            other = sqlite3.connect(desk.path, timeout=0)
            try:
                schedule(other, desk.new("late"))
                other.commit()
            except sqlite3.OperationalError as error:
                refused.append(str(error))
            other.close()

    desk.write(desk.new("a"))
    outbox = await watched(desk, seen)
    assert len(await outbox.take(holder=uuid4(), lease=LEASE, most=64)) == 1
    await outbox.close()
    assert refused == ["database is locked"]


async def test_two_movers_take_other_lanes(desk: FileDesk) -> None:
    """The second looks for lanes while the first one is about to hold some, and waits for its lock. It sees
    then which are held."""
    waits, goes_on = threading.Event(), threading.Event()

    def of_the_first(statement: str) -> None:
        if statement.startswith("UPDATE relay_outbox_lanes"):
            assert goes_on.wait(PATIENCE)

    def of_the_second(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            waits.set()

    desk.write(*(desk.new(f"t{n}") for n in range(10)))
    first, second = await watched(desk, of_the_first), await watched(desk, of_the_second)
    one = asyncio.create_task(first.take(holder=uuid4(), lease=LEASE, most=4))
    await until(lambda: is_locked(desk))
    two = asyncio.create_task(second.take(holder=uuid4(), lease=LEASE, most=4))
    await until(waits.is_set)
    goes_on.set()
    lanes = [*await one, *await two]
    assert len(lanes) == len(set(lanes)) == 8
    await first.close()
    await second.close()


def is_locked(desk: FileDesk) -> bool:
    other = sqlite3.connect(desk.path, timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        other.close()
    return False


async def test_a_lock_is_waited_for_beside_the_loop(desk: FileDesk) -> None:
    """The loop, which has other movers and calls to relays, lets the application go on that has the lock. An
    idle mover needs none, and one that waits for too long says so."""
    desk.write(desk.new("a"))
    outbox = await watched(desk, lambda statement: waits.set() if statement == "BEGIN IMMEDIATE" else None)
    waits = threading.Event()
    desk.connection.execute("BEGIN IMMEDIATE")
    settling = asyncio.create_task(outbox.settle(HandedOver([1], []), holder=uuid4(), lanes=[]))
    await until(waits.is_set)
    assert not settling.done()
    desk.connection.execute("COMMIT")
    await settling
    assert desk.rows() == []
    desk.connection.execute("BEGIN IMMEDIATE")
    assert await outbox.take(holder=uuid4(), lease=LEASE, most=4) == []
    desk.write(desk.new("b"))
    desk.connection.execute("COMMIT")
    desk.connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseAway, match="database is locked"):
        await outbox.take(holder=uuid4(), lease=LEASE, most=4)
    desk.connection.execute("ROLLBACK")
    await outbox.close()


def is_first(desk: FileDesk, delivery: Delivery, begin: str, waits: threading.Event) -> bool:
    """By a transaction of its own, which says when it comes to the lock."""

    def seen(statement: str) -> None:
        if statement.startswith(("BEGIN IMMEDIATE", "INSERT")):
            waits.set()

    connection = sqlite3.connect(desk.path, timeout=PATIENCE, isolation_level=None)
    connection.set_trace_callback(seen)
    connection.execute(begin)
    found = inbox.is_first(connection, delivery)
    connection.execute("COMMIT")
    connection.close()
    return found


async def test_who_waits_no_more_leaves_no_thread(desk: FileDesk) -> None:
    """A caller that is cancelled while it waits for commits ends the look in the thread, too."""
    async with desk.outbox() as outbox:
        await outbox.changed()
        waiting = asyncio.create_task(outbox.changed())
        await until(lambda: any(each.name.startswith("relay-outbox") for each in threading.enumerate()))
        desk.write(desk.new("a"))
        await waiting
        waiting = asyncio.create_task(outbox.changed())
        await asyncio.sleep(0)  # it has begun
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await outbox.status()).waiting == 1
    await until(lambda: not any(each.name.startswith("relay-outbox") for each in threading.enumerate()))


async def test_effects_of_two_deliveries_at_once(desk: FileDesk) -> None:
    """The second waits for the transaction of the first, if it has read nothing before or has begun with the
    lock. If it has read, SQLite refuses it at once, and its delivery comes again: nothing happens twice."""
    first, again, other = await deliveries()
    for commits, one, two, begin in ((True, first, again, "BEGIN IMMEDIATE"), (False, other, other, "BEGIN")):
        waits = threading.Event()
        desk.connection.execute("BEGIN IMMEDIATE")
        assert inbox.is_first(desk.connection, one)
        task = asyncio.create_task(asyncio.to_thread(is_first, desk, two, begin, waits))
        await until(waits.is_set)
        desk.connection.execute("COMMIT" if commits else "ROLLBACK")
        assert await task is not commits
    reader = sqlite3.connect(desk.path, timeout=PATIENCE, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM relay_outbox").fetchone()
    desk.write(desk.new("a"))
    with pytest.raises(sqlite3.OperationalError) as refused:
        inbox.is_first(reader, again)
    assert refused.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    reader.close()


async def test_what_the_checks_refuse(desk: FileDesk) -> None:
    """Other languages write rows, too, and a column takes any value where no check says otherwise."""
    for column, value in (
        ("due_time", "9e999"),
        ("due_time", "'2030-01-31'"),
        ("expire_time", "-1"),
        ("written_at", "9e999"),
        ("delay", "1e15"),
        ("delay", "'14 days'"),
        ("expire_after", "-1e15"),
        ("spread", "x'00'"),
        ("timer_id", "hex(zeroblob(600))"),
        ("timer_id", "x'61'"),
        ("topic", "NULL"),
        ("payload", "'{}'"),
        ("payload", f"zeroblob({(64 << 20) + 1})"),
        ("headers", f"hex(zeroblob({1 << 19})) || 'a'"),
        ("occurrence", "'a'"),
        ("occurrence", "CAST(CAST(hex(zeroblob(16)) AS BLOB) || x'00' AS TEXT)"),
        ("again_at", "'later'"),
        ("refused_at", "'yesterday'"),
        ("reason", "x'00'"),
        ("action", "'pause'"),
    ):
        columns = {"action": "'cancel'", "topic": "'a'", "timer_id": "'b'", column: value}
        names, values = ", ".join(columns), ", ".join(columns.values())
        with pytest.raises(sqlite3.IntegrityError, match="constraint failed"):
            desk.connection.execute(f"INSERT INTO relay_outbox ({names}) VALUES ({values})")
    assert desk.rows() == []


@pytest.mark.parametrize("form", ["{}-reminder", "reminder-of-order-{}", "{}", "{}/confirmation/2026"])
async def test_timers_of_all_kinds_of_ids_are_in_many_lanes(desk: FileDesk, form: str) -> None:
    """One lane would have one mover, and one call in vain would hold up all."""
    desk.write(*(desk.new(form.format(number)) for number in range(3_000, 3_640)))
    found = desk.connection.execute("SELECT count(*) FROM relay_outbox GROUP BY lane").fetchall()
    assert len(found) >= 32
    assert max(rows for (rows,) in found) < 2 * 640 / 32


async def test_what_no_mover_can_read(desk: FileDesk) -> None:
    """Checks can't see it. It is refused with the reason, later rows of its timer wait, and no others."""
    for number, (column, value) in enumerate(
        (
            ("headers", "'{'"),
            ("headers", "'[]'"),
            ("headers", "'{\"a\": 1}'"),
            ("headers", '\'{"a": "\\ud800"}\''),
            ("headers", '\'{"\\udc80": "a"}\''),
            ("headers", "replace(hex(zeroblob(3000)), '0', '[')"),
            ("content_type", "CAST(x'ff' AS TEXT)"),
            ("timer_id", "CAST(x'62ff' AS TEXT)"),
        )
    ):
        columns = {
            "action": "'schedule'",
            "topic": f"'{desk.topic}'",
            "timer_id": f"'t{number}'",
            "delay": "60",
        }
        columns[column] = value
        row = f"INSERT INTO relay_outbox ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
        desk.connection.execute(row)
    cancel(desk.connection, desk.topic, "t0")
    desk.write(desk.new("good"))
    async with desk.client() as client, desk.outbox() as outbox:
        done = await desk.drained(desk.mover(client))
        assert (len(done.taken), len(done.not_taken), done.failure) == (1, 8, None)
        refused = await outbox.refused(10)
        assert [each.timer_id for each in refused] == [*(f"t{n}" for n in range(7)), "b\ufffd"]
        whys = {each.reason.removeprefix("INVALID_ARGUMENT: ") for each in refused}
        assert whys == {
            "headers: are not a JSON object whose values are texts",
            "content_type: is not UTF-8",
            "timer_id: is not UTF-8",
        }
        assert (await outbox.status()).blocked == 1
        assert await outbox.retry([refused[0].id, refused[0].id]) == 1
        assert await outbox.drop(None) == 7
    assert desk.timers().keys() == {"good"}


DJANGO = """
import sys
sys.modules["psycopg"] = None  # SQLite needs none
import asyncio
from types import SimpleNamespace
import django
from django.conf import settings
path = sys.argv[1]
of_file = {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
settings.configure(DATABASES={"default": of_file})
django.setup()
from django.db import connection, transaction
from relay import inbox, outbox
from relay.client import NewTimer
from relay.outbox import running
from relay.outbox.databases import database_at

def place(name, fails):
    with transaction.atomic(), connection.cursor() as cursor:
        odd = {"payload": b"\\x00%s", "headers": {"k": "50 %"}}
        assert outbox.schedule(cursor, NewTimer(topic="t", timer_id=name, delay=3600, **odd)) == 1
        others = [NewTimer(topic="t", timer_id=f"{name}-{n}", payload=b"", delay=60) for n in (1, 2)]
        outbox.schedule_batch(cursor, others)
        outbox.cancel(cursor, "t", f"{name}-2")
        print(inbox.is_first(cursor, SimpleNamespace(occurrence_id="one")))
        if fails:
            raise ValueError

for _ in range(2):
    with connection.cursor() as cursor:
        outbox.create(cursor)
try:
    place("b", True)
except ValueError:
    pass
place("a", False)
place("c", False)
print(asyncio.run(database_at(f"sqlite:///{path}").status()).waiting)
"""


@pytest.mark.slow
def test_djangos_orm(desk: FileDesk, tmp_path: Path) -> None:
    """In a transaction of its, which creates the tables as well; psycopg is not there."""
    path = tmp_path / "django.db"
    ran = [sys.executable, "-c", DJANGO, str(path)]
    done = subprocess.run(ran, env=environment({}), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "False", "8"]
    with closing(sqlite3.connect(path)) as connection:
        found = FileDesk(f"sqlite:///{path}", connection, desk.stage).rows()
    rows = [(row["action"], row["timer_id"], row["payload"], row["headers"]) for row in found]
    assert rows[0] == ("schedule", "a", b"\x00%s", {"k": "50 %"})
    assert [row[:2] for row in rows[1:4]] == [("schedule", "a-1"), ("schedule", "a-2"), ("cancel", "a-2")]
