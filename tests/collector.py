"""An OpenTelemetry collector as far as traces go: it takes spans by OTLP over gRPC and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
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


class Collector(TraceServiceServicer):
    """Keeps what was exported; `spans` may be asked at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Exported] = []
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

    def spans(self, name: str | None = None) -> list[Exported]:
        """All, or those of a name, in the order of their starts."""
        with self._lock:
            found = [span for span in self._spans if name in (None, span.name)]
        return sorted(found, key=lambda span: span.start)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens on loopback."""
    server = grpc.server(ThreadPoolExecutor(4))
    collector = Collector()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
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


def _plain(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}
