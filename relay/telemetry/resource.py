"""Who speaks: the resource of spans and metrics."""

from __future__ import annotations

from functools import cache
from uuid import uuid4

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from relay import __version__


@cache
def _instance() -> str:
    """The same in spans and in metrics, so that they can be joined."""
    return str(uuid4())


def resource() -> Resource:
    """As OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say; the name is `relay` if they say nothing."""
    ours = {"service.name": "relay", "service.version": __version__, "service.instance.id": _instance()}
    # What the variables say comes last, and wins.
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
