"""What links the spans of one timer: each delivery to the one before, a redrive to the death; and nothing
waits within a span."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.collector import Collector, Exported, collecting
from tests.e2e.peer import publish
from tests.e2e.test_failure import Operator
from tests.e2e.test_traces import CALLER, SAMPLED, TOPIC, TRACE, UNSAMPLED, traced, wait_spans
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

AT_ONCE = {"RELAY_DEFAULTS__RETRY__INITIAL": "0", "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "3"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def name(span: Exported) -> tuple[str, str]:
    return span.trace, span.span


def links(spans: list[Exported]) -> list[list[tuple[str, str]]]:
    return [span.links for span in spans]


@pytest.mark.slow
def test_each_attempt_links_to_the_one_before_whichever_relay_that_was(
    stage: Stage, collector: Collector
) -> None:
    """Attempt 2 is made by another relay, which has heard nothing of attempt 1; so is one after a death."""
    here = stage.relay("here", traced(collector, **AT_ONCE))
    stage.producer(here).schedule(TOPIC, "twice", {"nack_until": 2, "retry_after": 3_600})
    stage.producer(here).schedule(TOPIC, "once")
    first_application = stage.application(here, TOPIC, name="first")
    wait_spans(collector, f"deliver {TOPIC}", 2)
    assert first_application.terminate() == 0
    assert here.terminate() == 0
    there = stage.relay("there", traced(collector, **AT_ONCE))
    stage.application(there, TOPIC, name="second")
    assert command("run", TOPIC, "twice", "--target", there.target).code == 0
    stage.wait_empty(TOPIC)
    assert there.terminate() == 0
    delivers = wait_spans(collector, f"deliver {TOPIC}", 3)
    once = [span for span in delivers if span.attributes["messaging.message.id"] == "once"]
    first, second = [span for span in delivers if span.attributes["messaging.message.id"] == "twice"]
    assert [span.attributes["relay.attempt"] for span in (first, second)] == [1, 2]
    assert first.resource["service.instance.id"] != second.resource["service.instance.id"]
    assert (first.links, second.links) == ([], [name(first)])
    assert links(once) == [[]]


def test_a_redrive_links_to_the_death(stage: Stage, collector: Collector) -> None:
    """To the last delivery before it; and what lives again gets spans of its own, linked among themselves."""
    relay = stage.relay(settings=traced(collector, **AT_ONCE))
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "poison", {"nack_until": 4, "retry_after": 0})
    stage.application(relay, TOPIC)
    with Operator(relay) as operator:
        (letter,) = eventually(operator.dead, "it is dead")
        producer.schedule(TOPIC, "bad", {"reject": True}, metadata=[("traceparent", UNSAMPLED)])
        letters = eventually(lambda: found if len(found := operator.dead()) == 2 else [], "so is the other")
        operator.redrive(*letters)
        eventually(lambda: len(operator.dead()) == 2, "both die again")
        assert letter.dead_id not in {each.dead_id for each in operator.dead()}
        operator.purge()
    stage.wait_empty(TOPIC)
    assert relay.terminate() == 0
    delivers = wait_spans(collector, f"deliver {TOPIC}", 6)
    assert len({name(span) for span in delivers}) == len(delivers) == 6
    (redrive,) = collector.spans(f"redrive {TOPIC}")
    assert redrive.links == [name(delivers[2])], "the death of what is not traced is linked to nothing"
    assert redrive.parent == ""
    assert redrive.attributes["messaging.operation.name"] == "redrive"
    assert links(delivers) == [
        [],
        [name(delivers[0])],
        [name(delivers[1])],
        [],
        [name(delivers[3])],
        [name(delivers[4])],
    ]


def test_links_of_an_old_trace(stage: Stage, collector: Collector) -> None:
    """Each delivery of a trace that began hours ago is in a trace of its own; the links find it there."""
    relay = stage.relay(settings=traced(collector, OTEL_TRACES_SAMPLER="parentbased_always_off", **AT_ONCE))
    old = {"traceparent": SAMPLED, "tracestate": f"relay={int(time.time()) - 4_000}"}
    stage.producer(relay).schedule(
        TOPIC, "old", {"nack_until": 3, "retry_after": 0}, metadata=list(old.items())
    )
    stage.application(relay, TOPIC)
    wait_spans(collector, f"commit {TOPIC}")
    (schedule,) = wait_spans(collector, f"schedule {TOPIC}")
    delivers = wait_spans(collector, f"deliver {TOPIC}", 3)
    assert len({span.trace for span in delivers} | {TRACE}) == 4
    assert links(delivers) == [
        [name(schedule)],
        [name(schedule), name(delivers[0])],
        [name(schedule), name(delivers[1])],
    ]


def test_a_delivery_after_a_broken_stream_links_to_the_one_that_broke(
    stage: Stage, collector: Collector
) -> None:
    relay, gate = stage.relay(settings=traced(collector, **AT_ONCE)), stage.gate()
    stage.producer(relay).schedule(TOPIC, "deadly", {"gate": str(gate), "die": "end", "die_until": 2})
    application = stage.application(relay, TOPIC, wait=False)
    stage.let_kill(application, TOPIC, "deadly", 1, gate)
    gate.touch()
    application.revive()
    first, second = wait_spans(collector, f"deliver {TOPIC}", 2)
    assert first.attributes["error.type"] == "broken"
    assert second.links == [name(first)]


@pytest.mark.slow
def test_nothing_waits_within_a_span(stage: Stage, collector: Collector) -> None:
    """However long a timer waits, and however long it is tried again: no span is open meanwhile. One from
    a month ago has no part in its trace but a link."""
    relay = stage.relay(settings=traced(collector, **AT_ONCE))
    month = {"traceparent": SAMPLED, "tracestate": f"relay={int(time.time()) - 30 * 86_400}"}
    publish(stage.server.url, TOPIC, ["month"], headers=month)
    stage.producer(relay).schedule(TOPIC, "soon", {"nack_until": 2, "retry_after": 1.0}, delay=1.0)
    stage.application(relay, TOPIC)
    stage.wait_empty(TOPIC)
    assert relay.terminate() == 0
    spans = collector.spans()
    (schedule,) = collector.spans(f"schedule {TOPIC}")
    delivers = collector.spans(f"deliver {TOPIC}")
    first, second = [span for span in delivers if span.attributes["messaging.message.id"] == "soon"]
    assert schedule.end < first.start
    assert first.end < second.start
    own = [span for span in spans if span.trace == schedule.trace]
    assert len(own) >= 3
    for waits in (schedule.end + 1_000_000, first.end + 1_000_000):  # a millisecond later
        assert [span.name for span in own if span.start < waits < span.end] == []
    (delivered,) = [span for span in spans if span.attributes.get("messaging.message.id") == "month"]
    assert delivered.trace != TRACE
    assert delivered.links == [(TRACE, CALLER)]
