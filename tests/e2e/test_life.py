"""A timer's life, over TCP and over a Unix socket, through the API and through the command line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from tests.worlds.relay.processes import command
from tests.worlds.relay.producer import Producer
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_schedule_deliver_commit(stage: Stage, transport: str) -> None:
    """What is scheduled is delivered once, not before its due time, and then gone.

    It comes long before a relay that overslept would look again.
    """
    socket = stage.directory / "relay.sock"
    listen = f"unix:{socket}" if transport == "unix" else None
    relay = stage.relay(listen=listen, settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "600"})
    if transport == "unix":
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    for number in range(50):
        producer.schedule(TOPIC, f"t{number}", b"x", delay=0.1 + number / 50)
    eventually(lambda: len(stage.journal.ended()) == 50, "all are handled")
    stage.wait_empty(TOPIC)
    starts = stage.journal.events("start")
    late = sorted(event.late for event in starts)
    assert len(starts) == 50
    assert all(event.attempt == 1 and not event.approximate for event in starts)
    assert late[0] >= 0, "a timer was early"
    print(f"median lateness {late[25] * 1e3:.1f} ms")
    assert relay.terminate() == 0
    assert not socket.exists()


def test_socket_mode(stage: Stage) -> None:
    """The mode of the Unix socket is what the settings say."""
    socket = stage.directory / "relay.sock"
    stage.relay(listen=f"unix:{socket}", settings={"RELAY_GRPC__SOCKET_MODE": "0600"})
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


def test_every_outcome(stage: Stage) -> None:
    """ACK, NACK with and without a pause, REJECT, EXTEND, and a handler that schedules its own id."""
    extending = {"three": 3.0, "thirty": 30.0}  # topics, and their delivery_timeout in seconds
    limits = {f"RELAY_TOPICS__{name}__DELIVERY_TIMEOUT": f"{extending[name]}" for name in extending}
    limits |= {f"RELAY_TOPICS__{name}__LEASE_TTL": f"{extending[name]}" for name in extending}
    relay = stage.relay(settings=limits)
    stage.application(relay, [TOPIC, *extending])
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "ack")
    producer.schedule(TOPIC, "nack", {"nack_until": 3, "retry_after": 0.1})
    producer.schedule(TOPIC, "nack without pause", {"nack_until": 2})
    producer.schedule(TOPIC, "reject", {"reject": True})
    producer.schedule(TOPIC, "again", {"again": 0.2})
    stage.wait_empty(TOPIC, dead=1)
    attempts = {
        name: [event.attempt for event in stage.journal.starts(name)]
        for name in ("ack", "nack", "nack without pause", "reject", "again")
    }
    assert attempts == {
        "ack": [1],
        "nack": [1, 2, 3],
        "nack without pause": [1, 2],
        "reject": [1],
        "again": [1, 1],
    }
    occurrences = {
        name: len({event.occurrence for event in stage.journal.starts(name)}) for name in ("nack", "again")
    }
    assert occurrences == {"nack": 1, "again": 2}
    assert relay.said("timer rejected by its application") == 1
    assert any(outlives(stage, producer, topic, extending[topic]) for topic in extending)


def outlives(stage: Stage, producer: Producer, topic: str, delivery_timeout: float) -> bool:
    """Whether a handler that says EXTEND ten times in the topic's delivery_timeout (seconds) may work for
    longer than that; a busy machine may say it too late where that is short."""
    producer.schedule(topic, topic, {"sleep": 2.2 * delivery_timeout, "extend": 0.1 * delivery_timeout})
    stage.wait_empty(topic, 200.0)
    return [event.attempt for event in stage.journal.starts(topic)] == [1]


def test_reschedule_and_cancel_in_flight(stage: Stage) -> None:
    """While a handler works, a new due time wins over its ACK, and a cancelled timer stays cancelled."""
    relay = stage.relay()
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    gate = stage.gate()
    producer.schedule(TOPIC, "moved", {"gate": str(gate)})
    producer.schedule(TOPIC, "cancelled", {"gate": str(gate)})
    eventually(lambda: len(stage.journal.events("start")) == 2, "both are in flight")
    producer.schedule(TOPIC, "moved", b"new", delay=1.0)
    assert producer.cancel(TOPIC, "cancelled")
    gate.touch()
    eventually(lambda: stage.journal.ended()["moved"] == 2, "the new time has come")
    stage.wait_empty(TOPIC)
    assert [event.attempt for event in stage.journal.starts("moved")] == [1, 1]
    assert stage.journal.ended()["cancelled"] == 1


def test_what_is_lost_gives_its_place_back(stage: Stage) -> None:
    """A handler whose delivery is lost while it works has the stream's only place until its end, not longer.

    This has a race: the relay finds the lease lost before the outcome comes, and says so. A client that then
    leaves the outcome out takes up the place until the lease would have run out.
    """
    relay = stage.relay(settings={"RELAY_DEFAULTS__LEASE_TTL": "300"})
    stage.application(relay, TOPIC, "--concurrency", "1", "--prefetch", "0")
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "moved", {"sleep": 3_600, "extend": 0.02})
    eventually(lambda: stage.journal.starts("moved"), "it is at work")
    producer.schedule(TOPIC, "moved")  # which its next EXTEND meets
    eventually(lambda: len(stage.journal.starts("moved")) == 2, "there is a place for it")
    stage.wait_empty(TOPIC)


def test_command_line(stage: Stage) -> None:
    """`schedule`, `get`, `list`, `cancel` and `healthcheck` against a real daemon, with their exit codes."""
    relay = stage.relay()
    target = ("--target", relay.target)
    as_json = (*target, "--json")

    assert command("healthcheck", *target).out == "SERVING\n"
    made = command("schedule", TOPIC, "--id", "a", "--in", "1h", "--payload", "é", "-H", "k=v", *as_json)
    assert made.code == 0, made.err
    (timer,) = made.documents
    assert (timer["timer_id"], timer["state"], timer["replaced"]) == ("a", "pending", False)
    again = command("schedule", TOPIC, "--id", "a", "--at", "2030-01-31T09:00:00Z", *as_json)
    assert again.documents[0]["replaced"] is True
    assert again.documents[0]["due_time"] == "2030-01-31T09:00:00.000000Z"
    assert (
        command("schedule", TOPIC, "--id", "b", "--in", "1h", "--payload", "é", "-H", "k=v", *target).code
        == 0
    )

    (got,) = command("get", TOPIC, "b", *as_json).documents
    assert (got["payload"], got["headers"], got["attempts"]) == ("é", {"k": "v"}, 0)
    listed = command("list", TOPIC, *as_json)
    assert [line["timer_id"] for line in listed.documents] == ["b", "a"]

    assert command("cancel", TOPIC, "a", *target).code == 0
    assert command("cancel", TOPIC, "a", *target).code == 3
    missing = command("get", TOPIC, "a", *target)
    assert (missing.code, missing.out) == (3, "")
    assert "a" in missing.err
    wrong = command("schedule", "to{pic", "--in", "1s", *target)
    assert wrong.code == 2
    assert "topic" in wrong.err
    assert command("cancel", TOPIC, "b", *target).code == 0
    stage.wait_empty(TOPIC)

    assert relay.terminate() == 0
    assert command("healthcheck", *target, "--timeout", "0.5").code == 1
    gone = command("get", TOPIC, "a", *target, "--timeout", "0.5")
    assert gone.code == 4, gone


def test_config_command(tmp_path: Path) -> None:
    """`relay config` shows file and environment as the daemon would see them, passwords masked."""
    file = tmp_path / "relay.yaml"
    file.write_text("redis: {url: 'redis://:secret@127.0.0.1:6379/0'}\ntopics: {orders: {lease_ttl: 5}}\n")
    shown = command("config", "--config", str(file), settings={"RELAY_DRAIN_TIMEOUT": "7"})
    assert shown.code == 0, shown.err
    tree = yaml.safe_load(shown.out)
    assert (tree["drain_timeout"], tree["topics"]["orders"]["lease_ttl"]) == (7, 5)
    assert "secret" not in shown.out
