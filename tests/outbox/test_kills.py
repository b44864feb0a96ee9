"""Everything is killed at every statement, and each order has its effect once.

The application, its mover and its handler are killed -9 at a gate between any two of their statements; the
relay, Postgres and Redis while the mover stands between two of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from relay import outbox
from relay.client import NewTimer
from tests import chaos
from tests.outbox import at_work
from tests.outbox.desk import ON_SQLITE, POSTGRES, SQLITE, Desk, FileDesk
from tests.postgres import Postgres
from tests.worlds.relay.processes import Process, Relay
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

ROUNDS = chaos.count(1, 29)
"""The number of times that each place of the application, the mover and the handler is met, and that each
server is killed: 14 kills a round, so 29 rounds make 406. A round kills a server at one of three places."""

CROWD = chaos.count(30, 3_450)
"""The number of orders that each round begins with, in one transaction: 29 rounds have 100,050."""

ORDERS = {
    POSTGRES: "CREATE TABLE orders (id bigserial PRIMARY KEY)",
    # The number of an order that is rolled back would come again.
    SQLITE: "CREATE TABLE orders (id integer NOT NULL UNIQUE DEFAULT (abs(random() % (1 << 53))))",
}
ON_DISK = {"appendonly": "yes", "appendfsync": "always"}
WRITER = ("order written", "row written", "committed")
MOVER = ("lanes taken", "rows read", "handed over", "settling", "settled")
HANDLER = ("first", "effect written", "effect committed")
SERVERS = ("relay", "postgres", "redis")


class Shop:
    """An application with its database, and the processes that work for it."""

    def __init__(self, stage: Stage, desk: Desk, server: Postgres | None = None) -> None:
        self.stage, self.desk, self.server = stage, desk, server
        self.relay: Relay = stage.relay()
        self.kills = 0
        self._numbers = itertools.count()
        self._seed = random.Random(chaos.seed(7))
        desk.connection.execute(ORDERS[desk.database.partition(":")[0]])
        desk.connection.execute("CREATE TABLE effects (order_id bigint)")

    def work(self, role: str, place: str = "", passes: int = 0) -> tuple[Process, Path]:
        """Start a process that stops at a place, and the gate at which it does."""
        name = f"{role}-{next(self._numbers)}"
        gate = self.stage.directory / f"{name}.gate"
        settings = {
            "RELAY_OUTBOX_DATABASE": self.desk.database, "RELAY_TARGET": self.relay.target,
            "RELAY_TEST_TOPIC": self.desk.topic, "RELAY_TEST_AT": place, "RELAY_TEST_PASSES": str(passes),
            "RELAY_TEST_GATE": str(gate),
        }  # fmt: skip
        return self.stage.process(name, "tests.outbox.at_work", role, settings=settings), gate

    def order(self) -> None:
        at_work.write(self.desk.database, self.desk.topic)

    def crowd(self) -> None:
        """Take many orders at once."""
        with at_work.connected(self.desk.database) as connection:
            insert = "INSERT INTO orders DEFAULT VALUES RETURNING id"
            made = [connection.execute(insert).fetchone() for _ in range(CROWD)]
            timers = [
                NewTimer(topic=self.desk.topic, timer_id=f"order-{each}", payload=b"", delay=0)
                for (each,) in made
            ]
            outbox.schedule_batch(connection, timers)

    def killed(self, role: str, place: str) -> None:
        """Kill a process as it stands at a place."""
        process, gate = self.work(role, place, self.passes(place))
        if role == "write":
            eventually(gate.exists, f"{role} stands: {place}")
        else:
            self.at_the_gate(gate)
        process.kill()
        self.kills += 1

    def passes(self, place: str) -> int:
        """How often a process passes its place before it stands there."""
        return self._seed.randrange(2)

    def at_the_gate(self, gate: Path) -> None:
        """Take orders until the process stands."""

        def stands() -> bool:
            if not gate.exists():
                self.order()
            return gate.exists()

        eventually(stands, f"{gate.name} is closed")

    def server_killed(self, which: str, place: str) -> None:
        """Kill a server while the mover stands at a place; the mover goes on when it is back."""
        mover, gate = self.work("move", place)
        self.at_the_gate(gate)
        if which == "relay":
            self.relay.kill()
            self.relay.start()
        elif which == "redis":
            self.stage.server.kill()
            self.stage.server.start()
        else:
            assert self.server is not None
            self.server.kill()
            self.server.start("-c", "fsync=off")
            self.desk.connection.close()
            self.desk.connection = psycopg.connect(self.desk.database, autocommit=True)
        self.kills += 1
        gate.unlink()
        before = self.committed()
        self.order()
        eventually(lambda: self.desk.rows() == [], f"the mover goes on: {mover.output()[-2000:]}")
        assert self.committed() > before
        mover.kill()

    def committed(self, table: str = "orders") -> int:
        """How many rows a table has."""
        found = self.desk.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])

    def finish(self) -> None:
        """Let all go on to the end: each order has had its effect once, and one that was rolled back none."""
        self.work("move")
        self.work("handle")
        eventually(lambda: self.desk.rows() == [], "all rows are moved")
        patience = 120 + ROUNDS * CROWD / 20  # seconds
        eventually(
            lambda: self.committed("effects") >= self.committed(), "each order has an effect", patience
        )
        self.stage.wait_empty(self.desk.topic)
        assert sorted(self.effects()) == sorted(self.orders())

    def effects(self) -> list[int]:
        return [each for (each,) in self.desk.connection.execute("SELECT order_id FROM effects")]

    def orders(self) -> list[int]:
        return [each for (each,) in self.desk.connection.execute("SELECT id FROM orders")]


class FileShop(Shop):
    """The same with a file of SQLite. A process may stand with the lock: nobody can take orders then."""

    def killed(self, role: str, place: str) -> None:
        for _ in range(2):
            self.order()
        super().killed(role, place)

    def passes(self, place: str) -> int:
        return super().passes(place) if place in {"settling", *HANDLER} else 0

    def at_the_gate(self, gate: Path) -> None:
        eventually(gate.exists, f"{gate.name} is closed")


@pytest.fixture
def shop(desk: Desk, server: Postgres) -> Iterator[Shop]:
    with staged(Stage) as stage:
        stage.redis(config=ON_DISK)
        connection = psycopg.connect(desk.database, autocommit=True)  # `shop` makes it again after a kill
        shop = Shop(stage, Desk(desk.database, connection, stage, desk.topic), server)
        yield shop
        shop.desk.connection.close()


@pytest.fixture
def small_shop(desk: FileDesk) -> Iterator[Shop]:
    with staged(Stage) as stage:
        stage.redis(config=ON_DISK)
        yield FileShop(stage, FileDesk(desk.database, desk.connection, stage, desk.topic))


@pytest.mark.timeout(chaos.count(600, 10_800))
def test_each_committed_order_has_one_effect(shop: Shop) -> None:
    """No committed order lacks its timer, none that was rolled back has one, and no effect happens twice."""
    for turn in range(ROUNDS):
        shop.crowd()
        for place in WRITER:
            shop.killed("write", place)
        for place in MOVER:
            shop.killed("move", place)
        mover, _ = shop.work("move")
        for place in HANDLER:
            shop.killed("handle", place)
        mover.kill()
        for number, which in enumerate(SERVERS):
            places = ("rows read", "handed over", "settling")
            shop.server_killed(which, places[(turn + number) % len(places)])
    shop.finish()
    assert shop.kills == ROUNDS * (len(WRITER) + len(MOVER) + len(HANDLER) + len(SERVERS))
    last = shop.desk.connection.execute("SELECT last_value FROM orders_id_seq").fetchone()
    assert last is not None
    assert last[0] > len(shop.orders()), "some were rolled back"


@ON_SQLITE
@pytest.mark.timeout(chaos.count(600, 10_800))
def test_each_order_of_a_file_has_one_effect(small_shop: Shop) -> None:
    """The same on SQLite. Away from `make chaos` each process is killed at its most delicate place."""
    short = ROUNDS == 1
    shop = small_shop
    for _ in range(ROUNDS):
        shop.crowd()
        for place in ["row written"] if short else WRITER:
            shop.killed("write", place)
        for place in ["handed over"] if short else MOVER:
            shop.killed("move", place)
        mover, _ = shop.work("move")
        for place in ["effect written"] if short else HANDLER:
            shop.killed("handle", place)
        mover.kill()
    shop.finish()
