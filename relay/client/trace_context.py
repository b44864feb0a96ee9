"""Trace context for applications that use OpenTelemetry. Without its API package nothing here has an
effect."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context

_log = logging.getLogger("relay.client")

_NAMES = ("traceparent", "tracestate")


def inject() -> tuple[tuple[str, str], ...]:
    """Return the current trace context as gRPC metadata, for a call that schedules."""
    api = _api()
    if api is None:
        return ()
    carrier: dict[str, str] = {}
    api.inject(carrier)
    return tuple((name, carrier[name]) for name in _NAMES if name in carrier)


def attach(headers: Mapping[str, str]) -> Token[Context] | None:
    """Make the context of a delivery's headers current, and return what `detach` takes; None if it is current
    already.

    For a delivery without a context none is current, not that in which the client happened to be opened.
    """
    api = _api()
    return None if api is None else api.attach(headers)


def detach(token: Token[Context] | None) -> None:
    """Make current what was so before `attach` returned this."""
    api = _api()
    if token is not None and api is not None:
        api.detach(token)


def prepare() -> None:
    """Import what `attach` needs. Otherwise a process's first delivery would be late by that time."""
    _api()


class _Api:
    """The parts of OpenTelemetry that are used. The import comes at the first use, and takes 10 to 40 ms."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate

        from relay.client.delivered_context import NONE, DeliveredContext

        self._attach, self._get_current = context.attach, context.get_current
        self._delivered = DeliveredContext
        self._none = NONE
        self.inject: Callable[[dict[str, str]], None] = propagate.inject
        self.detach: Callable[[Token[Context]], None] = context.detach

    def attach(self, headers: Mapping[str, str]) -> Token[Context] | None:
        """See `attach`."""
        if _NAMES[0] in headers:
            return self._attach(self._delivered(dict(headers)))
        return self._attach(self._none) if self._get_current() else None


@functools.cache
def _api() -> _Api | None:
    try:
        return _Api()
    except ImportError:
        return None
    except ValueError as error:  # OTEL_PROPAGATORS names what is not installed
        _log.warning("trace context is not passed on: %s", error)
        return None
