"""Puts the metrics together and renders them for Prometheus."""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from relay import __version__
from relay.telemetry.instruments import Instruments
from relay.telemetry.lateness import LatenessHistogram


class Metrics:
    """The instruments of one daemon, on a registry of its own: no process-wide state."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        reader = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)
        resource = Resource.create({"service.name": "relay", "service.version": __version__})
        self.provider = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        lateness = LatenessHistogram()
        self._registry.register(lateness)
        self.instruments = Instruments(self.provider, lateness)

    def render(self) -> tuple[bytes, str]:
        """All metrics in Prometheus' text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def close(self) -> None:
        """Shut the provider down; `render` has nothing of its instruments afterwards."""
        self.provider.shutdown()
