"""Puts the metrics together, and renders them for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from relay.telemetry.metrics.gauges import Gauges, RelayState
from relay.telemetry.metrics.histograms import Histograms, joined
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.resource import resource

Look = Callable[[Gauges], Awaitable[None]]
"""Reads the current state and updates the gauges. It never takes long, and never fails."""


class Metrics:
    """The instruments of one daemon, on a registry of its own: no process-wide state."""

    def __init__(self, pushers: Callable[[Histograms], list[MetricReader]] = lambda _: []) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._histograms = Histograms()
        self._lock = threading.Lock()
        self.pushers = pushers(self._histograms)
        pulled = _Pulled(self._histograms, self._registry)
        self.provider = MeterProvider(
            metric_readers=[pulled, *self.pushers], resource=self.resource(), shutdown_on_exit=False
        )
        self.instruments = Instruments(self.provider, self._histograms)
        self.gauges = Gauges(self.provider, self.instruments.topic)
        self.gauges.show(
            RelayState(), ()
        )  # the SDK passes nothing on, histograms neither, while it has nothing
        self.look: Look = _nothing

    @staticmethod
    def resource() -> Resource:
        """Who speaks."""
        return resource()

    async def scrape(self) -> tuple[bytes, str]:
        """Return all current metrics in Prometheus' text format, and its content type.

        This runs in a thread: a hundred topics make ten thousand lines, and timers must not wait for them.
        """
        await self.look(self.gauges)
        return await anyio.to_thread.run_sync(self.render)

    def render(self) -> tuple[bytes, str]:
        """Return the metrics with the gauges of the last update."""
        with self._lock:  # the exporter keeps what it collects in a queue that two scrapes would share
            return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def close(self) -> None:
        """Shut the provider down; `render` has nothing of its instruments afterwards."""
        self.provider.shutdown()


class _Pulled(PrometheusMetricReader):
    """The exporter for Prometheus, to which the histograms are handed beside what the SDK has."""

    def __init__(self, histograms: Histograms, registry: CollectorRegistry) -> None:
        super().__init__(registry=registry, scope_info_enabled=False)
        self._histograms = histograms

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        data = joined(metrics_data, self._histograms.metrics())
        super()._receive_metrics(data, timeout_millis, **kwargs)


async def _nothing(_: Gauges) -> None:
    """Nobody stands anywhere yet."""
