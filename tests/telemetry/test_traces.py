"""Trace context in headers, sampling, and OpenTelemetry's variables."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, Decision
from opentelemetry.trace import Link, SpanContext, TraceFlags

from relay.core.errors import ServiceError
from relay.core.timers import NewTimer, NewTimers
from relay.telemetry.logs.log_limits import SELDOM
from relay.telemetry.logs.log_setup import set_up_logs
from relay.telemetry.otel_env import WrongVariable, exporters, protocol
from relay.telemetry.traces.export import Exporting, LinksDecide
from relay.telemetry.traces.trace_context import carrier, first_seen, flagged, parse, renamed
from tests.collector import Collector, collecting, posted
from tests.servers import free_port

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


# ------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "text",
    [GOOD, f"00-{TRACE}-{SPAN}-03", f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01-what-comes-later"],
)
def test_a_good_traceparent(text: str) -> None:
    context = parse({"traceparent": text})
    assert context is not None
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}", context.is_remote) == (TRACE, SPAN, True)
    assert flagged(text) == context.trace_flags.sampled


@pytest.mark.parametrize(
    "text",
    [
        *("", "00", GOOD[:-1], GOOD + "-", GOOD + " ", GOOD.upper(), GOOD.replace("-", "_")),
        *(f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"),
        *(f"00-{TRACE}-{SPAN}-0g", f"00-{TRACE}-{SPAN}-01-more", "٠" + GOOD[1:]),
    ],
)
def test_a_malformed_traceparent_is_none(text: str) -> None:
    assert parse({"traceparent": text}) is None


@pytest.mark.parametrize(
    ("tracestate", "seen"),
    [
        ("relay=1767225605", 1767225605),
        ("v=1 ,\trelay=1767225605", 1767225605),
        *((text, None) for text in ("", "v=1", "xrelay=5", "relay=", "relay=-5", "relay=1.5", "relay=٣")),
        ("relay=" + "9" * 13, None),
    ],
)
def test_the_note_of_a_trace(tracestate: str, seen: int | None) -> None:
    assert first_seen({"tracestate": tracestate}) == seen


def context(tracestate: str = "") -> SpanContext:
    found = parse({"traceparent": GOOD, "tracestate": tracestate})
    assert found is not None
    return found


def test_the_note_is_made_once_and_first() -> None:
    assert carrier(context("v=1"), 7) == {"traceparent": GOOD, "tracestate": "relay=7,v=1"}
    assert carrier(context("v=1,relay=5"), 7)["tracestate"] == "v=1,relay=5"
    assert carrier(context("relay=odd,v=1"), 7)["tracestate"] == "relay=7,v=1"
    assert carrier(context("v=1")) == {"traceparent": GOOD, "tracestate": "v=1"}
    assert carrier(context()) == {"traceparent": GOOD}


def test_a_full_tracestate_loses_its_last_member() -> None:
    """The standard allows 32."""
    full = ",".join(f"v{n}=1" for n in range(32))
    assert carrier(context(full), 7)["tracestate"] == "relay=7," + full.removesuffix(",v31=1")


def test_a_tracestate_goes_with_its_traceparent() -> None:
    headers = {"a": "b", "traceparent": "other", "tracestate": "other=1"}
    assert renamed(headers, {"traceparent": GOOD}) == {"a": "b", "traceparent": GOOD}


# ------------------------------------------------------------------------ sampling


def decision(links: list[Link], parent: Context | None = None) -> Decision:
    return LinksDecide(DEFAULT_OFF).should_sample(parent or Context(), 1, "claim", links=links).decision


def test_links_are_as_good_as_a_parent() -> None:
    """For a root only: a parent has decided already."""
    sampled = [Link(SpanContext(1, 1, True, TraceFlags(1)))]
    assert decision(sampled) is Decision.RECORD_AND_SAMPLE
    assert decision([]) is Decision.DROP


# ----------------------------------------------------------------------- variables


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({ENDPOINT: "http://c:4317"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "c:4317"}, ["otlp"]),
        ({ENDPOINT: "unix:/run/collector"}, ["otlp"]),
        ({ENDPOINT: " "}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp", "console"]),
        ({"OTEL_TRACES_EXPORTER": "console", ENDPOINT: "http://c:4317"}, ["console"]),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4317"}, []),
        ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://c:4317"}, []),
        ({"OTEL_TRACES_SAMPLER": "nonsense"}, []),
        ({"OTEL_SERVICE_NAME": "relay"}, []),
    ],
)
def test_off_unless_asked_for(variables: dict[str, str], names: list[str]) -> None:
    assert exporters(variables) == names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_TRACES_EXPORTER", "otlp,none"),
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2049"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "1.5"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "thrift"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:port"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "key"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(WrongVariable, match=f"^{name}: ") as refusal:
        exporters({ENDPOINT: "http://c:4317", name: value})
    assert isinstance(refusal.value, ServiceError)


def test_the_ratio() -> None:
    """It counts with the samplers that have one only."""
    ratio = {ENDPOINT: "http://c:4317", "OTEL_TRACES_SAMPLER_ARG": "1.5"}
    assert exporters(ratio) == ["otlp"]
    with pytest.raises(WrongVariable, match="OTEL_TRACES_SAMPLER_ARG"):
        exporters({**ratio, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"})


def test_no_secret_is_repeated() -> None:
    for name, value in (
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer x,hunter2"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "htp://user:hunter2@c:4317"),
    ):
        with pytest.raises(WrongVariable) as refusal:
            exporters({"OTEL_TRACES_EXPORTER": "otlp", name: value})
        assert "hunter2" not in str(refusal.value)


def test_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    certificate = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem")}
    assert exporters({ENDPOINT: "https://c:4317", **certificate}) == ["otlp"]


def test_protocol() -> None:
    both = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert (protocol({}), protocol(both)) == ("grpc", "http/protobuf")


# ------------------------------------------------------------------------- exports


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def one_span(exporting: Exporting) -> None:
    timers = {"orders": NewTimers.of([NewTimer("1", b"x", delay=0)])}
    _, spans = exporting.tracing.schedule(timers)
    with spans:
        pass


async def test_variables_reach_the_collector(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, resource and headers; an empty variable is one that is not set."""
    monkeypatch.setenv(ENDPOINT, collector.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=shop,service.version=9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "")
    exporting = Exporting(["otlp"])
    one_span(exporting)
    await exporting.close(timeout=60.0)
    (span,) = collector.spans()
    assert span.name == "schedule orders"
    assert span.metadata["x-tenant"] == "a b"
    resource = span.resource
    assert resource.pop("service.instance.id")
    assert {name: resource[name] for name in resource if name.startswith("service.")} == {
        "service.name": "relay",
        "service.namespace": "shop",
        "service.version": "9",
    }


