"""What Relay's users rely on, on each of the cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from relay.client import FailedPrecondition, SyncRelayClient
from tests.matrix.cells import CELLS, SERVERS, WHOLE, Cell, Place, pairs, pairwise, running
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.producer import Producer
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import PATIENCE, eventually

pytestmark = pytest.mark.slow

HOUR = 3600.0
LEVELS = ("fsync", "replicas:1")


def test_all_pairs_are_there() -> None:
    """In at most twelve cells, whatever servers are installed."""
    assert len(pairwise()) == 3 * len(SERVERS) <= 12
    assert pairs(pairwise()) == pairs(WHOLE)
    assert len(set(pairwise())) == len(pairwise())


@pytest.fixture(scope="module", params=CELLS, ids=str)
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


@pytest.fixture(scope="module")
def place(cell: Cell) -> Iterator[Place]:
    with running(cell) as place:
        yield place


@pytest.fixture
def scene(place: Place) -> Iterator[Stage]:
    with staged(Stage) as stage:
        yield stage


@pytest.mark.usefixtures("one_try")
def test_the_contract(cell: Cell, place: Place, scene: Stage) -> None:
    """One relay and an application: what the doctor says, timers that come, are cancelled and are moved, a
    recurrence that ticks, what each level asked for gets, and lines that are cut."""
    doctored(cell, place)
    relay = scene.relay(url=place.url)
    scene.application(relay, ["orders", "ticks"])
    producer = scene.producer(relay)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        comes_and_goes(client, scene)
        ticks(client, scene)
        moves(client, producer, relay)
        for level in LEVELS:
            asked_for(client, cell, place, level)
        cut(place)
        again(client, scene)
        if cell.topology == "single" and cell.file != "off":
            place.masters[0].kill()
            place.masters[0].start()
            eventually(lambda: relay.health() == "SERVING", "the relay has found its server again")
            assert client.get("orders", "far-1") is not None, "the file has it"


def doctored(cell: Cell, place: Place) -> None:
    """Nothing is wrong, all commands are there, and the levels are those that are given below."""
    ran = command("doctor", "--json", settings={"RELAY_REDIS__URL": place.url})
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line for line in lines if line["result"] == "wrong"] == [], ran.out
    said = {line["check"]: line["message"] for line in lines}
    assert said["commands"] == "the server has all that Relay needs"
    can = said["durability"].partition(";")[0]
    assert ("fsync" in can) == cell.can_fsync, said
    assert ("replicas" in can) == bool(place.replicas), said
    assert ("neither AOF nor snapshots" in said["persistence"]) == (cell.file == "off"), said


def comes_and_goes(client: SyncRelayClient, scene: Stage) -> None:
    names = {f"now-{n}" for n in range(20)}
    for name in names:
        client.schedule("orders", b"{}", timer_id=name, delay=0.05)
    client.schedule("orders", b"{}", timer_id="never", delay=HOUR)
    assert client.cancel("orders", "never")
    assert client.get("orders", "never") is None
    eventually(lambda: names <= scene.journal.ended().keys(), "all have come")


def ticks(client: SyncRelayClient, scene: Stage) -> None:
    client.recur("clock", topic="ticks", every=1)

    def ran() -> int:
        return sum(name.startswith("clock@") for name in scene.journal.ended())

    eventually(lambda: ran() >= 2, "the recurrence ticks")
    client.recurrences.delete("ticks", "clock")


def moves(client: SyncRelayClient, producer: Producer, relay: Relay) -> None:
    for n in range(40):
        client.schedule("orders", b"{}", timer_id=f"far-{n}", delay=HOUR)
    producer.reshard("orders", 2)
    eventually(lambda: moved(relay) == (2, False), "the topic has two partitions")
    assert {info.timer_id for info in client.list("orders")} == {f"far-{n}" for n in range(40)}
    assert client.cancel("orders", "far-0")


def moved(relay: Relay) -> tuple[int, bool]:
    """How many partitions the topic has, and whether it moves; none where the command was out of time."""
    documents = command("stats", "orders", "--json", "--target", relay.target).documents
    topic = documents[0] if documents else {}
    return topic.get("partitions", 0), bool(topic.get("moving_to"))


def asked_for(client: SyncRelayClient, cell: Cell, place: Place, level: str) -> None:
    """It is reached, or refused with what to do; and what was refused is not stored."""
    given = cell.can_fsync if level == "fsync" else bool(place.replicas)
    options: dict[str, Any] = {"timer_id": f"level-{level}", "delay": HOUR, "durability": level}
    if given:
        assert client.schedule("orders", b"{}", **options).durability == level
        return
    with pytest.raises(FailedPrecondition) as refused:
        client.schedule("orders", b"{}", **options)
    if level != "fsync":
        wanted = "start replicas"
    elif cell.file == "off" and cell.server in ("valkey", "redis-8"):
        wanted = "set appendonly to yes"
    else:
        wanted = "needs the command WAITAOF"
    assert wanted in str(refused.value)
    assert client.get("orders", f"level-{level}") is None


def cut(place: Place) -> None:
    """End every connection of clients."""
    for master in place.masters:
        for kind in ("normal", "pubsub"):
            master.control.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def again(client: SyncRelayClient, scene: Stage) -> None:
    """Whoever is told UNAVAILABLE tries again, as the client does."""
    client.schedule("orders", b"{}", timer_id="afterwards", delay=0.05)
    eventually(lambda: "afterwards" in scene.journal.ended(), "it comes over a new connection")
