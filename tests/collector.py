"""An OpenTelemetry collector: it takes spans and metrics by OTLP over gRPC and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

KINDS = {
    trace_pb2.Span.SPAN_KIND_INTERNAL: "INTERNAL",
    trace_pb2.Span.SPAN_KIND_CLIENT: "CLIENT",
    trace_pb2.Span.SPAN_KIND_PRODUCER: "PRODUCER",
    trace_pb2.Span.SPAN_KIND_CONSUMER: "CONSUMER",
}


@dataclass(frozen=True)
class Exported:
    """One span, as it came over the wire. Ids are hex, times nanoseconds, links (trace, span)."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    failed: bool
    words: str
    resource: dict[str, Any]
    metadata: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Point:
    """One point of a metric as it came. `value` is a histogram's count; `exemplars` (value, trace, span)."""

    name: str
    unit: str
    description: str
    kind: str
    attributes: dict[str, Any]
    value: float
    sum: float
    buckets: tuple[int, ...]
    bounds: tuple[float, ...]
    exemplars: list[tuple[float, str, str]]
    delta: bool
    resource: dict[str, Any]


class Collector(TraceServiceServicer):
    """Keeps what was exported; `spans` and `points` may be asked at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Exported] = []
        self._exports: list[list[Point]] = []
        self.endpoint = ""

    def Export(
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        with self._lock:
            for of_resource in request.resource_spans:
                resource = _plain(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    self._spans += [_exported(span, resource, metadata) for span in of_scope.spans]
        return ExportTraceServiceResponse()

    def take(self, request: ExportMetricsServiceRequest) -> None:
        """One export of metrics."""
        points = [
            point
            for of_resource in request.resource_metrics
            for of_scope in of_resource.scope_metrics
            for metric in of_scope.metrics
            for point in _points(metric, _plain(of_resource.resource.attributes))
        ]
        with self._lock:
            self._exports.append(points)

    @property
    def exports(self) -> list[list[Point]]:
        """The points of each export."""
        with self._lock:
            return list(self._exports)

    def points(self, name: str) -> list[Point]:
        """Of a metric, in the order of their coming."""
        return [point for export in self.exports for point in export if point.name == name]

    def last(self, name: str, **attributes: str) -> float | None:
        """The value that came last."""
        found = [point.value for point in self.points(name) if point.attributes == attributes]
        return found[-1] if found else None

    def spans(self, name: str | None = None) -> list[Exported]:
        """All, or those of a name, in the order of their starts."""
        with self._lock:
            found = [span for span in self._spans if name in (None, span.name)]
        return sorted(found, key=lambda span: span.start)


class _Metrics(MetricsServiceServicer):
    """Both services have a method of the same name."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(
        self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> ExportMetricsServiceResponse:
        self._collector.take(request)
        return ExportMetricsServiceResponse()


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens on loopback."""
    server = grpc.server(ThreadPoolExecutor(4))
    collector = Collector()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(_Metrics(collector), server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _exported(span: trace_pb2.Span, resource: dict[str, Any], metadata: dict[str, str]) -> Exported:
    return Exported(
        span.name,
        KINDS[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.status.message,
        resource,
        metadata,
    )


def _points(metric: metrics_pb2.Metric, resource: dict[str, Any]) -> Iterator[Point]:
    kind = metric.WhichOneof("data") or ""
    data = getattr(metric, kind)
    delta = getattr(data, "aggregation_temporality", 0) == metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
    for point in data.data_points:
        spread = kind == "histogram"
        yield Point(
            metric.name,
            metric.unit,
            metric.description,
            kind,
            _plain(point.attributes),
            point.count if spread else getattr(point, point.WhichOneof("value") or "as_int"),
            point.sum if spread else 0.0,
            tuple(point.bucket_counts) if spread else (),
            tuple(point.explicit_bounds) if spread else (),
            [(each.as_double, each.trace_id.hex(), each.span_id.hex()) for each in point.exemplars],
            delta,
            resource,
        )


def _plain(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}


@contextmanager
def posted() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that takes OTLP over HTTP: its endpoint, and the path and body of each POST."""
    came: list[tuple[str, bytes]] = []

    class Post(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Not to standard error."""

    server = HTTPServer(("127.0.0.1", 0), Post)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
