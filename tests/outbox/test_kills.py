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
from tests.outbox.desk import Desk
from tests.postgres import Postgres
from tests.worlds.relay.processes import Process, Relay
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import eventually

ROUNDS = chaos.count(1, 29)
"""The number of times that each place of the application, the mover and the handler is met, and that each
server is killed: 14 kills a round, so 29 rounds make 406. A round kills a server at one of three places."""

CROWD = chaos.count(30, 3_450)
"""The number of orders that each round begins with, in one transaction: 29 rounds have 100,050."""

ON_DISK = {"appendonly": "yes", "appendfsync": "always"}
WRITER = ("order written", "row written", "committed")
MOVER = ("lanes taken", "rows read", "handed over", "settling", "settled")
HANDLER = ("first", "effect written", "effect committed")
SERVERS = ("relay", "postgres", "redis")


class Shop:
    """An application with its database, and the processes that work for it."""

    def __init__(self, stage: Stage, desk: Desk, server: Postgres) -> None:
        self.stage, self.desk, self.server = stage, desk, server
        self.relay: Relay = stage.relay()
        self.kills = 0
        self._numbers = itertools.count()
        self._seed = random.Random(chaos.seed(7))
        desk.connection.execute("CREATE TABLE orders (id bigserial PRIMARY KEY)")
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
        with psycopg.connect(self.desk.database) as connection:
            made = connection.execute(
                "INSERT INTO orders SELECT FROM generate_series(1, %s) RETURNING id", [CROWD]
            )
            timers = [
                NewTimer(topic=self.desk.topic, timer_id=f"order-{each}", payload=b"", delay=0)
                for (each,) in made
            ]
            outbox.schedule_batch(connection, timers)

    def killed(self, role: str, place: str) -> None:
        """Kill a process as it stands at a place."""
        process, gate = self.work(role, place, self._seed.randrange(2))
        if role == "write":
            eventually(gate.exists, f"{role} stands: {place}")
        else:
            self.at_the_gate(gate)
        process.kill()
        self.kills += 1

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

    def effects(self) -> list[int]:
        return [each for (each,) in self.desk.connection.execute("SELECT order_id FROM effects")]

    def orders(self) -> list[int]:
        return [each for (each,) in self.desk.connection.execute("SELECT id FROM orders")]


@pytest.fixture
def shop(desk: Desk, server: Postgres) -> Iterator[Shop]:
    with staged(Stage) as stage:
        stage.redis(config=ON_DISK)
        connection = psycopg.connect(desk.database, autocommit=True)  # `shop` makes it again after a kill
        shop = Shop(stage, Desk(desk.database, connection, stage, desk.topic), server)
        yield shop
        shop.desk.connection.close()


@pytest.mark.slow
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
    shop.work("move")
    shop.work("handle")
    eventually(lambda: shop.desk.rows() == [], "all rows are moved")
    patience = 120 + ROUNDS * CROWD / 20  # seconds
    eventually(lambda: shop.committed("effects") >= shop.committed(), "each order has an effect", patience)
    shop.stage.wait_empty(shop.desk.topic)
    effects, orders = shop.effects(), shop.orders()
    assert sorted(effects) == sorted(orders), "each once, and none of an order that was rolled back"
    assert shop.kills == ROUNDS * (len(WRITER) + len(MOVER) + len(HANDLER) + len(SERVERS))
    last = shop.desk.connection.execute("SELECT last_value FROM orders_id_seq").fetchone()
    assert last is not None
    assert last[0] > len(orders), "some were rolled back"
