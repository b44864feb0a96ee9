"""Push between real processes: a death on either side loses nothing, and attempts are as handlers counted."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping
from itertools import cycle
from typing import cast

import pytest

from relay.store.codec import lease_record
from tests.chaos import count
from tests.worlds.relay.processes import Application, Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
SEED = 23


def settings(stage: Stage, *, max_concurrent: int = 20, **more: str) -> Mapping[str, str]:
    """A relay's, for a topic that is pushed to the application's socket. No lease runs out, however busy the
    machine is: an application's death is seen at its connection."""
    return {
        "RELAY_TOPICS__orders__DELIVERY__MODE": "push",
        "RELAY_TOPICS__orders__DELIVERY__TARGET": socket(stage),
        "RELAY_TOPICS__orders__MAX_CONCURRENT": str(max_concurrent),
        "RELAY_DEFAULTS__LEASE_TTL": "300",
        "RELAY_DRAIN_TIMEOUT": "5",
        **more,
    }


def socket(stage: Stage) -> str:
    return f"unix:{stage.directory}/app.sock"


def pushed(stage: Stage, relay: Relay, *options: str) -> Application:
    return stage.application(relay, TOPIC, "--listen", socket(stage), *options)


BY_CALL = pytest.mark.parametrize(
    "options", [(), ("--one-by-one",)], ids=["DeliverBatch", "an application with Deliver only"]
)


@BY_CALL
def test_delivers(stage: Stage, options: tuple[str, ...]) -> None:
    """A pushed timer comes when it is due, with all that it carries, and is committed."""
    relay = stage.relay(settings=settings(stage, RELAY_DEFAULTS__MAX_POLLING_INTERVAL="600"))
    pushed(stage, relay, *options)
    stage.producer(relay).schedule(TOPIC, "one", {"sleep": 0.0}, delay=0.3)
    stage.wait_empty(TOPIC)
    (start,) = stage.journal.starts("one")
    assert start.attempt == 1
    assert start.late >= 0


def test_an_application_that_comes_late(stage: Stage) -> None:
    """Before it is there nothing is leased, and nothing counts."""
    relay = stage.relay(settings=settings(stage))
    stage.producer(relay).schedule_many(TOPIC, [f"t{n}" for n in range(50)])
    eventually(lambda: relay.said("the application can't be called"), "the relay says so")
    assert stage.left(TOPIC) == (50, 50, 0)
    pushed(stage, relay)
    stage.wait_empty(TOPIC)
    assert {event.attempt for event in stage.journal.events("start")} == {1}


@pytest.mark.slow
def test_a_killer_runs_up_attempts(stage: Stage) -> None:
    """A handler that kills its process counts an attempt each time.

    Once its receipt has come: a process that dies in the moment in which it sends one may take it along, and
    then nobody can tell that the handler had started.
    """
    relay = stage.relay(settings=settings(stage))
    application = pushed(stage, relay)
    gate = stage.gate()
    stage.producer(relay).schedule(TOPIC, "killer", {"gate": str(gate), "die": "end", "die_until": 4})
    for attempt in (1, 2, 3):
        stage.let_kill(application, TOPIC, "killer", attempt, gate)
        application.revive()
    gate.touch()
    stage.wait_empty(TOPIC)
    assert stage.attempts("killer") == [1, 2, 3, 4]


@BY_CALL
def test_a_death_under_many(stage: Stage, options: tuple[str, ...]) -> None:
    """Of ten timers that an application has when it is killed, three have started: those count an attempt."""
    relay = stage.relay(settings=settings(stage))
    application = pushed(stage, relay, "--concurrency", "3", *options)
    producer, gate = stage.producer(relay), stage.gate()
    producer.schedule(TOPIC, "first")  # which shows that a handler lives
    stage.wait_empty(TOPIC)
    names = [f"t{n}" for n in range(10)]
    producer.schedule_many(TOPIC, names, {"gate": str(gate)})
    eventually(lambda: stage.left(TOPIC) == (10, 10, 10), "the application has all of them")
    eventually(lambda: stage.received(TOPIC) == 3, "Redis knows which have started")

    def began() -> set[str]:
        """Those whose handlers have written that they started: they do so after the receipt."""
        return {name for name in names if stage.attempts(name)}

    eventually(lambda: len(began()) == 3, "and they have started")
    first = began()
    application.kill()
    gate.touch()
    application.revive()
    stage.wait_empty(TOPIC)
    assert {name: stage.attempts(name) for name in names} == {
        name: [1, 2] if name in first else [1] for name in names
    }