async def test_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other protocol, to a server that takes POST."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with posted() as (endpoint, came):
        monkeypatch.setenv(ENDPOINT, endpoint)
        exporting = Exporting(["otlp"])
        one_span(exporting)
        await exporting.close(timeout=60.0)
    ((path, body),) = came
    assert path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(body)
    assert request.resource_spans[0].scope_spans[0].spans[0].name == "schedule orders"


async def test_close_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a collector that is away for longer than he said."""
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    exporting = Exporting(["otlp"])
    one_span(exporting)
    began = time.monotonic()
    await exporting.close(timeout=0.2)
    assert time.monotonic() - began < 120.0, "it waited as long as the exporter does by itself"


def test_the_exporters_complaints_come_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("relay")
    before = list(root.handlers), root.level, ours.level
    try:
        set_up_logs("info", "json")
        for after in (0.0, 1.0, SELDOM + 1):
            for name, text in (("opentelemetry.exporter.x", "away: %s"), ("relay.x", "mine: %s")):
                record = logging.makeLogRecord({"name": name, "levelno": 40, "msg": text, "args": (after,)})
                record.created = 1e9 + after
                logging.getLogger(name).handle(record)
    finally:
        root.handlers[:], root_level, our_level = before
        root.setLevel(root_level)
        ours.setLevel(our_level)
    said = capsys.readouterr().err
    assert (said.count("away:"), said.count("mine:")) == (2, 3)
