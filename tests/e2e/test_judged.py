"""Histories that the audit has to prove, and the command that does it, on real processes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from relay.core.audit import Promise
from relay.core.journal import RecordKind
from tests.e2e.peer import publish
from tests.judge import journal_of
from tests.worlds.relay.processes import Ran, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SEED = 17
UNHURRIED = {"RELAY_DEFAULTS__LEASE_TTL": "600"}
"""Nothing is renewed or lapses within a test."""


def audit(stage: Stage, *options: str) -> Ran:
    return command("audit", TOPIC, *options, settings={"RELAY_REDIS__URL": stage.server.url}, timeout=60.0)


def refused_leases(stage: Stage) -> set[tuple[str, bytes]]:
    """The timers and nonces of all leases that the journal tells a refusal of. One lease can have two: its
    receipt is refused where it is written after the change, and then its outcome."""
    refusals = (RecordKind.STALE, RecordKind.GONE)
    return {
        (record.timer_id, record.nonce)
        for batch in journal_of(stage.client, TOPIC)
        for record in batch.records
        if record.kind in refusals
    }


def test_moved_and_cancelled_while_delivered(stage: Stage) -> None:
    """Two relays deliver timers that somebody moves and cancels meanwhile: the newest intent stands, and each
    delivery that it overtook is refused, which the journal tells too."""
    chance = random.Random(SEED)
    relays = [stage.relay("one", UNHURRIED), stage.relay("two", UNHURRIED)]
    for relay in relays:
        options = ("--concurrency", "40", "--prefetch", "0")
        stage.application(relay, TOPIC, *options, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    names = [f"t{n}" for n in range(60)]
    moved = cancelled = overtaken = 0
    for round_ in range(4):
        gate = stage.gate(f"gate-{round_}")
        before = len(stage.journal.events("start"))
        producers[0].schedule_many(TOPIC, names, {"gate": str(gate)})
        eventually(lambda: len(stage.journal.events("start")) == before + 60, "all are delivered")  # noqa: B023
        for name in chance.sample(names, 40):
            overtaken += 1
            if chance.random() < 0.3:
                assert chance.choice(producers).cancel(TOPIC, name)
                cancelled += 1
            else:
                chance.choice(producers).schedule(TOPIC, name, delay=chance.choice((0.0, 0.2)))
                moved += 1
        gate.touch()
        stage.wait_empty(TOPIC)
    report = stage.judged(TOPIC, names)
    assert (report.kinds["CANCELLED"], report.kinds["REPLACED"]) == (cancelled, moved)
    assert len(refused_leases(stage)) == overtaken


def test_the_command(stage: Stage, tmp_path: Path) -> None:
    """From Redis and from the file that an export made, which is gone on with; exit 0, 1 and 2."""
    relay = stage.relay()
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, [f"t{n}" for n in range(100)], {"sleep": 0.001})
    stage.application(relay, TOPIC)
    stage.wait_empty(TOPIC)
    done = audit(stage, "--exclusive", "--at-rest")
    assert done.code == 0, done.out + done.err
    assert "proved" in done.out
    assert "lateness of 100 first deliveries" in done.out

    settings = {"RELAY_REDIS__URL": stage.server.url}
    file = tmp_path / "orders.journal"
    assert command("journal", "export", TOPIC, str(file), settings=settings).code == 0
    producer.schedule(TOPIC, "later", delay=3600.0)
    half = file.read_bytes()
    file.write_bytes(half[:-3])  # as if its writer had been killed
    assert audit(stage, "--file", str(file)).code == 2
    assert command("journal", "export", TOPIC, str(file), settings=settings).code == 0
    assert file.read_bytes().startswith(half)

    (told,) = audit(stage, "--file", str(file), "--json").documents
    assert told["verdict"] == "can't be said", "nobody was asked whether the last timer is there"
    assert told["oldest_open"][0]["timer_id"] == "later"
    (told,) = audit(stage, "--file", str(file), "--then-redis", "--json").documents
    assert told["verdict"] == "proved"
    assert (told["open"], told["counts"]["committed"]) == (1, 100)
    assert audit(stage, "--at-rest").code == 1

    stage.client.delete(*[f"timers_{part}:{TOPIC}" for part in ("timeline", "payloads")])  # a person's error
    lost = audit(stage, "--exclusive", "--json")
    assert lost.code == 1
    (promise,) = [each for each in lost.documents[0]["promises"] if each["verdict"] == "refuted"]
    assert (promise["promise"], promise["examples"][0]["timer_id"]) == (2, "later")
    stage.client.delete(f"timers_journal:{TOPIC}")
    assert audit(stage).code == 2, "an empty journal proves nothing"


def test_a_foreign_publisher(stage: Stage) -> None:
    """Its timers are found when they are claimed, and proved from there; that others write is told."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2"})
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule_many(TOPIC, [f"t{n}" for n in range(50)])
    publish(stage.server.url, TOPIC, [f"peer-{n}" for n in range(50)])
    eventually(lambda: len(stage.journal.ended()) == 100, "all are handled")
    stage.wait_empty(TOPIC)
    report = stage.judged(TOPIC, [f"t{n}" for n in range(50)], exclusive=False)
    assert report.counts["found"] == 50
    assert report.counts["committed"] == 100
    with pytest.raises(AssertionError, match="nobody scheduled it"):
        stage.judged(TOPIC, exclusive=True, doubted=[Promise.AT_LEAST_ONCE])
