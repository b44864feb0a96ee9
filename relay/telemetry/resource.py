"""The resource of spans and metrics, which names the relay."""

from __future__ import annotations

from functools import cache
from uuid import uuid4

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from relay import __version__


@cache
def _instance() -> str:
    """The instance id, which is the same in spans and in metrics, so that they can be joined."""
    return str(uuid4())


def resource() -> Resource:
    """Return the resource that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES describe. The default name is
    `relay`."""
    ours = {"service.name": "relay", "service.version": __version__, "service.instance.id": _instance()}
    # The variables come last, and override the rest.
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
