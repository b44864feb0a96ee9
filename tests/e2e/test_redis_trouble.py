"""Redis restarts, freezes and dies under load: the daemon stays, says so once, and loses nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import grpc
import pytest

from tests.chaos import count, in_long
from tests.servers import RunningServer
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.producer import Load
from tests.worlds.relay.restless import Restless
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SEED = 5
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
QUICK = {
    "RELAY_REDIS__COMMAND_TIMEOUT": "1",
    "RELAY_REDIS__WRITE_TTL": "1",
    "RELAY_DEFAULTS__LEASE_TTL": "1",
    "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "1",
}

Harm = Callable[[RunningServer], None]
HARMS: dict[str, tuple[Harm, Harm]] = {
    "shutdown": (RunningServer.shut_down, RunningServer.start),
    "kill": (RunningServer.kill, RunningServer.start),
    "freeze": (RunningServer.freeze, RunningServer.thaw),
}


def changes(relay: Relay) -> list[str]:
    """What the log says about Redis, without the reasons."""
    said = ("Redis is away; trying again until it is back", "Redis is back")
    return [line["message"] for line in relay.lines() if line["message"] in said]


@pytest.mark.parametrize("harm", HARMS)
def test_away_and_back(stage: Stage, harm: str) -> None:
    """One log line for each change; ready tells, live stays; Schedule is UNAVAILABLE; then all comes back."""
    hurt, heal = HARMS[harm]
    server = stage.redis(config=DURABLE)
    # What only is slow is neither given up nor taken for away.
    patient = {"RELAY_REDIS__COMMAND_TIMEOUT": "8", "RELAY_REDIS__WRITE_TTL": "5"}
    relay = stage.relay(settings={**QUICK, **patient})
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "before", delay=1.0)
    producer.schedule(TOPIC, "in flight", {"sleep": 1.0})
    eventually(lambda: stage.journal.starts("in flight"), "it is in flight")
    assert (relay.probe("/healthz/ready"), relay.probe("/healthz/live"), relay.health()) == (
        200,
        200,
        "SERVING",
    )

    hurt(server)
    with pytest.raises(grpc.RpcError) as refusal:
        producer.schedule(TOPIC, "meanwhile", timeout=60.0)
    assert isinstance(refusal.value, grpc.Call)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    trailers = {key for key, _ in refusal.value.trailing_metadata() or ()}
    assert "grpc-status-details-bin" in trailers, "RetryInfo is missing"
    eventually(lambda: relay.probe("/healthz/ready") == 503, "ready tells")
    eventually(lambda: relay.health() == "NOT_SERVING", "health tells")
    always(lambda: relay.probe("/healthz/live") == 200, "live stays", 2.0)
    assert changes(relay) == ["Redis is away; trying again until it is back"]

    heal(server)
    eventually(lambda: relay.probe("/healthz/ready") == 200, "ready again")
    eventually(lambda: relay.health() == "SERVING", "healthy again")
    producer.schedule(TOPIC, "after")
    eventually(lambda: {"before", "in flight", "after"} <= stage.journal.ended().keys(), "all are handled")
    stage.wait_empty(TOPIC)
    assert relay.terminate() == 0
    assert changes(relay) == ["Redis is away; trying again until it is back", "Redis is back"]


def test_drain_while_redis_is_away(stage: Stage) -> None:
    """SIGTERM while Redis is gone still ends in time and with 0; the timers come again later."""
    server = stage.redis(config=DURABLE)
    patient = {"RELAY_REDIS__WRITE_TTL": "5", "RELAY_DEFAULTS__LEASE_TTL": "6"}
    relay = stage.relay(settings={**QUICK, **patient, "RELAY_DRAIN_TIMEOUT": "1"})
    application = stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "held", {"sleep": 600})
    eventually(lambda: stage.journal.starts("held"), "it is in flight")
    server.kill()
    signalled = time.monotonic()
    assert relay.terminate() == 0
    assert time.monotonic() - signalled < 140
    application.kill()
    before = len(stage.journal.starts("held"))
    server.start()
    relay.start()
    application.start()
    eventually(lambda: len(stage.journal.starts("held")) > before, "it comes again")


@pytest.mark.parametrize("harm", ["kill", *in_long(["shutdown", "freeze"])])
def test_trouble_at_any_moment(stage: Stage, harm: str) -> None:
    """Under load, several times each at any moment: nothing that was accepted is lost, and no call acts after
    it has ended."""
    hurt, heal = HARMS[harm]
    chance = random.Random(SEED)
    server = stage.redis(config=DURABLE)
    relay = stage.relay(settings=QUICK)
    application = stage.application(relay, TOPIC)
    producers = [stage.producer(relay)]
    standing = {f"t{n}" for n in range(1000)}
    producers[0].schedule_many(TOPIC, sorted(standing), {"sleep": 0.01}, spread=8.0)
    with (
        Load(producers, TOPIC, pause=0.001) as load,
        Restless(producers, TOPIC, seed=SEED) as restless,
    ):
        for number in range(count(3, 8)):
            accepted = len(load.accepted)
            eventually(lambda: len(load.accepted) > accepted, "calls are accepted")  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.5))  # any moment will do
            hurt(server)
            # From longer than any call may act to too short to be noticed.
            time.sleep((1.5, 0.3, 0.05)[number % 3])
            heal(server)
            eventually(lambda: relay.probe("/healthz/ready") == 200, "ready again")
    stage.wait_empty(TOPIC)
    ended = stage.journal.ended()
    wanted = standing | set(load.accepted) | restless.wanted
    lost = wanted - ended.keys()
    eventually(lambda: len(changes(relay)) % 2 == 0, "Redis is not away")
    said = changes(relay)
    twice = sum(times > 1 for times in ended.values())
    print(
        f"{harm}: {len(load.accepted)} accepted, {load.refusals.total()} refused, {len(lost)} lost, ", end=""
    )
    print(f"{twice} twice, {len(said)} lines; {restless}")
    assert not lost
    assert ended.keys().isdisjoint(restless.unwanted), (
        "a timer came that was cancelled hours before it was due"
    )
    stage.judged(TOPIC, wanted, asked=[*load.asked, *restless.asked])
    assert set(load.refusals) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    # One change for each trouble; a busy machine may be too slow for the time-out besides, and hear of the
    # end of a connection when Redis is back already: a relay has four.
    away = [line["reason"] for line in relay.lines() if line["message"] == said[0]]
    assert sum("Timeout" not in reason for reason in away) <= 4 * count(3, 8), away
    assert said == ["Redis is away; trying again until it is back", "Redis is back"] * (len(said) // 2)
    assert relay.running
    assert application.running
