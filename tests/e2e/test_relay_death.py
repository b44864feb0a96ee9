"""Relays that die by SIGKILL: what was accepted is handled, by another relay or by the next one."""

from __future__ import annotations

import queue
import random
import time
from collections import Counter
from typing import Self, cast

import grpc
import pytest

from relay.store.codec import lease_record
from relay.v1.delivery_service_pb2 import DeliverRequest, Delivery, Open, Settle
from relay.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from tests.chaos import count
from tests.worlds.relay.processes import Application, Event, Relay
from tests.worlds.relay.producer import Load
from tests.worlds.relay.restless import Restless
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SEED = 11
LEASE = {"RELAY_DEFAULTS__LEASE_TTL": "1", "RELAY_DRAIN_TIMEOUT": "5"}
LONGER = {"RELAY_DEFAULTS__LEASE_TTL": "20", "RELAY_DRAIN_TIMEOUT": "5"}
"""A lease that a busy machine does not let run out where nobody dies."""


def test_other_relay_takes_over(stage: Stage) -> None:
    """Of two relays that drain 1,500 timers one is killed midway: the other handles all, after the lease, and
    none twice but those that the dead one held."""
    doomed = stage.relay("doomed", LONGER)
    staying = stage.relay("staying", LONGER)
    quick, held = {f"a{n}" for n in range(500)}, {f"b{n}" for n in range(1000)}
    names, gate = quick | held, stage.gate()
    stage.producer(doomed).schedule_many(TOPIC, sorted(quick))
    stage.producer(doomed).schedule_many(TOPIC, sorted(held), {"gate": str(gate)})
    first = stage.application(doomed, TOPIC, name="first")
    second = stage.application(staying, TOPIC, name="second")

    def midway() -> bool:
        at_work = Counter(event.pid for event in stage.journal.events("start") if event.timer_id in held)
        return at_work == {first.pid: 100, second.pid: 100} and len(stage.journal.ended()) == 500

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
    ttl = 6.0
    lease, gate = {"RELAY_DEFAULTS__LEASE_TTL": str(ttl)}, stage.gate()
    doomed, staying = stage.relay("doomed", lease), stage.relay("staying", lease)
    stage.application(doomed, TOPIC, name="first")
    stage.producer(doomed).schedule(TOPIC, "held", {"gate": str(gate)})
    eventually(lambda: stage.journal.starts("held"), "it is in flight")
    eventually(lambda: stage.received(TOPIC), "the receipt is written")
    doomed.kill()
    deadline = stage.client.zscore(f"timers_timeline:{TOPIC}", "held")  # nobody claims without an application
    assert deadline is not None
    assert deadline < time.time() + ttl, "the lease's end is further away than the setting says"
    before = stage.journal.starts("held")
    stage.application(staying, TOPIC, name="second")
    eventually(lambda: len(stage.journal.starts("held")) > len(before), "it comes again")
    again = stage.journal.starts("held")[len(before)]
    print(f"delivered again {again.at - deadline:.3f} s after the lease's end")
    assert deadline <= again.at
    assert again.attempt == before[-1].attempt + 1
    gate.touch()
    stage.wait_empty(TOPIC)


def test_all_that_was_at_work_comes_again_at_once(stage: Stage) -> None:
    """A hundred handlers run as their relay dies, and none of them ends: another relay's application has all
    of them after the lease, and not one after the other."""
    ttl = 8.0
    lease = {"RELAY_DEFAULTS__LEASE_TTL": str(ttl)}
    doomed, staying = stage.relay("doomed", lease), stage.relay("staying", lease)
    names, gate = [f"t{n}" for n in range(100)], stage.gate()
    first = stage.application(doomed, TOPIC, name="first")
    stage.producer(doomed).schedule_many(TOPIC, names, {"gate": str(gate)})
    eventually(lambda: stage.received(TOPIC) == 100, "all are at work, and Redis knows it")
    second = stage.application(staying, TOPIC, name="second")
    doomed.kill()
    killed = time.time()

    def begun(application: Application) -> list[Event]:
        return [event for event in stage.journal.events("start") if event.pid == application.pid]

    eventually(lambda: len(begun(second)) == 100, "all are at work again")
    assert sorted(event.timer_id for event in begun(first)) == sorted(names)
    assert {event.attempt for event in begun(second)} == {2}
    came = sorted(event.at - killed for event in begun(second))
    print(f"came again {came[0]:.2f} to {came[-1]:.2f} s after the kill")
    # One by one they would take 50 s. What is left is the time of a busy machine.
    assert came[-1] < ttl + 15.0
    gate.touch()
    stage.wait_empty(TOPIC)


