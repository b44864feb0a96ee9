"""Metrics leave by OTLP as OpenTelemetry's variables say, with the same numbers that Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.trace import SpanContext

from relay.core.dispatch import Dispatch, DispatchState, GroupStats
from relay.core.timers import TopicStats
from relay.telemetry.metrics import pushing
from relay.telemetry.metrics.catalogue import (
    ACTIONS_TRIMMED,
    ACTIONS_UNWRITTEN,
    ALL,
    CLAIMED,
    CLOCK_STEPPED_BACK,
    CONNECTIONS_REFUSED,
    DEAD,
    DELIVERED,
    DENIED,
    EXPIRED,
    FILES_REFUSED,
    FILES_TAKEN_OVER,
    HELD_BACK,
    JOURNAL_TRIMMED,
    LATENESS,
    LEFT_OUT,
    MOVED,
    ORPHANS,
    OVER_BOUND,
    PARKED,
    PROMOTED,
    REDRIVEN,
    RELEASED,
    REPAIRED,
    RETRIED,
    RETURNED,
    SCHEDULED,
    SETTLED,
    SILENT,
    STALE,
    STORE_ERRORS,
    STREAM_DROPPED,
    STREAM_TRIMMED,
    TICKED,
    TRIMMED,
    UNAUTHENTICATED,
    UNDELIVERABLE,
    UNHEARD,
    UNREADABLE,
    InstrumentKind,
)
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.otel_env import METRICS, WrongVariable, exporters, interval, protocol
from tests.collector import Collector, collecting, posted
from tests.servers import free_port

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SPAN = SpanContext(0xA1, 0xB2, is_remote=False)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.endpoint)
        yield collector


def traffic(metrics: Metrics) -> None:
    """Something of everything that is measured."""
    count = metrics.instruments
    for topic in ("orders", "mails"):
        count.count(SCHEDULED, topic, n=3)
        count.count(CLAIMED, topic, n=3)
        count.count(DELIVERED, topic, n=3)
        count.count(RETRIED, topic)
        count.count(SETTLED, topic, "ack", n=2)
        count.count(MOVED, topic)
        count.count(RELEASED, topic)
        count.count(STALE, topic)
        count.count(SILENT, topic)
        count.count(PROMOTED, topic)
        count.count(TICKED, topic)
        count.count(LEFT_OUT, topic, "overlap")
        count.count(RETURNED, topic)
        count.count(STREAM_TRIMMED, topic)
        count.count(STREAM_DROPPED, topic)
        count.count(DEAD, topic, "rejected")
        count.count(EXPIRED, topic)
        count.count(REDRIVEN, topic)
        count.count(TRIMMED, topic)
        count.count(REPAIRED, topic, "payload")
        count.count(ORPHANS, topic)
        count.count(UNDELIVERABLE, topic)
        count.count(JOURNAL_TRIMMED, topic)
        count.count(CLOCK_STEPPED_BACK)
        count.lateness(topic, [0.0005, 0.3, 20_000.0])
        count.handled(topic, 0.004, 1)
        count.schedule_took(topic, 0.002)
    count.count(UNHEARD, "PUBLISH")
    count.count(STORE_ERRORS, "StoreUnavailable")
    count.round_trip("claim", 0.0003)
    count.http_request("GET", "/v1/topics", 503, 0.003)
    count.count(UNREADABLE, "relay.v1.TimerService/Schedule")
    count.count(CONNECTIONS_REFUSED, "api", "slow")
    count.count(UNAUTHENTICATED, "grpc")
    count.count(DENIED, "read")
    count.count(ACTIONS_TRIMMED)
    count.count(OVER_BOUND, "token:shop", "max_calls")
    count.count(HELD_BACK, "token:shop", n=0.1)
    count.count(ACTIONS_UNWRITTEN)
    count.count(PARKED, "orders")
    count.count(FILES_TAKEN_OVER, "policy_file")
    count.count(FILES_REFUSED, "policy_file")


async def shown(gauges: Any) -> None:
    here = {"orders": 2}
    vitals = RelayState(
        here, here, here, 10, 8, 1, {"lease_keeper": 0.5}, {"a:7000": True}, {"a:7000": 0.1}, {"a:7000": -1.0}
    )
    group = GroupStats("billing", pending=1, unread=2, waiting=3, consumers=4, overdue=5.5)
    gauges.show(
        vitals,
        [
            TopicStats("orders", 5_000_000, 7, 2, 2_000_000, 4, None, None, journal_keeps=9, cold=(1, 2, 3)),
            TopicStats(
                "jobs", 0, 0, 0, None, 0, None, None, DispatchState(Dispatch.LIST, ready=5, processing=6)
            ),
            TopicStats(
                "fan",
                0,
                0,
                0,
                None,
                0,
                None,
                None,
                DispatchState(Dispatch.STREAM, entries=7, groups=(group,)),
            ),
        ],
    )


async def test_everything_arrives_and_is_described(collector: Collector) -> None:
    metrics = Metrics(pushing.pushers(["otlp"]))
    metrics.look = shown
    traffic(metrics)
    await pushing.step(metrics)
    (points,) = collector.exports
    told = {point.name: point for point in points}
    assert set(told) == {spec.name for spec in ALL}
    kinds = {
        "sum": (InstrumentKind.COUNTER, InstrumentKind.UP_DOWN_COUNTER),
        "gauge": (InstrumentKind.GAUGE,),
        "histogram": (InstrumentKind.HISTOGRAM,),
    }
    for spec in ALL:
        point = told[spec.name]
        assert (point.unit, point.description) == (spec.unit, spec.description)
        assert tuple(sorted(point.attributes)) == tuple(sorted(spec.attributes))
        assert spec.kind in kinds[point.kind]
        assert point.bounds == spec.bounds
        assert point.resource["service.name"] == "relay"
    assert collector.last("relay.timers.settled", topic="orders", outcome="ack") == 2
    assert collector.last("relay.topic.oldest_due.age", topic="orders") == 3.0
    assert collector.last("relay.topic.next_due.timestamp", topic="orders") == 2.0
    assert collector.last("relay.topic.dead", topic="orders") == 4
    assert collector.last("relay.list.ready", topic="jobs") == 5
    assert collector.last("relay.stream.entries", topic="fan") == 7
    assert collector.last("relay.group.unread", topic="fan", group="billing") == 2
    assert collector.last("relay.group.consumers", topic="fan", group="billing") == 4
    assert collector.last("relay.group.oldest_retry.age", topic="fan", group="billing") == 5.5
    assert collector.last("relay.journal.limit", topic="orders") == 9
    (late,) = [point for point in points if point.name == LATENESS.name and "orders" in str(point.attributes)]
    assert (late.value, late.delta) == (3, False)
    assert late.sum == pytest.approx(20_000.3005)
    assert (late.buckets[0], late.buckets[8], late.buckets[-1]) == (1, 1, 1)
    await pushing.close(metrics, timeout=60.0)
    assert len(collector.exports) == 2, "the last numbers leave as the relay stops"


async def test_exemplars_go_out_once(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of each bucket, at the next export, and not again."""
    metrics = Metrics(pushing.pushers(["otlp"]))
    count = metrics.instruments
    count.lateness("orders", [0.3, 0.3])
    for span_id in (1, 2):
        count.late("orders", 0.3, SpanContext(0xA1, span_id, is_remote=False))
    count.handled("orders", 7.0, 1, [SPAN])
    await pushing.step(metrics)
    await pushing.step(metrics)
    first, second = collector.points("relay.lateness")
    assert first.exemplars == [(0.3, f"{0xA1:032x}", f"{2:016x}")]
    assert second.exemplars == []
    assert collector.points("relay.handler.duration")[0].exemplars == [(7.0, f"{0xA1:032x}", f"{0xB2:016x}")]
    await pushing.close(metrics, timeout=60.0)
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_off")
    metrics = Metrics(pushing.pushers(["otlp"]))
    metrics.instruments.handled("orders", 7.0, 1, [SPAN])
    await pushing.close(metrics, timeout=60.0)
    assert collector.points("relay.handler.duration")[-1].exemplars == []


