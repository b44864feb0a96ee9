"""Traces of real processes, exported to a real OTLP receiver: one tree, from the producer to the commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from tests.collector import Collector, Exported, collecting
from tests.e2e.peer import publish
from tests.e2e.traced_producer import SPAN
from tests.servers import free_port
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def traced(collector: Collector, **more: str) -> dict[str, str]:
    """What switches tracing on, and lets spans leave soon."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2",
        **more,
    }


def produce(stage: Stage, collector: Collector, relay: Relay, *arguments: str) -> None:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    options = ("--target", relay.target, "--topic", TOPIC)
    producer = stage.process("producer", "tests.e2e.traced_producer", *options, *arguments, settings=settings)
    assert producer.wait() == 0, producer.output()


def wait_spans(collector: Collector, name: str, count: int = 1) -> list[Exported]:
    def found() -> list[Exported]:
        spans = collector.spans(name)
        return spans if len(spans) >= count else []

    try:
        return eventually(found, f"{count} × {name!r}")
    except AssertionError as failure:
        failure.add_note(f"there are {[span.name for span in collector.spans()]}")
        raise


def parent_of(traceparent: str) -> tuple[str, str]:
    _, trace, span, flags = traceparent.split("-")
    assert flags[1] in "13", "not sampled"
    return trace, span


def check_delivery(stage: Stage, deliver: Exported, attempt: int = 1) -> None:
    """Its handler got the span's context, in the headers and as the current one."""
    start = stage.journal.starts(deliver.attributes["messaging.message.id"])[attempt - 1]
    assert start.headers is not None
    assert parent_of(start.headers["traceparent"]) == (deliver.trace, deliver.span)
    assert parent_of(start.current) == (deliver.trace, deliver.span)


def test_tree(stage: Stage, collector: Collector) -> None:
    """A traced producer, two relays and an application: one trace through all of them."""
    here = stage.relay("here", traced(collector, OTEL_SERVICE_NAME="relay-here"))
    there = stage.relay("there", traced(collector))
    stage.application(there, TOPIC)
    produce(stage, collector, here, "order-1")
    (commit,) = wait_spans(collector, "commit orders")
    (producer,), (schedule,) = wait_spans(collector, SPAN), wait_spans(collector, "schedule orders")
    (claim,), (deliver,) = wait_spans(collector, "claim orders"), wait_spans(collector, "deliver orders")
    assert {span.trace for span in (schedule, claim, deliver, commit)} == {producer.trace}
    assert [span.parent for span in (schedule, claim, deliver, commit)] == [
        producer.span,
        schedule.span,
        schedule.span,
        deliver.span,
    ]
    kinds = [span.kind for span in (schedule, claim, deliver, commit)]
    assert kinds == ["PRODUCER", "CLIENT", "CONSUMER", "CLIENT"]
    assert schedule.start <= claim.start <= deliver.start <= commit.start <= commit.end <= deliver.end
    assert claim.end <= deliver.start
    assert not any(span.failed for span in (schedule, claim, deliver, commit))
    occurrence = stage.journal.starts("order-1")[0].occurrence
    lateness = deliver.attributes.pop("relay.lateness")
    assert 0 <= lateness < 60
    assert deliver.attributes == {
        "messaging.system": "relay",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.destination.name": TOPIC,
        "messaging.message.id": "order-1",
        "relay.attempt": 1,
        "relay.occurrence_id": occurrence,
        "relay.outcome": "ack",
    }
    assert schedule.attributes["messaging.operation.type"] == "send"
    assert claim.attributes["messaging.operation.type"] == "receive"
    assert commit.attributes["messaging.operation.type"] == "settle"
    assert schedule.resource["service.name"] == "relay-here"
    assert deliver.resource["service.name"] == "relay"
    check_delivery(stage, deliver)


def test_retries(stage: Stage, collector: Collector) -> None:
    """Each attempt has a span of its own under one schedule; those that fail say with what."""
    relay = stage.relay(settings=traced(collector))
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "twice", {"nack_until": 3, "retry_after": 0})
    delivers = wait_spans(collector, "deliver orders", 3)
    (schedule,) = wait_spans(collector, "schedule orders")
    wait_spans(collector, "commit orders")
    assert schedule.parent == ""
    assert {(span.trace, span.parent) for span in delivers} == {(schedule.trace, schedule.span)}
    assert [span.attributes["relay.attempt"] for span in delivers] == [1, 2, 3]
    assert [span.attributes.get("error.type") for span in delivers] == ["nack", "nack", None]
    assert [span.failed for span in delivers] == [True, True, False]
    assert [span.words for span in delivers] == ["as asked", "as asked", ""]
    nacks = wait_spans(collector, "nack orders", 2)
    assert [span.parent for span in nacks] == [span.span for span in delivers[:2]]
    for attempt, deliver in enumerate(delivers, 1):
        check_delivery(stage, deliver, attempt)


