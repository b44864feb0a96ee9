"""OpenTelemetry's context of a delivery. Importing this module imports OpenTelemetry; see `trace_context`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context

NONE = Context()
"""The context in which nothing is current."""

_READS = (
    *("__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__", "__or__", "__repr__"),
    *("__reversed__", "__ror__", "copy", "get", "items", "keys", "values"),
)
"""All that reads a dict, which a Context is."""

_filling = threading.RLock()
"""Held while headers are read: a handler's threads may ask at one time, and must not see half of it."""


class DeliveredContext(Context):
    """The context that a delivery's headers name.

    The headers are read by OpenTelemetry's propagators when somebody first asks for what is current. Most
    handlers never do, and reading takes longer than all else that the client does for a delivery.
    """

    __slots__ = ("_headers", "_read")

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers: dict[str, str] | None = headers
        self._read = False

    def _fill(self) -> None:
        with _filling:
            headers, self._headers = self._headers, None
            # None: another thread has read them by now, or a propagator itself asks for what is current.
            if headers is not None:
                dict.update(self, propagate.extract(headers, context=NONE))
                self._read = True


def _reading(name: str) -> Callable[..., Any]:
    """Return the method of dict that has this name, which reads the headers first."""
    method: Callable[..., Any] = getattr(dict, name)

    def read(self: DeliveredContext, *args: Any) -> Any:
        if not self._read:
            self._fill()
        return method(self, *args)

    return read


for _name in _READS:
    setattr(DeliveredContext, _name, _reading(_name))
