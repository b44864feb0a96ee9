"""Sets up tracing as OpenTelemetry's variables say, and shuts it down within bounds.

Spans leave through the SDK's batch processor: the engine only appends to its queue, and a thread encodes
and sends. A full queue drops spans, never timers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import anyio
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes

from relay.telemetry.otel_env import CONSOLE, GRPC, protocol, unset_empty
from relay.telemetry.resource import resource
from relay.telemetry.traces.id_generator import DerivedIds
from relay.telemetry.traces.tracing import Tracing

FLUSH_TIMEOUT = 2.0
"""Seconds that the last spans have to leave when the daemon stops."""


class Exporting:
    """Tracing that exports to `names` (see `variables.exporters`)."""

    def __init__(self, names: Sequence[str]) -> None:
        unset_empty(os.environ)
        ids = DerivedIds()
        provider = TracerProvider(resource=resource(), id_generator=ids, shutdown_on_exit=False)
        by_flag = isinstance(provider.sampler, ParentBased)
        if by_flag:
            provider.sampler = LinksDecide(provider.sampler)
        self._exporters = [_exporter(name) for name in names]
        self._processors = [BatchSpanProcessor(exporter) for exporter in self._exporters]
        for processor in self._processors:
            provider.add_span_processor(processor)
        self.tracing = Tracing(provider, by_flag=by_flag, ids=ids)

    async def close(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Send what is left, for at most `timeout` seconds; the rest is dropped."""
        flushed = anyio.Event()
        loop = anyio.lowlevel.current_token()

        def flush() -> None:
            for processor in self._processors:
                processor.shutdown()  # type: ignore[no-untyped-call]
            try:
                anyio.from_thread.run_sync(flushed.set, token=loop)
            except anyio.RunFinishedError:
                pass  # nobody waits for it any more

        # It has a thread of its own, which the process need not wait for: the SDK gives up only after 30 s.
        threading.Thread(target=flush, name="relay-spans", daemon=True).start()
        with anyio.move_on_after(timeout):
            await flushed.wait()
            return
        for exporter in self._exporters:
            exporter.shutdown()


class LinksDecide(Sampler):
    """A parent-based sampler that treats the spans to which a root links as its parents.

    A claim that serves many timers has links and no parent, and so has a delivery that leaves an
    old trace. All spans that they link to are sampled: the decision was made there.
    """

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See `Sampler.should_sample`."""
        if links and not get_current_span(parent_context).get_span_context().is_valid:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """See `Sampler.get_description`."""
        return f"LinksDecide{{{self._inner.get_description()}}}"


def _exporter(name: str) -> SpanExporter:
    if name == CONSOLE:
        return ConsoleSpanExporter()
    # These are imported late: a relay needs one of the two, and most need neither.
    if protocol(os.environ) == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp()
