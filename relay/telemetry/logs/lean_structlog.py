"""The parts of structlog that Relay uses, without rich.

If rich is installed, structlog imports it for coloured tracebacks, which a daemon never shows. That costs
each sidecar 45 ms and 4 MiB. So rich is hidden while structlog is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager  # see 0032
def _hidden(name: str) -> Iterator[None]:
    """Hide a module within the block, as if it were not installed, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = cast("ModuleType", None)  # Python's own way to mark a missing module
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
