"""Failure and time between real processes: poison, redrives, periodic timers through kills, pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Self

import grpc
import pytest

from relay.v1 import topic_service_pb2 as pb
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.chaos import count
from tests.worlds.relay.processes import CHANNEL, Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SEED = 31
QUICK: Mapping[str, str] = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "4",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0.05",
    "RELAY_DEFAULTS__RETRY__MAX": "0.2",
    "RELAY_DRAIN_TIMEOUT": "5",
}
SHORT = {**QUICK, "RELAY_DEFAULTS__LEASE_TTL": "1"}
"""Where a relay dies; elsewhere a busy machine might let leases run out."""


class Operator:
    """Somebody with a stub of `TopicService`."""

    def __init__(self, relay: Relay) -> None:
        self._channel = grpc.insecure_channel(relay.target, options=CHANNEL)
        self._stub: Any = TopicServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def dead(self) -> list[pb.DeadLetter]:
        page = self._stub.ListDeadLetters(pb.ListDeadLettersRequest(topic=TOPIC, page_size=500), timeout=60)
        return list(page.dead_letters)

    def redrive(self, *letters: pb.DeadLetter) -> list[int]:
        request = pb.RedriveDeadLettersRequest(topic=TOPIC, dead_ids=[each.dead_id for each in letters])
        return list(self._stub.RedriveDeadLetters(request, timeout=60).results)

    def purge(self) -> None:
        request = pb.PurgeDeadLettersRequest(topic=TOPIC, dead_ids=[each.dead_id for each in self.dead()])
        self._stub.PurgeDeadLetters(request, timeout=60)

    def pause(self) -> None:
        self._stub.PauseTopic(pb.PauseTopicRequest(topic=TOPIC), timeout=60)

    def resume(self) -> None:
        self._stub.ResumeTopic(pb.ResumeTopicRequest(topic=TOPIC), timeout=60)


def test_poison_dies_and_is_redriven(stage: Stage) -> None:
    """After exactly `max_attempts` received deliveries; redriven it begins at 1, and dies once more."""
    relay = stage.relay(settings=QUICK)
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "poison", {"nack_until": 99})
    with Operator(relay) as operator:
        (letter,) = eventually(operator.dead, "it dies")
        assert (letter.timer_id, letter.reason, letter.attempts) == ("poison", "attempts", 4)
        assert letter.last_error == "as asked"
        assert stage.attempts("poison") == [1, 2, 3, 4]
        assert stage.left(TOPIC) == (0, 0, 0)

        assert operator.redrive(letter) == [pb.REDRIVE_RESULT_REDRIVEN]
        (again,) = eventually(lambda: operator.dead(), "it dies again")
        assert again.dead_id != letter.dead_id
        assert stage.attempts("poison") == [1, 2, 3, 4] * 2
        assert len({event.occurrence for event in stage.journal.starts("poison")}) == 1
        operator.purge()
    stage.wait_empty(TOPIC)
    stage.judged(TOPIC, ["poison"])


def test_a_killer_dies_in_the_end(stage: Stage) -> None:
    """A handler that kills its process reaches the dead letters after `max_attempts` deaths, its neighbours
    don't, and it slows nobody down but its own topic."""
    relay, gate, others = stage.relay(settings=QUICK), stage.gate(), stage.gate("others")
    application = stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "killer", {"gate": str(gate), "die": "end"})
    neighbours = [f"t{n}" for n in range(50)]
    producer.schedule_many(TOPIC, neighbours, {"gate": str(others)})
    eventually(lambda: stage.received(TOPIC) == 51, "all are at work, and Redis knows it")
    with Operator(relay) as operator:
        for attempt in (1, 2, 3, 4):
            stage.let_kill(application, TOPIC, "killer", attempt, gate)
            others.touch()
            application.revive()

        def dead() -> list[pb.DeadLetter]:
            return operator.dead() if stage.left(TOPIC) == (0, 0, 0) else []

        (letter,) = eventually(dead, "it dies", 200.0)
        assert (letter.timer_id, letter.reason, letter.attempts) == ("killer", "attempts", 4)
        assert stage.attempts("killer") == [1, 2, 3, 4]
        assert stage.journal.ended().keys() == {"killer", *neighbours}
        operator.purge()


def test_a_relay_that_dies_with_the_last_attempt(stage: Stage) -> None:
    """Nobody settles it: the claim after it is what buries it, and nobody is handed a fifth attempt."""
    settings = {**SHORT, "RELAY_DEFAULTS__LEASE_TTL": "6", "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1"}
    relay = stage.relay(settings=settings)
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "held", {"hang": True})
    eventually(lambda: stage.journal.starts("held"), "it is being handled")
    eventually(lambda: stage.received(TOPIC) == 1, "its receipt is written")
    relay.kill()
    relay.start()
    with Operator(relay) as operator:
        (letter,) = eventually(operator.dead, "it is buried", 200.0)
        assert (letter.reason, letter.attempts) == ("attempts", 1)
        assert stage.attempts("held") == [1]
        operator.purge()


def test_periods_through_kills(stage: Stage) -> None:
    """Timers that reschedule themselves, while relays are killed at any moment: no period is lost, and each
    is an occurrence of its own."""
    chance = random.Random(SEED)
    relays = [stage.relay("one", SHORT), stage.relay("two", SHORT)]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"app-{relay.name}")
    names = [f"p{n}" for n in range(5)]
    producer, enough = stage.producer(relays[0]), stage.gate("enough")
    producer.schedule_many(TOPIC, names, {"every": 0.05, "sleep": 0.005, "until": str(enough)})
    for kill in range(count(6, 24)):
        before = len(stage.journal.events("end"))
        eventually(lambda: len(stage.journal.events("end")) > before + 30, "periods go by")  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.05))  # any moment will do
        victim = relays[kill % 2]
        victim.kill()
        victim.start()
    enough.touch()
    stage.wait_empty(TOPIC)
    periods: dict[str, dict[int, set[str]]] = {name: {} for name in names}
    for event in stage.journal.events("end"):
        periods[event.timer_id].setdefault(event.period, set()).add(event.occurrence)
    twice = len(stage.journal.events("end")) - sum(map(len, periods.values()))
    print(f"{twice} periods handled twice")
    for name in names:
        assert sorted(periods[name]) == list(range(len(periods[name]))), f"{name} lost a period"
        assert len(set().union(*periods[name].values())) == len(periods[name]), f"occurrences of {name}"
    stage.judged(TOPIC, names)


def test_a_pause_holds_for_every_relay(stage: Stage) -> None:
    """From its answer on nobody claims; soon after the end everybody does, however long they would sleep."""
    sleepy = {**QUICK, "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "600"}
    relays = [stage.relay("one", sleepy), stage.relay("two", sleepy)]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"app-{relay.name}")
    producer = stage.producer(relays[0])
    producer.schedule_many(TOPIC, [f"t{n}" for n in range(400)], {"sleep": 0.01}, spread=4.0)
    eventually(lambda: len(stage.journal.events("start")) > 50, "handlers run")
    with Operator(relays[1]) as operator:
        operator.pause()
        eventually(lambda: stage.leased(TOPIC) == 0, "what was in flight is done")
        # On a busy machine all of the others may have come by now.
        producer.schedule_many(TOPIC, [f"held-{n}" for n in range(20)])
        before = len(stage.journal.events("start"))
        always(lambda: len(stage.journal.events("start")) == before, "nothing is claimed", 1.0)
        operator.resume()
        eventually(lambda: len(stage.journal.events("start")) > before, "handlers run again")
    stage.wait_empty(TOPIC)
    assert set(stage.journal.ended().values()) == {1}
