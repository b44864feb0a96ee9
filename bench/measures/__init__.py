"""The measurements: a module each, with one function `measure` that yields rows.

The order is that of `make bench` and of the page. A module's docstring says what is measured and how; its
first paragraph stands above its table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType
from typing import Protocol, cast

from bench.harness.rows import Row
from bench.harness.world import World
from bench.measures import (
    cluster,
    cost,
    dispatch,
    drain,
    durability,
    lateness,
    pages,
    payloads,
    peers,
    persistence,
    recurrences,
    relays,
    schedule,
    sealing,
    waiting,
)


class Measure(Protocol):
    """What each module offers."""

    def __call__(self, world: World) -> AsyncIterator[Row]:
        """The rows of one run."""
        ...


MODULES: tuple[ModuleType, ...] = (
    drain,
    dispatch,
    schedule,
    durability,
    peers,
    persistence,
    lateness,
    cost,
    relays,
    waiting,
    payloads,
    cluster,
    recurrences,
    pages,
    sealing,
)
MEASURES: dict[str, Measure] = {
    module.__name__.rpartition(".")[2]: cast("Measure", module.measure) for module in MODULES
}


def headline(name: str) -> str:
    """The first paragraph of a module's docstring."""
    (module,) = (each for each in MODULES if each.__name__.endswith(f".{name}"))
    return " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())