def test_peers_timers(stage: Stage, collector: Collector) -> None:
    """What a peer has published with a context is traced like the rest; without one, or with a wrong
    one, it is not, and the wrong one arrives as it was."""
    relay = stage.relay(settings=traced(collector))
    publish(stage.server.url, TOPIC, ["with"], headers={"traceparent": SAMPLED, "tracestate": "v=1"})
    publish(stage.server.url, TOPIC, ["without"])
    publish(stage.server.url, TOPIC, ["wrong"], headers={"traceparent": SAMPLED + "-x"})
    stage.application(relay, TOPIC)
    (deliver,) = wait_spans(collector, "deliver orders")
    stage.wait_empty(TOPIC)
    assert (deliver.trace, deliver.parent) == (TRACE, CALLER)
    assert deliver.attributes["messaging.message.id"] == "with"
    (claim,) = wait_spans(collector, "claim orders")
    assert (claim.trace, claim.parent) == (TRACE, CALLER)
    check_delivery(stage, deliver)
    headers = stage.journal.starts("with")[0].headers or {}
    assert headers["tracestate"] == "v=1"
    assert (stage.journal.starts("wrong")[0].headers or {})["traceparent"] == SAMPLED + "-x"
    assert "traceparent" not in (stage.journal.starts("without")[0].headers or {})
    assert stage.journal.starts("without")[0].current == ""
    assert relay.terminate() == 0
    assert len(collector.spans("deliver orders")) == 1


def test_batch(stage: Stage, collector: Collector) -> None:
    """A batch has one schedule span; claims and commits that serve many timers link to them all,
    and are there although a trace that the relay began would not be sampled."""
    relay = stage.relay(settings=traced(collector, OTEL_TRACES_SAMPLER="parentbased_always_off"))
    names = [f"order-{n}" for n in range(20)]
    produce(stage, collector, relay, "--batch", *names)
    other = f"00-{'a' * 32}-{'b' * 16}-01"
    stage.producer(relay).schedule(TOPIC, "other", metadata=[("traceparent", other)])
    stage.application(relay, TOPIC)
    delivers = wait_spans(collector, "deliver orders", 21)
    stage.wait_empty(TOPIC)
    assert relay.terminate() == 0
    batch, single = wait_spans(collector, "schedule orders", 2)
    (producer,) = wait_spans(collector, SPAN)
    assert (batch.trace, batch.parent) == (producer.trace, producer.span)
    assert batch.attributes["messaging.batch.message_count"] == 20
    assert (single.trace, single.parent) == ("a" * 32, "b" * 16)
    assert {span.attributes["messaging.message.id"] for span in delivers} == {*names, "other"}
    assert [(span.trace, span.parent) for span in delivers].count((batch.trace, batch.span)) == 20
    (claim,) = collector.spans("claim orders")
    assert claim.parent == ""
    assert set(claim.links) == {(batch.trace, batch.span), (single.trace, single.span)}
    assert claim.attributes["messaging.batch.message_count"] == 21
    linked = {link for span in collector.spans("commit orders") for link in span.links}
    within = {(span.trace, span.parent) for span in collector.spans("commit orders") if span.parent}
    assert linked | within == {(span.trace, span.span) for span in delivers}


def test_unsampled(stage: Stage, collector: Collector) -> None:
    """No span for a producer that is not sampled, nor for one in a hundred that lost the draw; the
    handler gets the producer's context as it was."""
    relay = stage.relay(
        settings=traced(
            collector, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0"
        )
    )
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "no", metadata=[("traceparent", UNSAMPLED), ("tracestate", "v=1")])
    producer.schedule(TOPIC, "root")
    publish(stage.server.url, TOPIC, ["peer"], headers={"traceparent": UNSAMPLED})
    producer.schedule(TOPIC, "yes", metadata=[("traceparent", SAMPLED)])
    stage.wait_empty(TOPIC)
    assert relay.terminate() == 0
    headers = stage.journal.starts("no")[0].headers
    assert headers == {"traceparent": UNSAMPLED, "tracestate": "v=1"}
    assert stage.journal.starts("root")[0].headers == {}
    timers = {span.attributes.get("messaging.message.id") for span in collector.spans()}
    assert timers == {"yes", None}
    assert {span.trace for span in collector.spans()} == {TRACE}


