"""The log of a real relay: it tells of every failure, never a payload or a secret, and survives a storm."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.peer import publish
from tests.worlds.relay.processes import Process
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
CANARY = "c0ffee-swordfish"
SECRETS = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={CANARY}",
    "OTEL_BSP_SCHEDULE_DELAY": "50",
}


def play(stage: Stage, **settings: str) -> Process:
    """Each way in which a delivery can go wrong, with a payload and a header that must not be seen."""
    stage.redis(config={"requirepass": CANARY})
    url = f"redis://:{CANARY}@127.0.0.1:{stage.server.port}/0"
    defaults = {
        "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "2",
        "RELAY_DEFAULTS__RETRY__INITIAL": "0",
        "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2",
        "RELAY_REDIS__COMMAND_TIMEOUT": "10",  # seconds, for which a Redis that is only slow is not away
    }
    relay = stage.relay(settings={**defaults, **SECRETS, **settings}, url=url)
    producer = stage.producer(relay)
    canary = {"canary": CANARY}
    producer.schedule(TOPIC, "fine", canary, headers=canary)
    producer.schedule(TOPIC, "bad", {**canary, "reject": True}, headers=canary)
    producer.schedule(TOPIC, "poison", {**canary, "nack_until": 9, "retry_after": 0}, headers=canary)
    producer.schedule(TOPIC, "late", {**canary, "again": 0.05}, headers=canary)
    publish(url, TOPIC, ["peer"], headers=canary)
    application = stage.application(relay, TOPIC)
    stage.wait_empty(TOPIC, dead=2)
    stage.client.set(f"timers_timeline:{CANARY[:6]}", "no sorted set")
    producer.schedule(TOPIC, "killer", {**canary, "die": "start"}, headers=canary)

    def killer_is_dead() -> bool:
        """After two deaths of its application; an attempt whose receipt was lost comes again."""
        application.revive()
        return bool(stage.client.xlen(f"timers_dead:{TOPIC}") == 1)

    eventually(killer_is_dead, "killer is dead")
    stage.server.freeze()
    eventually(lambda: relay.said("Redis is away"), "it noticed")
    stage.server.thaw()
    eventually(lambda: relay.said("Redis is back"), "it noticed")
    application.kill()
    assert relay.terminate() == 0
    return relay


def test_nothing_secret(stage: Stage) -> None:
    """At the most talkative level; and what failed is there, with all that finds it."""
    relay = play(stage, RELAY_LOG__LEVEL="debug")
    assert CANARY not in relay.output()
    lines = [json.loads(line) for line in relay.output().splitlines()]
    (rejected,) = [line for line in lines if line["message"] == "timer rejected by its application"]
    assert (rejected["topic"], rejected["timer_id"], rejected["attempt"]) == (TOPIC, "bad", 1)
    assert (len(rejected["trace_id"]), len(rejected["span_id"])) == (32, 16)
    failed = [line["attempt"] for line in lines if line["message"] == "delivery failed"]
    assert failed == [1, 2]


def test_a_storm(stage: Stage) -> None:
    """A thousand rejections are some lines, the last of which tell of the rest; the metrics know it too."""
    began = time.monotonic()
    relay = stage.relay()
    stage.producer(relay).schedule_many(TOPIC, [f"bad-{n}" for n in range(1_000)], {"reject": True})
    stage.application(relay, TOPIC)
    stage.wait_empty(TOPIC, dead=1_000)
    stage.producer(relay).schedule(TOPIC, "last", {"reject": True})

    def told() -> int:
        lines = [line for line in relay.lines() if line["message"] == "timer rejected by its application"]
        return sum(1 + line.get("suppressed", 0) for line in lines)

    def again() -> bool:
        stage.producer(relay).schedule(TOPIC, "last", {"reject": True})
        return told() >= 1_000

    eventually(again, "lines tell of those left out")
    said = [line for line in relay.lines() if line["message"] == "timer rejected by its application"]
    assert len(said) < 100 + 2 * (time.monotonic() - began), "one a second after the first"
    left_out = [
        line for line in relay.metrics().splitlines() if line.startswith("relay_log_suppressed_total")
    ]
    assert float(left_out[0].split()[1]) >= 1_000 - len(said)
