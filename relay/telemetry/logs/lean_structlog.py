"""The parts of structlog that Relay uses, without rich.

Where rich is installed, structlog imports it, for tracebacks in colour that a daemon never draws: 45 ms and
4 MiB of each sidecar. So it is hidden from it, and there again afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager  # see 0032
def _hidden(name: str) -> Iterator[None]:
    """As if a module were not installed, unless somebody has imported it already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = cast("ModuleType", None)  # Python's own way to say so
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    from structlog.processors import EventRenamer, ExceptionRenderer, JSONRenderer, StackInfoRenderer
    from structlog.stdlib import ExtraAdder, ProcessorFormatter
    from structlog.typing import EventDict, Processor

__all__ = [
    "EventDict",
    "EventRenamer",
    "ExceptionRenderer",
    "ExtraAdder",
    "JSONRenderer",
    "Processor",
    "ProcessorFormatter",
    "StackInfoRenderer",
]
