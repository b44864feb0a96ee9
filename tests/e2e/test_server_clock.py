"""The clock of Redis steps by an hour while relays hold leases: libfaketime under a real server, see 0088."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import grpc
import pytest

from tests.stepping import SteppingClock
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.producer import code_of, spec
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
LEASE = {"RELAY_DEFAULTS__LEASE_TTL": "12", "RELAY_DRAIN_TIMEOUT": "5", "RELAY_REDIS__WRITE_TTL": "5"}
HOUR = 3600


@pytest.fixture
def clock(stage: Stage) -> SteppingClock:
    """That of the stage's server."""
    clock = SteppingClock(stage.directory)
    stage.redis(environment=clock.environment)
    return clock


def now(stage: Stage) -> float:
    """The time by the clock of Redis."""
    seconds, micros = stage.client.time()
    return seconds + micros / 1e6


def due_at(stage: Stage, relay: Relay, timer_id: str, due: float, asks: Mapping[str, object]) -> None:
    new = spec(TOPIC, timer_id, asks, 0)
    new.ClearField("delay")
    new.due_time.FromMicroseconds(round(due * 1e6))
    producer = stage.producer(relay)

    def is_stored() -> bool:
        """A call that begins before the relay has seen a step back is refused."""
        try:
            producer.store(new)
        except grpc.RpcError as error:
            if code_of(error) is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True

    eventually(is_stored, f"{timer_id} is stored")


def starts(stage: Stage, *timer_ids: str) -> list[int]:
    return [len(stage.journal.starts(each)) for each in timer_ids]


def step_of(relay: Relay) -> float:
    found = re.search(r"^relay_server_clock_step_seconds(?:{.*})? (\S+)$", relay.metrics(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_step_back(stage: Stage, clock: SteppingClock) -> None:
    """Of two relays that hold leases one dies as the clock steps back by an hour. What it held comes again
    after its lease; but what is not due by the new clock waits, free to be run at once. What the other holds
    is delivered once. Nothing is early."""
    doomed, staying = stage.relay("doomed", LEASE), stage.relay("staying", LEASE)
    stage.application(doomed, TOPIC, "--concurrency=2", "--prefetch=0", name="first")
    hang, gate = {"hang": True, "hang_until": 2}, stage.gate()
    due_at(stage, doomed, "long-due", now(stage) - 2 * HOUR, hang)
    due_at(stage, doomed, "just-due", now(stage), hang)
    eventually(lambda: starts(stage, "long-due", "just-due") == [1, 1], "they are in flight")
    stage.application(staying, TOPIC, name="second")
    for name, due in ("live-long", now(stage) - 2 * HOUR), ("live-just", now(stage)):
        due_at(stage, staying, name, due, {"gate": str(gate)})
    eventually(lambda: starts(stage, "live-long", "live-just") == [1, 1], "the other has some, too")
    eventually(lambda: stage.received(TOPIC) == 4, "the receipts are written")
    doomed.kill()
    clock.step(-HOUR)
    eventually(lambda: now(stage) < time.time() - HOUR / 2, "the server goes by it")
    due_at(stage, staying, "next", now(stage) + 3, {})
    eventually(lambda: starts(stage, "long-due") == [2], "what the dead held comes again")
    eventually(lambda: stage.leased(TOPIC) == 2, "no lease of the dead is left", 60)
    assert starts(stage, "just-due") == [1], "by the new clock it is an hour early"
    stage.producer(staying).run(TOPIC, "just-due")
    eventually(lambda: starts(stage, "just-due") == [2], "somebody has run it")
    eventually(lambda: starts(stage, "next") == [1], "what falls due by the new clock comes")
    assert step_of(staying) == pytest.approx(-HOUR, abs=60)
    assert starts(stage, "live-long", "live-just") == [1, 1]
    gate.touch()
    stage.wait_empty(TOPIC)
    assert starts(stage, "live-long", "live-just") == [1, 1]


def test_a_step_forward(stage: Stage, clock: SteppingClock) -> None:
    """All that is due by the new clock comes, at once."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "60", **LEASE})
    stage.application(relay, TOPIC)
    names = [f"t{n}" for n in range(100)]
    stage.producer(relay).schedule_many(TOPIC, names, delay=60, spread=HOUR - 120)
    stage.producer(relay).schedule(TOPIC, "later", delay=2 * HOUR)
    eventually(lambda: "relay_server_clock_step_seconds" in relay.metrics(), "the clock is looked at")
    assert step_of(relay) == 0
    clock.step(HOUR)
    eventually(lambda: starts(stage, *names) == [1] * 100, "all have come", 50)
    assert step_of(relay) == pytest.approx(HOUR, abs=60)
    assert stage.producer(relay).cancel(TOPIC, "later")
    stage.wait_empty(TOPIC)


def test_a_step_back_under_a_stream(stage: Stage, clock: SteppingClock) -> None:
    """What a dead consumer has left comes again after its idle time."""
    settings = {
        **LEASE,
        "RELAY_TOPICS__orders__DISPATCH": "stream",
        "RELAY_TOPICS__orders__STREAM__GROUP": "billing",
        "RELAY_TOPICS__orders__STREAM__MIN_IDLE_TIME": "2",
    }
    doomed, staying = stage.relay("doomed", settings), stage.relay("staying", settings)
    stage.application(doomed, TOPIC, name="first")
    stage.producer(doomed).schedule(TOPIC, "held", {"hang": True, "hang_until": 2})
    eventually(lambda: starts(stage, "held") == [1], "it is in flight")
    stage.application(staying, TOPIC, name="second")
    doomed.kill()
    clock.step(-HOUR)
    eventually(lambda: starts(stage, "held") == [2], "it comes again")
