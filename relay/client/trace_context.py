"""Trace context for applications that use OpenTelemetry. Without its API package nothing here has an
effect."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def current(headers: Mapping[str, str]) -> AbstractContextManager[None] | None:
    """Return a block within which the context of a delivery's headers is current; None if it is current
    already.

    For a delivery without a context none is current, not that in which the client happened to be opened.
    """
    api = _api()
    return None if api is None else api.current(headers)


def prepare() -> None:
    """Import what `current` needs. Otherwise a process's first delivery would be late by that time."""
    _api()


class _Api:
    """The parts of OpenTelemetry that are used. The import comes at the first use, and takes 10 to 40 ms."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate

        from relay.client.delivered_context import NONE, DeliveredContext

        self._context = context
        self._delivered = DeliveredContext
        self._none = NONE
        self.inject: Callable[[dict[str, str]], None] = propagate.inject

    def current(self, headers: Mapping[str, str]) -> AbstractContextManager[None] | None:
        """See `current`."""
        if _NAMES[0] in headers:
            return _Attached(self._context, self._delivered(dict(headers)))
        return _Attached(self._context, self._none) if self._context.get_current() else None


class _Attached:
    """A block within which a context is current. `contextlib`'s way to make one takes three times as long."""

    __slots__ = ("_api", "_context", "_token")

    def __init__(self, api: Any, context: Context) -> None:
        self._api = api
        self._context = context

    def __enter__(self) -> None:
        self._token = self._api.attach(self._context)

    def __exit__(self, *_: object) -> None:
        self._api.detach(self._token)


@functools.cache
def _api() -> _Api | None:
    try:
        return _Api()
    except ImportError:
        return None
    except ValueError as error:  # OTEL_PROPAGATORS names what is not installed
        _log.warning("trace context is not passed on: %s", error)
        return None
