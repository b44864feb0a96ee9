"""Many due timers at once, three processes, default settings."""

from __future__ import annotations

import json
from collections import Counter

import psutil
import pytest

from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
COUNT = 20_000


def test_drain_of_due_timers(stage: Stage) -> None:
    """20,000 due timers of 200 bytes come over one stream, each exactly once, and nothing is left."""
    relay = stage.relay()
    stage.producer(relay).schedule_many(TOPIC, (f"timer-{n}" for n in range(COUNT)), b"x" * 200)
    assert stage.left(TOPIC) == (COUNT, COUNT, 0), "without an application nothing is leased"
    stage.application(relay, TOPIC)
    eventually(lambda: len(stage.journal.ended()) == COUNT, "all are handled", 120.0)
    stage.wait_empty(TOPIC)
    starts = Counter(event.timer_id for event in stage.journal.events("start"))
    assert set(starts.values()) == {1}, "a timer came twice"
    assert all(event.attempt == 1 for event in stage.journal.events("start"))
    settled = f'relay_timers_settled_total{{outcome="ack",topic="{TOPIC}"}} {COUNT}.0'
    eventually(lambda: settled in relay.metrics(), "each is counted once Redis has answered")


def test_a_relay_does_not_keep_what_an_application_holds(stage: Stage) -> None:
    """150 timers of nearly 1 MiB each are held by handlers that wait: the relay has none of it any more."""
    relay, count = stage.relay(), 150
    payload = json.dumps({"gate": str(stage.gate()), "pad": "x" * 1_000_000}).encode()
    producer = stage.producer(relay)
    for n in range(count):
        producer.schedule(TOPIC, f"large-{n}", payload)
    before = psutil.Process(relay.pid).memory_info().rss
    stage.application(relay, TOPIC, "--concurrency", str(count))
    eventually(lambda: len(stage.journal.events("start")) == count, "all are being handled", 200.0)
    assert psutil.Process(relay.pid).memory_info().rss - before < count * len(payload) / 2
    stage.gate().touch()
    stage.wait_empty(TOPIC)
