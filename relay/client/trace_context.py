"""Trace context for applications that use OpenTelemetry. Without its API package nothing here has an
effect."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

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

        self._context = context
        self._extract = propagate.extract
        self.inject: Callable[[dict[str, str]], None] = propagate.inject
        self._none = context.Context()

    def current(self, headers: Mapping[str, str]) -> AbstractContextManager[None] | None:
        """See `current`."""
        if _NAMES[0] in headers:
            return self._attached(self._extract(dict(headers), context=self._none))
        return self._attached(self._none) if self._context.get_current() else None

    @contextlib.contextmanager
    def _attached(self, context: Context) -> Iterator[None]:
        token = self._context.attach(context)
        try:
            yield
        finally:
            self._context.detach(token)


@functools.cache
def _api() -> _Api | None:
    try:
        return _Api()
    except ImportError:
        return None
    except ValueError as error:  # OTEL_PROPAGATORS names what is not installed
        _log.warning("trace context is not passed on: %s", error)
        return None
