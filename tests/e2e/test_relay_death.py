"""Relays that die by SIGKILL: what was accepted is handled, by another relay or by the next one."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.chaos import count
from tests.e2e.conftest import Stage
from tests.e2e.processes import eventually
from tests.e2e.producer import Load

TOPIC = "orders"
SEED = 11
LEASE = {"RELAY_DEFAULTS__LEASE_TTL": "1", "RELAY_DRAIN_TIMEOUT": "5"}
LONGER = {"RELAY_DEFAULTS__LEASE_TTL": "3", "RELAY_DRAIN_TIMEOUT": "5"}
"""A lease that a busy machine does not let run out where nobody dies."""


def test_other_relay_takes_over(stage: Stage) -> None:
    """Of two relays that drain 4,000 timers one is killed midway: the other handles all, after the lease, and
    none twice but those that the dead one held."""
    doomed = stage.relay("doomed", LONGER)
    staying = stage.relay("staying", LONGER)
    quick, held = {f"a{n}" for n in range(1000)}, {f"b{n}" for n in range(3000)}
    names, gate = quick | held, stage.gate()
    stage.producer(doomed).schedule_many(TOPIC, sorted(quick))
    stage.producer(doomed).schedule_many(TOPIC, sorted(held), {"gate": str(gate)})
    first = stage.application(doomed, TOPIC, name="first")
    second = stage.application(staying, TOPIC, name="second")

    def midway() -> bool:
        at_work = Counter(event.pid for event in stage.journal.events("start") if event.timer_id in held)
        return at_work == {first.pid: 100, second.pid: 100} and len(stage.journal.ended()) == 1000

    eventually(midway, "it is midway")
    eventually(lambda: stage.received(TOPIC) == 200, "Redis knows all attempts")
    doomed.kill()
    killed = time.time()
    gate.touch()
    stage.wait_empty(TOPIC)
    assert stage.journal.ended().keys() == names
    stage.judged(TOPIC, names)
    starts = Counter(event.timer_id for event in stage.journal.events("start"))
    twice = {name for name, times in starts.items() if times > 1}
    again = [stage.journal.starts(name)[-1] for name in twice]
    assert twice == {e.timer_id for e in stage.journal.events("start") if e.pid == first.pid} & held
    assert all(event.at >= killed for event in again)
    last = max((event.at - killed for event in again), default=0.0)
    print(f"{len(twice)} of {len(names)} came twice; the last began {last:.1f} s after the kill")


def test_lease_is_the_time_to_recover(stage: Stage) -> None:
    """A timer held by a relay that dies is delivered by the other one once the lease is over, not before."""
    doomed = stage.relay("doomed", {"RELAY_DEFAULTS__LEASE_TTL": "2"})
    staying = stage.relay("staying", {"RELAY_DEFAULTS__LEASE_TTL": "2"})
    stage.application(doomed, TOPIC, name="first")
    stage.producer(doomed).schedule(TOPIC, "held", {"hang": True, "hang_until": 2})
    eventually(lambda: stage.journal.starts("held"), "it is in flight")
    stage.application(staying, TOPIC, name="second")
    eventually(lambda: stage.received(TOPIC), "the receipt is written")
    doomed.kill()
    deadline = stage.client.zscore(f"timers_timeline:{TOPIC}", "held")
    assert deadline is not None
    assert deadline < time.time() + 2.0, "the lease's end is further away than the setting says"
    eventually(lambda: len(stage.journal.starts("held")) == 2, "it comes again")
    again = stage.journal.starts("held")[1]
    print(f"delivered again {again.at - deadline:.3f} s after the lease's end")
    assert deadline <= again.at
    assert again.attempt == 2
    stage.wait_empty(TOPIC)


def test_renewed_while_the_handler_works(stage: Stage) -> None:
    """A handler that works for more than twice lease_ttl keeps its lease: nobody else gets the timer."""
    one, two = stage.relay("one", LONGER), stage.relay("two", LONGER)
    stage.application(one, TOPIC, name="first")
    stage.application(two, TOPIC, name="second")
    stage.producer(one).schedule(TOPIC, "long", {"sleep": 7.0})
    stage.wait_empty(TOPIC)
    assert [event.attempt for event in stage.journal.starts("long")] == [1]


@pytest.mark.slow
def test_kills_under_load(stage: Stage) -> None:
    """Two relays, killed and started in turn at any moment while timers are scheduled: none is lost."""
    chance = random.Random(SEED)
    relays = [stage.relay("one", LEASE), stage.relay("two", LEASE)]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    standing = {f"t{n}" for n in range(count(1500, 6000))}
    producers[0].schedule_many(TOPIC, sorted(standing), {"sleep": 0.01}, spread=count(8, 30))
    with Load(producers, TOPIC, {"sleep": 0.01}, pause=0.002) as load:
        for number in range(count(6, 24)):
            victim = relays[number % 2]
            before = len(stage.journal.events("start"))
            eventually(lambda: len(stage.journal.events("start")) > before, "handlers run")  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.3))  # any moment will do
            victim.kill()
            victim.start()
        eventually(lambda: len(load.accepted) > count(250, 1000), "a part of the load is accepted")
    stage.wait_empty(TOPIC, 90.0)
    ended = stage.journal.ended()
    lost = (standing | set(load.accepted)) - ended.keys()
    print(f"{len(load.accepted)} accepted, {dict(load.refusals)} refused, {len(lost)} lost, ", end="")
    print(f"{sum(times > 1 for times in ended.values())} came to an end twice")
    assert not lost
    stage.judged(TOPIC, standing | set(load.accepted))
