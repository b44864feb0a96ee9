"""Applications that die by SIGKILL: nothing is lost, and attempts are counted honestly."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.chaos import count
from tests.worlds.relay.processes import Application
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SEED = 7


def survive(stage: Stage, application: Application, wanted: set[str], timeout: float = 200.0) -> int:
    """Start the application again whenever it has died, until these timers are handled; counts deaths."""
    deaths = 0

    def done() -> bool:
        nonlocal deaths
        deaths += application.revive()
        return wanted <= stage.journal.ended().keys() and stage.left(TOPIC) == (0, 0, 0)

    eventually(done, "all are handled and committed", timeout)
    return deaths


@pytest.mark.parametrize("when", ["start", "end"])
def test_killer_runs_up_attempts(stage: Stage, when: str) -> None:
    """A handler that kills its process, before or after its work, counts an attempt each time."""
    relay = stage.relay()
    application = stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "killer", {"die": when, "die_until": 4})
    deaths = survive(stage, application, {"killer"})
    assert stage.attempts("killer") == [1, 2, 3, 4]
    assert deaths == 3
    assert len({event.occurrence for event in stage.journal.starts("killer")}) == 1


def test_queued_timers_count_nothing(stage: Stage) -> None:
    """Timers that wait in an application while another one kills it lose no attempt.

    Race: the killer's receipt goes out as its handler starts. If the process dies at once, with deliveries
    that it has not read, the connection is reset, the receipt is lost, and the attempt's number comes again.
    So the killer stands at a gate until Redis has its receipt.
    """
    relay, gate = stage.relay(), stage.gate()
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "killer", {"gate": str(gate), "die": "end", "die_until": 4})
    innocent = [f"t{n}" for n in range(50)]
    producer.schedule_many(TOPIC, innocent)
    application = stage.application(relay, TOPIC, "--concurrency", "1", "--prefetch", "60", wait=False)
    eventually(lambda: stage.leased(TOPIC) == 51, "the others wait behind the killer")
    for attempt in (1, 2, 3):
        stage.let_kill(application, TOPIC, "killer", attempt, gate)
        application.revive()
    gate.touch()
    stage.wait_empty(TOPIC)
    assert stage.attempts("killer") == [1, 2, 3, 4]
    assert {name: stage.attempts(name) for name in innocent} == {name: [1] for name in innocent}


def test_neighbours_count_twice(stage: Stage) -> None:
    """Timers whose handlers run beside a killer count its first two attempts, and no further ones: it is
    alone then."""
    relay, gate, others = stage.relay(), stage.gate(), stage.gate("others")
    producer = stage.producer(relay)
    innocent = {f"t{n}" for n in range(20)}
    producer.schedule_many(TOPIC, sorted(innocent), {"gate": str(others)})
    producer.schedule(TOPIC, "killer", {"gate": str(gate), "die": "end", "die_until": 5})
    application = stage.application(relay, TOPIC, wait=False)
    for attempt in (1, 2, 3, 4):
        if attempt <= 2:
            eventually(lambda: stage.received(TOPIC) == 21, "all are at work, and Redis knows it")
        stage.let_kill(application, TOPIC, "killer", attempt, gate)
        if attempt == 2:
            others.touch()  # each of them is alone now
        application.revive()
    gate.touch()
    stage.wait_empty(TOPIC)
    assert stage.journal.ended().keys() == innocent | {"killer"}
    assert stage.attempts("killer") == [1, 2, 3, 4, 5]
    worst = max(max(stage.attempts(name)) for name in innocent)
    assert worst <= 3, f"an innocent timer came to attempt {worst}"


def test_absent_application(stage: Stage) -> None:
    """While no application is there nothing is leased and nothing counts, before it comes or after."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__LEASE_TTL": "600"})
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, (f"t{n}" for n in range(20)), {"gate": str(stage.gate())})
    always(lambda: stage.left(TOPIC) == (20, 20, 0), "no lease, no record", 0.5)

    application = stage.application(relay, TOPIC, "--concurrency", "1", "--prefetch", "30")
    eventually(lambda: stage.received(TOPIC) == 1, "Redis knows that one is in flight")
    eventually(lambda: stage.journal.events("start"), "its handler, which starts behind the receipt, says so")
    application.kill()
    eventually(lambda: stage.leased(TOPIC) == 0, "all are released, long before their leases end")
    always(lambda: stage.leased(TOPIC) == 0, "no lease for nobody", 1.0)
    begun = {event.timer_id for event in stage.journal.events("start")}
    for number in range(20):
        timer = producer.get(TOPIC, f"t{number}")
        assert timer is not None
        assert timer.attempts == (f"t{number}" in begun)


def test_many_kills(stage: Stage) -> None:
    """Thousands of timers, an application that is killed again and again at any point: none is lost."""
    chance = random.Random(SEED)
    relay = stage.relay()
    producer = stage.producer(relay)
    ordinary: set[str] = set()
    killers = {f"killer{n}" for n in range(10)} | {f"late-killer{n}" for n in range(10)}
    producer.schedule_many(
        TOPIC, [f"killer{n}" for n in range(10)], {"die": "start", "die_until": 2}, spread=8.0
    )
    producer.schedule_many(
        TOPIC, [f"late-killer{n}" for n in range(10)], {"die": "end", "die_until": 2}, delay=0.5, spread=8.0
    )
    application = stage.application(relay, TOPIC, "--concurrency", "20", "--prefetch", "20", wait=False)
    deaths = 0
    while deaths < count(8, 40):
        wave = [f"t{deaths}-{n}" for n in range(100)]
        producer.schedule_many(TOPIC, wave, {"sleep": 0.01}, spread=0.5)
        ordinary |= set(wave)
        before = len(stage.journal.events("start"))
        eventually(
            lambda: not application.running or len(stage.journal.events("start")) > before,  # noqa: B023
            "handlers run",
        )
        time.sleep(chance.uniform(0.0, 0.2))  # any moment will do
        application.kill()
        deaths += application.revive()
    deaths += survive(stage, application, ordinary | killers)
    began = Counter(event.timer_id for event in stage.journal.events("start"))
    highest = max(event.attempt for event in stage.journal.events("start"))
    print(f"{deaths} deaths, {began.total() - len(began)} redeliveries, highest attempt {highest}")
    for name in ordinary | killers:
        assert stage.attempts(name) == sorted(stage.attempts(name)), name
    assert highest <= 6, "bystanders ran up attempts"
    assert all(stage.attempts(name)[-1] >= 2 for name in killers)
    stage.judged(TOPIC, ordinary | killers)
