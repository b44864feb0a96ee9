"""What Kubernetes and Prometheus ask for, as a starlette application."""

from __future__ import annotations

from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class HealthProbe(Protocol):
    """Tells how the relay is. Both answer at once, from memory, and never ask Redis."""

    def live(self) -> list[str]:
        """Why the process should be restarted; empty if all its loops still turn."""
        ...

    def ready(self, *, needs_redis: bool) -> list[str]:
        """Why no calls should come now; empty if they may. `needs_redis`: a Redis that is away counts."""
        ...


class MetricsPage(Protocol):
    """What Prometheus scrapes."""

    async def scrape(self) -> tuple[bytes, str]:
        """The metrics as they stand, and their content type; soon, even while Redis is away."""
        ...


class Probes:
    """Answers the answers.

    `/healthz/live` is about this process alone: a Redis that is away must not restart every pod.
    `/healthz/startup` is fine from the first time on that the relay was ready.
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
        content, content_type = await self._metrics.scrape()
        return Response(content, headers={"content-type": content_type})

    def _ready(self) -> list[str]:
        reasons = self._health.ready(needs_redis=self._needs_redis)
        self._has_started = self._has_started or not reasons
        return reasons


def _answer(reasons: list[str]) -> Response:
    """200 without reasons, else 503; the body says the same."""
    status = "failing" if reasons else "ok"
    return JSONResponse(
        {"status": status, "reasons": reasons},
        status_code=503 if reasons else 200,
        headers={"cache-control": "no-store"},
    )


def probes(health: HealthProbe, metrics: MetricsPage, *, needs_redis: bool = True) -> Starlette:
    """`GET /healthz/live`, `/healthz/ready`, `/healthz/startup` and `/metrics`.

    `needs_redis`: the relay is not ready while Redis is away.
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
