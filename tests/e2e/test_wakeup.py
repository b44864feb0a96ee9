"""A relay sleeps until it is needed, and wakes in time for an earlier timer, wherever that comes from."""

from __future__ import annotations

import time
from typing import cast

import pytest

from tests.chaos import in_long
from tests.e2e.peer import publish
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.producer import Producer
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
HOUR = 3600.0
SLEEPY = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "600"}
"""Longer than anything is waited for: what comes has woken its relay."""


def asleep(stage: Stage, relay: Relay) -> None:
    """Attach an application, and return when the relay waits for a timer an hour away."""
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "far", delay=HOUR)
    stage.application(relay, TOPIC)
    producer.schedule(TOPIC, "first")
    eventually(lambda: stage.journal.ended()["first"], "the application takes deliveries")
    eventually(lambda: stage.left(TOPIC) == (1, 1, 0), "only the far one is left")


@pytest.mark.slow
@pytest.mark.parametrize("by_way_of", ["the same relay", "another relay"])
def test_earlier_timer_wakes(stage: Stage, by_way_of: str) -> None:
    """With an hour to sleep, an earlier timer comes all the same, and not early."""
    relay = stage.relay("delivering", SLEEPY)
    asleep(stage, relay)
    other = relay if by_way_of == "the same relay" else stage.relay("scheduling", SLEEPY)
    producer = stage.producer(other)
    seen = [lateness(stage, producer, f"t{n}", 0.25 * (n % 2)) for n in range(10)]
    print(f"{by_way_of}: lateness in ms: {', '.join(f'{seconds * 1e3:.1f}' for seconds in seen)}")
    assert min(seen) >= 0, "a timer was early"


def lateness(stage: Stage, producer: Producer, timer_id: str, delay: float) -> float:
    """Schedule a timer, see it committed, and answer how late it began (seconds)."""
    producer.schedule(TOPIC, timer_id, delay=delay)
    eventually(lambda: stage.journal.ended()[timer_id], "it comes")
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
    eventually(lambda: len(stage.journal.ended()) == 3, "all three take deliveries")
    for topic in topics:
        producer.schedule(topic, f"{topic}-again", {"nack_until": 2, "retry_after": 0.2})
    eventually(lambda: len(stage.journal.ended()) == 6, "all three are woken by their retries")


def test_foreign_publisher(stage: Stage) -> None:
    """What a foreign publisher writes without a hint is looked for, though the next timer is an hour away."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.5"})
    asleep(stage, relay)
    for name in ("one", "two", "three"):
        publish(stage.server.url, TOPIC, [name])
        eventually(lambda: stage.journal.ended()[name], "it comes")  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, *in_long([SLEEPY])], ids=["the default", "a minute"])
def test_idle_costs_next_to_nothing(stage: Stage, settings: dict[str, str]) -> None:
    """Ten idle seconds with an application attached cost Redis ten calls at most, and a look at its clock
    each."""
    relay = stage.relay(settings=settings)
    asleep(stage, relay)
    client = stage.client
    client.config_resetstat()
    began = time.monotonic()
    time.sleep(10.0)  # this is what is measured
    client_calls = {"evalsha", "ping", "subscribe", "script|load", "eval"}
    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    longer = (time.monotonic() - began) / 10.0  # a busy machine looks later
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    print(calls)
    assert calls.pop("time") <= 15 * longer
    assert sum(count for name, count in calls.items() if name in client_calls) <= 10 * longer, calls
    if settings:
        own = 2  # INFO and CONFIG RESETSTAT
        assert sum(calls.values()) - own <= 10 * longer, calls
