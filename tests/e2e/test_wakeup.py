"""A relay sleeps until it is needed, and wakes in time for an earlier timer, wherever that comes from."""

from __future__ import annotations

import time
from typing import cast

import pytest

from tests.e2e.conftest import Stage
from tests.e2e.peer import publish
from tests.e2e.processes import Relay, eventually
from tests.e2e.producer import Producer

TOPIC = "orders"
HOUR = 3600.0
MOST_ROUNDS = 20
"""A busy machine may spoil a round; a relay that does not wake spoils all."""

SLEEPY = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "60"}


def asleep(stage: Stage, relay: Relay) -> None:
    """Attach an application, and return when the relay waits for a timer an hour away."""
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "far", delay=HOUR)
    stage.application(relay, TOPIC)
    producer.schedule(TOPIC, "first")
    eventually(lambda: stage.journal.ended()["first"], "the application takes deliveries")
    eventually(lambda: stage.left(TOPIC) == (1, 1, 0), "only the far one is left")


@pytest.mark.parametrize("by_way_of", ["the same relay", "another relay"])
def test_earlier_timer_wakes(stage: Stage, by_way_of: str) -> None:
    """With an hour to sleep, an earlier timer comes within 100 ms of its due time, 9 times of 10."""
    relay = stage.relay("delivering", SLEEPY)
    asleep(stage, relay)
    other = relay if by_way_of == "the same relay" else stage.relay("scheduling", SLEEPY)
    producer = stage.producer(other)
    rounds: list[list[float]] = []
    while not rounds or (sorted(rounds[-1])[8] >= 0.1 and len(rounds) < MOST_ROUNDS):
        names = [f"t{len(rounds)}-{number}" for number in range(10)]
        rounds.append([lateness(stage, producer, name, 0.25 * (n % 2)) for n, name in enumerate(names)])
    seen = [f"{seconds * 1e3:.1f}" for seconds in rounds[-1]]
    print(f"{by_way_of}, round {len(rounds)}: lateness in ms: {', '.join(seen)}")
    assert min(map(min, rounds)) >= 0, "a timer was early"
    assert sorted(rounds[-1])[8] < 0.1, rounds


def lateness(stage: Stage, producer: Producer, timer_id: str, delay: float) -> float:
    """Schedule a timer, see it committed, and answer how late it began (seconds)."""
    producer.schedule(TOPIC, timer_id, delay=delay)
    eventually(lambda: stage.journal.ended()[timer_id], "it comes", 30.0)
    eventually(lambda: stage.left(TOPIC) == (1, 1, 0), "it is committed")
    return stage.journal.starts(timer_id)[0].late


def test_every_topic_of_an_application_wakes(stage: Stage) -> None:
    """With three topics and nothing to poll for, each is woken through another relay, and by its own NACK."""
    topics = ["one", "two", "three"]
    delivering, scheduling = stage.relay("delivering", SLEEPY), stage.relay("scheduling", SLEEPY)
    stage.application(delivering, topics)
    producer = stage.producer(scheduling)
    for topic in topics:
        producer.schedule(topic, f"{topic}-first")
    eventually(lambda: len(stage.journal.ended()) == 3, "all three take deliveries", 20.0)
    for topic in topics:
        producer.schedule(topic, f"{topic}-again", {"nack_until": 2, "retry_after": 0.2})
    eventually(lambda: len(stage.journal.ended()) == 6, "all three are woken by their retries", 20.0)


def test_foreign_publisher(stage: Stage) -> None:
    """What a foreign publisher writes, without a hint, comes after max_polling_interval at the latest."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.5"})
    asleep(stage, relay)
    late: list[float] = []
    while len(late) < 5 or (sorted(late[-5:])[3] >= 0.5 + 0.1 and len(late) < 5 * MOST_ROUNDS):
        name = f"t{len(late)}"
        publish(stage.server.url, TOPIC, [name])
        eventually(lambda: stage.journal.ended()[name], "it comes")  # noqa: B023
        late.append(stage.journal.starts(name)[0].late)
    assert sorted(late[-5:])[3] < 0.5 + 0.1, [f"{seconds * 1e3:.0f} ms" for seconds in late]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SLEEPY, {}], ids=["a minute", "the default"])
def test_idle_costs_next_to_nothing(stage: Stage, settings: dict[str, str]) -> None:
    """Ten idle seconds with an application attached cost Redis at most ten calls."""
    relay = stage.relay(settings=settings)
    asleep(stage, relay)
    client = stage.client
    client.config_resetstat()
    time.sleep(10.0)  # this is what is measured
    client_calls = {"evalsha", "ping", "subscribe", "script|load", "eval"}
    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    print(calls)
    assert sum(count for name, count in calls.items() if name in client_calls) <= 10, calls
    if settings:
        own = 2  # INFO and CONFIG RESETSTAT
        assert sum(calls.values()) - own <= 10, calls