async def test_differences_for_who_wants_them(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    metrics = Metrics(pushing.pushers(["otlp"]))
    metrics.instruments.lateness("orders", [0.3, 0.3])
    await pushing.step(metrics)
    metrics.instruments.lateness("orders", [0.0005, 0.3])
    await pushing.step(metrics)
    await pushing.step(metrics)
    first, second = collector.points("relay.lateness")
    assert first.delta
    assert (first.value, first.buckets[8], second.value, second.buckets[0], second.buckets[8]) == (
        2,
        2,
        2,
        1,
        1,
    )
    assert second.sum == pytest.approx(0.3005)
    await pushing.close(metrics, timeout=60.0)


async def test_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other protocol, to a server that takes POST."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    with posted() as (endpoint, came):
        monkeypatch.setenv(ENDPOINT, endpoint)
        metrics = Metrics(pushing.pushers(["otlp"]))
        metrics.instruments.count(SCHEDULED, "orders", n=5)
        await pushing.close(metrics, timeout=60.0)
    ((path, body),) = came
    assert path == "/v1/metrics"
    collector = Collector()
    collector.take(ExportMetricsServiceRequest.FromString(body))
    assert collector.last("relay.timers.scheduled", topic="orders") == 5


async def test_close_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a collector that is away for longer than he said; a push neither raises."""
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    metrics = Metrics(pushing.pushers(["otlp"]))
    began = time.monotonic()
    await pushing.close(metrics, timeout=0.2)
    assert time.monotonic() - began < 120.0, "it waited as long as the exporter does by itself"


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, []),
        ({ENDPOINT: "http://c:4317"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4317"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, []),
        ({"OTEL_METRICS_EXPORTER": "none", ENDPOINT: "http://c:4317"}, []),
        ({"OTEL_METRICS_EXPORTER": "prometheus", ENDPOINT: "http://c:4317"}, []),
        ({"OTEL_METRICS_EXPORTER": "otlp,prometheus"}, ["otlp"]),
        ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://c:4317"}, []),
    ],
)
def test_who_wants_metrics(variables: dict[str, str], wanted: list[str]) -> None:
    assert exporters(variables, METRICS) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_METRICS_EXPORTER", "statsd"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "some"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "deltas"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "c"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "thrift"),
    ],
)
def test_wrong_variables_are_named(name: str, value: str) -> None:
    variables = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", name: value}
    with pytest.raises(WrongVariable) as refusal:
        exporters(variables, METRICS)
    assert refusal.value.name == name


def test_interval_and_protocol() -> None:
    assert (interval({}), interval({"OTEL_METRIC_EXPORT_INTERVAL": "250"})) == (60.0, 0.25)
    own = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}
    assert (protocol(own, METRICS), protocol(own)) == ("http/protobuf", "grpc")