class Bare:
    """A stream without a client library, which says of receipts what the test says."""

    def __init__(self, relay: Relay) -> None:
        self._channel = grpc.insecure_channel(relay.target)
        self._said: queue.Queue[DeliverRequest | None] = queue.Queue()
        stub = DeliveryServiceStub(self._channel)
        self._heard = stub.Deliver(iter(self._said.get, None), timeout=120.0)
        self._said.put(DeliverRequest(open=Open(topics=[TOPIC], max_outstanding=1)))

    def delivery(self) -> Delivery:
        """The next one."""
        for heard in self._heard:
            if heard.WhichOneof("message") == "deliveries":
                delivery: Delivery = heard.deliveries.deliveries[0]
                return delivery
        raise AssertionError("the stream has ended")

    def receive(self, token: bytes) -> None:
        """Say that a handler starts; returns when the relay has read it, since it minds what follows."""
        for each in (token, b"no such token"):
            self._said.put(DeliverRequest(settle=Settle(received=[each])))
        assert any(heard.WhichOneof("message") == "problems" for heard in self._heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._said.put(None)
        self._channel.close()


@pytest.mark.parametrize(("receipt", "attempt"), [("none", 1), ("held", 1), ("written", 2)])
def test_a_receipt_dies_with_the_relay_that_holds_it(stage: Stage, receipt: str, attempt: int) -> None:
    """A relay is killed under a delivery without a receipt, with one that Redis has not taken yet, and with
    one that it has. Only the last counts an attempt; the claim counts each time."""
    relay = stage.relay("one", {"RELAY_DEFAULTS__LEASE_TTL": "6"})
    stage.producer(relay).schedule(TOPIC, "held")
    with Bare(relay) as stream:
        delivery = stream.delivery()
        if receipt == "held":
            stage.client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
        if receipt != "none":
            stream.receive(delivery.token)
        if receipt == "written":
            eventually(lambda: stage.received(TOPIC) == 1, "the receipt is written")
        relay.kill()
    eventually(lambda: "relay" not in {each["name"] for each in stage.client.client_list()}, "it is gone")
    stage.client.execute_command("CLIENT", "UNPAUSE")  # what the dead had to say is not heard any more
    assert stage.received(TOPIC) == (receipt == "written")
    with Bare(stage.relay("two", LONGER)) as stream:
        again = stream.delivery()
        assert (again.timer_id, again.attempt) == ("held", attempt)
        assert again.occurrence_id == delivery.occurrence_id
    (record,) = cast("list[bytes]", stage.client.hvals(f"timers_leases:{TOPIC}"))
    assert lease_record.read(record).claims == 2


def test_renewed_while_the_handler_works(stage: Stage) -> None:
    """A handler that works for more than twice lease_ttl keeps its lease: nobody else gets the timer."""
    patient = {"RELAY_DEFAULTS__LEASE_TTL": "8"}  # a busy machine may renew some seconds late
    one, two = stage.relay("one", patient), stage.relay("two", patient)
    stage.application(one, TOPIC, name="first")
    stage.application(two, TOPIC, name="second")
    stage.producer(one).schedule(TOPIC, "long", {"sleep": 17.0})
    stage.wait_empty(TOPIC)
    assert [event.attempt for event in stage.journal.starts("long")] == [1]


def test_kills_under_load(stage: Stage) -> None:
    """Two relays, killed and started in turn at any moment while timers are scheduled, moved and cancelled:
    none is lost, and no call acts after it has ended."""
    chance = random.Random(SEED)
    relays = [stage.relay("one", LEASE), stage.relay("two", LEASE)]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    standing = {f"t{n}" for n in range(count(1500, 6000))}
    producers[0].schedule_many(TOPIC, sorted(standing), {"sleep": 0.01}, spread=count(8, 30))
    with (
        Load(producers, TOPIC, {"sleep": 0.01}, pause=0.002) as load,
        Restless(producers, TOPIC, seed=SEED) as restless,
    ):
        for number in range(count(6, 24)):
            victim = relays[number % 2]
            before = len(stage.journal.events("start"))
            eventually(lambda: len(stage.journal.events("start")) > before, "handlers run")  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.3))  # any moment will do
            victim.kill()
            victim.start()
        eventually(lambda: len(load.accepted) > count(250, 1000), "a part of the load is accepted")
    stage.wait_empty(TOPIC)
    ended = stage.journal.ended()
    wanted = standing | set(load.accepted) | restless.wanted
    lost = wanted - ended.keys()
    print(f"{len(load.accepted)} accepted, {dict(load.refusals)} refused, {len(lost)} lost, ", end="")
    print(f"{sum(times > 1 for times in ended.values())} came to an end twice; {restless}")
    assert not lost
    assert ended.keys().isdisjoint(restless.unwanted), (
        "a timer came that was cancelled hours before it was due"
    )
    stage.judged(TOPIC, wanted, asked=[*load.asked, *restless.asked])
