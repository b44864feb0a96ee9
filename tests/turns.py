"""Which kind of server a test runs on: in `make test-all` one, in `make chaos` each.

No line of Relay's scripts is meant for one kind, so a suite that runs whole on each of four says the same
four times. The tests of a file take turns instead: each kind meets every script, and every verb of a store,
by some of them. What servers do differently is marked `every_server`, and runs on all of them without
`make chaos`, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import pytest

from tests.chaos import CHAOS

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def turn(metafunc: pytest.Metafunc) -> int:
    """The test's place among those of its file. Files begin at different kinds: some have one test."""
    tests = [name for name in vars(metafunc.module) if name.startswith("test_")]
    return crc32(metafunc.module.__name__.encode()) + tests.index(metafunc.function.__name__)


def in_turn(metafunc: pytest.Metafunc, kinds: Sequence[T]) -> list[ParameterSet]:
    """The kind whose turn it is; in the long form the others, too. All where servers differ."""
    if not kinds or any(metafunc.definition.iter_markers("every_server")):
        return [pytest.param(kind) for kind in kinds]
    mine = kinds[turn(metafunc) % len(kinds)]
    others = [kind for kind in kinds if kind != mine] if CHAOS else []
    return [pytest.param(mine), *(pytest.param(kind, marks=pytest.mark.chaos) for kind in others)]
