"""Probes and metrics for Kubernetes and Prometheus, as a starlette application."""

from __future__ import annotations

from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class HealthProbe(Protocol):
    """The state of the relay. Both methods answer at once from memory, and never ask Redis."""

    def live(self) -> list[str]:
        """Say why the process should be restarted; empty if all its loops turn."""
        ...

    def ready(self, *, needs_redis: bool) -> list[str]:
        """Say why no calls should come now; empty if they may. With `needs_redis`, a Redis that is away is a
        reason."""
        ...


class MetricsPage(Protocol):
    """The metrics that Prometheus scrapes."""

    async def scrape(self) -> tuple[bytes, str]:
        """Return the current metrics and their content type. This is quick, even while Redis is away."""
        ...


class Probes:
    """Answers the probes.

    `/healthz/live` is about this process alone: a Redis that is away must not restart every pod.
    `/healthz/startup` answers 200 once the relay has been ready for the first time.
    """

    def __init__(self, health: HealthProbe, metrics: MetricsPage, *, needs_redis: bool = True) -> None:
        self._needs_redis = needs_redis
        self._health = health
        self._metrics = metrics
        self._has_started = False

    async def live(self, _: Request) -> Response:
        return _answer(self._health.live())

    async def ready(self, _: Request) -> Response:
        return _answer(self._ready())

    async def startup(self, _: Request) -> Response:
        reasons = self._ready()
        return _answer([] if self._has_started else reasons)

    async def metrics(self, _: Request) -> Response:
        content, kind = await self._metrics.scrape()
        return Response(content, headers={"content-type": kind})

    def _ready(self) -> list[str]:
        reasons = self._health.ready(needs_redis=self._needs_redis)
        self._has_started = self._has_started or not reasons
        return reasons


def _answer(reasons: list[str]) -> Response:
    """Answer 200 if there are no reasons, otherwise 503; the body lists them."""
    status = "failing" if reasons else "ok"
    return JSONResponse(
        {"status": status, "reasons": reasons},
        status_code=503 if reasons else 200,
        headers={"cache-control": "no-store"},
    )


def probes(health: HealthProbe, metrics: MetricsPage, *, needs_redis: bool = True) -> Starlette:
    """Return an application for `GET /healthz/live`, `/healthz/ready`, `/healthz/startup` and `/metrics`.

    With `needs_redis` the relay is not ready while Redis is away.
    """
    answers = Probes(health, metrics, needs_redis=needs_redis)
    return Starlette(
        routes=[
            Route("/healthz/live", answers.live),
            Route("/healthz/ready", answers.ready),
            Route("/healthz/startup", answers.startup),
            Route("/metrics", answers.metrics),
        ]
    )
