"""Orderly ends: the relay's drain, the application's drain, and what either leaves behind."""

from __future__ import annotations

import signal
import time

import pytest

from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
PATIENT = {"RELAY_DRAIN_TIMEOUT": "250"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_relay_drains(stage: Stage, number: signal.Signals) -> None:
    """On a signal the relay says drain, lets what runs end and commit, leases nothing more, and exits 0."""
    relay = stage.relay(settings=PATIENT)
    application = stage.application(relay, TOPIC, "--concurrency", "10", "--prefetch", "10")
    producer = stage.producer(relay)
    gate = stage.gate()
    producer.schedule_many(TOPIC, (f"t{n}" for n in range(40)), {"gate": str(gate)})
    eventually(lambda: len(stage.journal.events("start")) == 10, "ten are in flight")
    relay.signal(number)
    eventually(lambda: relay.health() == "NOT_SERVING", "health says so")
    eventually(lambda: "relay drains" in application.output(), "the application is told")
    gate.touch()
    opened = time.monotonic()
    assert relay.wait() == 0
    assert time.monotonic() - opened < 140, "it waited for its drain_timeout"
    assert len(stage.journal.ended()) == 10, "what ran has ended, and nothing else was begun"
    assert stage.left(TOPIC)[:2] == (30, 30), "what ended is committed, the rest is there"
    assert stage.leased(TOPIC) == 0
    assert "relay drains" in application.output()
    assert [line["message"] for line in relay.lines()][-2:] == ["draining", "relay has stopped"]

    relay.start()
    stage.wait_empty(TOPIC)
    assert set(stage.journal.ended().values()) == {1}
    assert {event.attempt for event in stage.journal.events("start")} == {1}


@pytest.mark.slow
def test_overrun_is_released(stage: Stage) -> None:
    """What outlives drain_timeout is released: another relay delivers it at once, as the next attempt."""
    settings = {"RELAY_DRAIN_TIMEOUT": "1"}
    leaving = stage.relay("leaving", settings)
    staying = stage.relay("staying", settings)
    stage.application(leaving, TOPIC, "--concurrency", "5", "--prefetch", "5", name="first")
    producer = stage.producer(leaving)
    producer.schedule_many(TOPIC, (f"t{n}" for n in range(10)), {"sleep": 600})
    eventually(lambda: len(stage.journal.events("start")) == 5, "five are in flight")
    eventually(lambda: stage.received(TOPIC) == 5, "Redis knows it")
    signalled = time.monotonic()
    assert leaving.terminate() == 0
    assert 1.0 <= time.monotonic() - signalled < 140.0
    assert stage.left(TOPIC)[:2] == (10, 10)
    assert stage.leased(TOPIC) == 0
    begun = {event.timer_id for event in stage.journal.events("start")}

    stage.application(staying, TOPIC, name="second")
    eventually(
        lambda: len(stage.journal.events("start")) == 15, "all come again, long before their leases end"
    )
    attempts = {event.timer_id: event.attempt for event in stage.journal.events("start")[5:]}
    assert attempts == {f"t{n}": 2 if f"t{n}" in begun else 1 for n in range(10)}


def test_the_relay_that_stops_last_goes_on_until_its_application_has_drained(stage: Stage) -> None:
    """Both are told at once: what falls due meanwhile is still delivered, and both end well."""
    relay = stage.relay(settings={**PATIENT, "RELAY_STOP_LAST": "true"})
    application = stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    relay.signal(signal.SIGTERM)
    eventually(lambda: relay.said("outlasting the applications"), "the signal was heard")
    producer.schedule_many(TOPIC, ["late"], {})
    eventually(lambda: stage.journal.count("end") == 1, "it is still delivered")
    assert relay.health() == "SERVING"
    assert application.terminate() == 0
    assert relay.wait() == 0
    assert "relay drains" not in application.output()
    stage.wait_empty(TOPIC)


def test_drain_of_an_idle_relay_is_quick(stage: Stage) -> None:
    """With nothing in flight a drain does not wait for its timeout, application or not."""
    for name in ("lonely", "attended"):
        relay = stage.relay(name, PATIENT)
        if name == "attended":
            stage.application(relay, TOPIC)
        signalled = time.monotonic()
        assert relay.terminate() == 0
        assert time.monotonic() - signalled < 140.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_application_drains(stage: Stage, number: signal.Signals) -> None:
    """An application that is told to stop ends what it began, and hands the rest back uncounted."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__LEASE_TTL": "600"})
    application = stage.application(relay, TOPIC, "--concurrency", "5", "--prefetch", "20", name="first")
    gate = stage.gate()
    stage.producer(relay).schedule_many(TOPIC, (f"t{n}" for n in range(30)), {"gate": str(gate)})
    eventually(lambda: len(stage.journal.events("start")) == 5, "five are in flight")
    eventually(lambda: stage.leased(TOPIC) == 25, "the next ones wait at hand")
    application.signal(number)
    eventually(lambda: stage.journal.events("stopping"), "it has heard")
    gate.touch()
    assert application.wait() == 0, application.output()
    assert len(stage.journal.ended()) == 5
    eventually(lambda: stage.left(TOPIC)[:2] == (25, 25), "what ended is committed, the rest is there")
    eventually(lambda: stage.leased(TOPIC) == 0, "no lease is held for an application that has gone")
    assert application.journal.events("stopped")

    stage.application(relay, TOPIC, name="second")
    stage.wait_empty(TOPIC)
    assert {event.attempt for event in stage.journal.events("start")} == {1}
    assert set(stage.journal.ended().values()) == {1}


def test_application_overrun(stage: Stage) -> None:
    """A handler that outlives the application's shutdown_timeout is cut off; its timer comes again."""
    relay = stage.relay()
    application = stage.application(relay, TOPIC, "--shutdown-timeout", "0.5", name="first")
    stage.producer(relay).schedule(TOPIC, "long", {"sleep": 600})
    eventually(lambda: stage.journal.starts("long"), "it is in flight")
    assert application.terminate() == 0
    eventually(lambda: stage.leased(TOPIC) == 0, "it is released")
    stage.application(relay, TOPIC, name="second")
    eventually(lambda: len(stage.journal.starts("long")) == 2, "it comes again")
    assert [event.attempt for event in stage.journal.starts("long")] == [1, 2]


def test_second_signal_cuts_the_drain_short(stage: Stage) -> None:
    """A second signal ends the wait at once: what runs is released, and the relay ends in order."""
    relay = stage.relay(settings=PATIENT)
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "t", {"sleep": 600})
    eventually(lambda: stage.journal.starts("t"), "it is in flight")
    relay.signal(signal.SIGTERM)
    eventually(lambda: relay.said("draining"), "the first one is heard")
    relay.signal(signal.SIGINT)
    assert relay.wait() == 0
    assert relay.said("drain cut short") == 1
    assert stage.left(TOPIC)[:2] == (1, 1)
    assert stage.leased(TOPIC) == 0