def test_long_wait(stage: Stage, collector: Collector) -> None:
    """A trace that began hours ago is left: the delivery begins a new one, with a link back."""
    relay = stage.relay(settings=traced(collector, OTEL_TRACES_SAMPLER="parentbased_always_off"))
    old = {"traceparent": SAMPLED, "tracestate": f"relay={int(time.time()) - 4_000},v=1"}
    publish(stage.server.url, TOPIC, ["old"], headers=old)
    stage.application(relay, TOPIC)
    (commit,) = wait_spans(collector, "commit orders")
    (claim,), (deliver,) = wait_spans(collector, "claim orders"), wait_spans(collector, "deliver orders")
    assert deliver.trace != TRACE
    assert deliver.links == claim.links == [(TRACE, CALLER)]
    assert claim.parent == ""
    assert (deliver.trace, deliver.parent) == (claim.trace, claim.span)
    assert (commit.trace, commit.parent) == (deliver.trace, deliver.span)
    check_delivery(stage, deliver)
    assert "tracestate" not in (stage.journal.starts("old")[0].headers or {}), "it belongs to the old trace"


def test_a_chain_within_one_trace(stage: Stage, collector: Collector) -> None:
    """A handler that schedules does so in its delivery's trace, and the trace's age goes with it."""
    relay = stage.relay(settings=traced(collector))
    began = int(time.time()) - 1_000
    headers = {"traceparent": SAMPLED, "tracestate": f"relay={began}"}
    stage.producer(relay).schedule(TOPIC, "again", {"again": 0.01}, metadata=list(headers.items()))
    stage.application(relay, TOPIC)
    # The second may end before the first, whose handler scheduled it.
    first, second = sorted(wait_spans(collector, "deliver orders", 2), key=lambda span: span.start)
    first_schedule, second_schedule = wait_spans(collector, "schedule orders", 2)
    assert (first_schedule.trace, first_schedule.parent) == (TRACE, CALLER)
    assert (second_schedule.trace, second_schedule.parent) == (TRACE, first.span)
    assert (second.trace, second.parent) == (TRACE, second_schedule.span)
    starts = stage.journal.starts("again")
    assert [(start.headers or {})["tracestate"] for start in starts] == [f"relay={began}"] * 2
    assert first.attributes["relay.verdict"] == "stale", "its ACK came after the new intent"
    assert not first.failed


@pytest.mark.slow
def test_a_collector_that_is_away(stage: Stage) -> None:
    """Timers flow, the log stays readable, and the relay stops without waiting for the collector."""
    away: Mapping[str, str] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
        "OTEL_BSP_MAX_QUEUE_SIZE": "20",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "300",
    }
    started = time.monotonic()
    relay = stage.relay(settings=away)
    application = stage.application(relay, TOPIC)
    names = [f"order-{n}" for n in range(500)]
    stage.producer(relay).schedule_many(TOPIC, names)
    for name in names[:50]:
        stage.producer(relay).schedule(TOPIC, name)
    stage.wait_empty(TOPIC)
    assert set(stage.journal.ended()) == set(names)
    assert application.terminate() == 0
    began = time.monotonic()
    assert relay.terminate() == 0
    assert time.monotonic() - began < 120.0, "it waited as long as the exporter does by itself"
    complaints = [line for line in relay.lines() if line["logger"].startswith("opentelemetry")]
    minutes = (time.monotonic() - started) / 60
    assert 1 <= len(complaints) <= 6 * (1 + minutes), complaints


def test_a_wrong_variable(stage: Stage) -> None:
    """The relay does not start, and says which one it is."""
    settings = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "sometimes"}
    relay = stage.relay(settings=settings, start=False)
    relay.spawn()
    assert relay.wait() == 1
    (line,) = [line for line in relay.lines() if line["level"] == "critical"]
    assert line["message"].startswith("OTEL_TRACES_SAMPLER: 'sometimes' is not known; give one of always_on,")
