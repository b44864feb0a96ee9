"""Pushes metrics where OpenTelemetry's variables say, again and again.

This is imported only if they ask for it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)

from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.histograms import Changes, Histograms, joined
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.otel_env import CONSOLE, GRPC, METRICS, exemplars, interval, protocol, unset_empty

FLUSH_TIMEOUT = 2.0
"""Seconds that the last export has when the daemon stops."""

log = logging.getLogger(__name__)


def pushers(names: Sequence[str]) -> Callable[[Histograms], list[MetricReader]]:
    """What `Metrics` wants, for `names` (see `variables.exporters`)."""

    def make(histograms: Histograms) -> list[MetricReader]:
        unset_empty(os.environ)
        # Without an interval they have no thread that collects: `push` does, after a look at the gauges.
        return [
            PeriodicExportingMetricReader(_Joining(_exporter(name), histograms), math.inf) for name in names
        ]

    return make


async def push(metrics: Metrics) -> None:
    """Export until cancelled, as often as OTEL_METRIC_EXPORT_INTERVAL says."""
    while True:
        await anyio.sleep(interval(os.environ))
        await step(metrics)


async def step(metrics: Metrics) -> None:
    """Export once."""
    await metrics.look(metrics.gauges)
    for reader in metrics.pushers:
        try:
            await anyio.to_thread.run_sync(reader.collect, abandon_on_cancel=True)
        except Exception:  # whatever it is, it must not end the loop
            log.exception("metrics could not be exported")


async def close(metrics: Metrics, timeout: float = FLUSH_TIMEOUT) -> None:
    """Export what is left, for at most `timeout` seconds."""
    metrics.gauges.show(RelayState(), ())  # it has nothing any more
    flushed = anyio.Event()
    loop = anyio.lowlevel.current_token()

    def flush() -> None:
        for reader in metrics.pushers:
            reader.collect()
        try:
            anyio.from_thread.run_sync(flushed.set, token=loop)
        except anyio.RunFinishedError:
            pass  # nobody waits for it any more

    # A thread of its own, which the process need not wait for: an exporter may try for long.
    threading.Thread(target=flush, name="relay-metrics", daemon=True).start()
    with anyio.move_on_after(timeout):
        await flushed.wait()
    for reader in metrics.pushers:
        reader.shutdown()


class _Joining(MetricExporter):
    """Hands the histograms on beside what the SDK has."""

    def __init__(self, inner: MetricExporter, histograms: Histograms) -> None:
        temporality, aggregation = inner._preferred_temporality, inner._preferred_aggregation  # noqa: SLF001
        super().__init__(temporality, aggregation)
        self._inner = inner
        self._histograms = histograms
        delta = (temporality or {}).get(Histogram) is AggregationTemporality.DELTA
        self._changes = Changes(delta=delta, exemplars=exemplars(os.environ))

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """See `MetricExporter.export`."""
        changed = [self._changes(metric) for metric in self._histograms.metrics()]
        data = joined(metrics_data, [metric for metric in changed if metric is not None])
        return self._inner.export(data, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """See `MetricExporter.force_flush`."""
        return self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """See `MetricExporter.shutdown`."""
        self._inner.shutdown(timeout_millis, **kwargs)


def _exporter(name: str) -> MetricExporter:
    if name == CONSOLE:
        return ConsoleMetricExporter()
    if protocol(os.environ, METRICS) == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp()
