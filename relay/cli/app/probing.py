"""Probes and metrics of an application's processes, over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from relay.cli.app.supervising import Supervisor
from relay.worker.handled_counts import BUCKETS, TopicCounts, added

PATIENCE = 10.0
"""Seconds that a request waits for the processes' answers."""

STATES = ("ready", "starting", "silent", "away")


class AppMetrics(Collector):
    """What handlers did, summed over all processes, and how these stand."""

    def __init__(self, counts: dict[str, TopicCounts], states: list[str], restarts: int) -> None:
        self._counts = counts
        self._states = states
        self._restarts = restarts

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        ended = CounterMetricFamily(
            "relay_app_deliveries", "Deliveries that handlers have ended.", labels=["topic", "outcome"]
        )
        took = HistogramMetricFamily(
            "relay_app_handler_seconds", "How long handlers have run, in seconds.", labels=["topic"]
        )
        running = GaugeMetricFamily("relay_app_handlers_running", "Handlers that run now.", labels=["topic"])
        for topic, each in sorted(self._counts.items()):
            for outcome, count in sorted(each["outcomes"].items()):
                ended.add_metric([topic, outcome], count)
            bounds = [*map(str, BUCKETS), "+Inf"]
            buckets = list(zip(bounds, accumulate(each["buckets"]), strict=True))
            took.add_metric([topic], buckets=buckets, sum_value=each["seconds"])
            running.add_metric([topic], each["running"])
        workers = GaugeMetricFamily("relay_app_workers", "Processes, by how they stand.", labels=["state"])
        for state in STATES:
            workers.add_metric([state], self._states.count(state))
        restarts = CounterMetricFamily(
            "relay_app_restarts", "Processes that were started because one had ended by itself."
        )
        restarts.add_metric([], self._restarts)
        yield from (ended, took, running, workers, restarts)


class AppProbes:
    """Answers requests. Each asks the processes themselves, on the event loop that keeps them."""

    def __init__(self, supervisor: Supervisor, loop: asyncio.AbstractEventLoop) -> None:
        self._supervisor = supervisor
        self._loop = loop

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if path == "/healthz/live":
            return _verdict([])
        if path == "/healthz/ready":
            return _verdict(self._reasons(self._ask()))
        if path == "/metrics":
            states = self._ask()
            registry = CollectorRegistry()
            counts = added(worker.counts for worker in self._supervisor.workers)
            registry.register(AppMetrics(counts, states, self._supervisor.restarts))
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        return 404, "text/plain", b"/healthz/live, /healthz/ready, /metrics\n"

    def _ask(self) -> list[str]:
        async def ask() -> list[str]:
            return await asyncio.gather(*(worker.state() for worker in self._supervisor.workers))

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(PATIENCE)

    def _reasons(self, states: list[str]) -> list[str]:
        if self._supervisor.stopping.is_set():
            return ["draining"]
        numbered = zip(self._supervisor.workers, states, strict=True)
        return [f"worker {worker.number} is {state}" for worker, state in numbered if state != "ready"]


def serve(probes: AppProbes, host: str, port: int) -> ThreadingHTTPServer:
    """Answer requests in threads until `shutdown`. Raises `OSError` if it can't listen there."""

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            status, kind, body = probes.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    server = Server((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server


def _verdict(reasons: list[str]) -> tuple[int, str, bytes]:
    body = {"status": "failing" if reasons else "ok", "reasons": reasons}
    return 503 if reasons else 200, "application/json", json.dumps(body).encode()