@pytest.mark.slow
def test_rolling_restarts(stage: Stage) -> None:
    """An application that is restarted in order, five times under load, loses no attempt."""
    relay = stage.relay(settings=settings(stage))
    application = pushed(stage, relay)
    names = {f"t{turn}-{n}" for turn in range(5) for n in range(600)}
    for turn in range(5):
        stage.producer(relay).schedule_many(TOPIC, [f"t{turn}-{n}" for n in range(600)], {"sleep": 0.01})
        before = len(stage.journal.events("start"))
        eventually(lambda: len(stage.journal.events("start")) > before + 100, "handlers run")  # noqa: B023
        assert application.terminate() == 0
        application.start()
    stage.wait_empty(TOPIC)
    assert stage.journal.ended().keys() == names
    assert {event.attempt for event in stage.journal.events("start")} == {1}
    stage.judged(TOPIC, names)


@pytest.mark.slow
def test_a_relay_that_stops_waits_for_its_calls(stage: Stage) -> None:
    """SIGTERM under load: what is being handled is committed, and nothing comes twice."""
    patient = settings(stage, RELAY_DRAIN_TIMEOUT="140")
    relay, other = stage.relay(settings=patient), stage.relay("other", patient)
    pushed(stage, relay)
    names = {f"t{n}" for n in range(2_000)}
    stage.producer(relay).schedule_many(TOPIC, sorted(names), {"sleep": 0.05})
    eventually(lambda: len(stage.journal.events("start")) > 200, "handlers run")
    assert relay.terminate() == 0
    stage.wait_empty(TOPIC)
    assert set(stage.journal.ended().values()) == {1}
    assert stage.journal.ended().keys() == names
    assert other.running


def known(stage: Stage) -> bool:
    """Whether Redis has every attempt that handlers have counted, of each timer that is not done."""
    counted: dict[str, int] = {}
    for event in stage.journal.events("start"):
        counted[event.timer_id] = counted.get(event.timer_id, 0) + 1
    timeline = cast("list[bytes]", stage.client.zrange(f"timers_timeline:{TOPIC}", 0, -1))
    waiting = {name.decode() for name in timeline}
    raw = cast("dict[bytes, bytes]", stage.client.hgetall(f"timers_leases:{TOPIC}"))
    noted = {name.decode(): lease_record.read(record) for name, record in raw.items()}
    return all(
        name in noted and noted[name].attempts + noted[name].received == times
        for name, times in counted.items()
        if name in waiting
    )


@pytest.mark.slow
def test_many_kills(stage: Stage) -> None:
    """Thousands of timers, two relays and their application, SIGKILLs: none is lost, and the n-th time that a
    handler starts on a timer the relay calls attempt n.

    A receipt takes a moment from the handler to the relay and on to Redis, and what dies within that moment
    leaves two honest counts that differ by one. So the application holds new calls back before each kill
    until those that it has are counted on both sides; what runs, runs on, and dies with its process.
    """
    chance = random.Random(SEED)
    short = settings(stage, RELAY_DEFAULTS__LEASE_TTL="8")  # a relay that stands still does not lose them
    relays = [stage.relay("one", short), stage.relay("two", short)]
    application = pushed(stage, relays[0])
    producer = stage.producer(relays[0])
    victims: list[Application | Relay] = [application, relays[0], application, relays[1]]
    kills = count(8, 50)
    names: list[str] = []

    def both_deliver() -> bool:
        """One relay may be done with a wave before the other can call the application: then comes another."""
        if all("settled_total{" in relay.metrics() for relay in relays):
            return True
        if not stage.left(TOPIC)[0]:
            send_wave()
        return False

    def send_wave() -> None:
        wave = [f"t{len(names) + n}" for n in range(200)]
        names.extend(wave)
        producer.schedule_many(TOPIC, wave, {"sleep": 0.1}, spread=0.5)

    for kill, victim in zip(range(kills), cycle(victims), strict=False):
        send_wave()
        # Relays that were started anew have to learn, too, that this application sends receipts.
        eventually(both_deliver, "both deliver")
        gate, held_back = stage.gate(f"gate-{kill}"), [f"held-{kill}-{n}" for n in range(10)]
        names.extend(held_back)
        producer.schedule_many(TOPIC, held_back, {"gate": str(gate)})
        eventually(lambda: all(map(stage.journal.starts, held_back)), "some will be in flight")  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.05))  # any moment will do
        held = len(stage.journal.events("held"))
        application.signal(signal.SIGUSR1)
        eventually(lambda: len(stage.journal.events("held")) > held, "calls are held back")  # noqa: B023
        eventually(lambda: known(stage), "Redis knows all attempts")
        if victim is application:
            application.kill()
            application.start()
        else:
            victim.kill()
            application.signal(signal.SIGUSR2)
            victim.start()
        gate.touch()
    stage.wait_empty(TOPIC)
    assert stage.journal.ended().keys() == set(names)
    began = stage.journal.events("start")
    again = len(began) - len(names)
    print(f"{kills} kills, {again} redeliveries, highest attempt {max(event.attempt for event in began)}")
    assert again >= 10 * kills // 2, "what is in flight at the application's death comes again"
    counted: dict[str, int] = {}
    for event in began:
        counted[event.timer_id] = counted.get(event.timer_id, 0) + 1
        assert event.attempt == counted[event.timer_id], event
    stage.judged(TOPIC, counted)
