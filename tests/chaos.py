"""How long the long tests are: short in `make test-all`, long in `make chaos`.

Both assert the same. The long forms kill more often and search further; what they find is as true as what the
short ones find, but they take an hour that nobody waits for at each change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

CHAOS = os.environ.get("RELAY_TEST_CHAOS") == "1"
"""Whether this is `make chaos`. Tests that are marked `chaos` run only then."""


def count(short: int, long: int) -> int:
    """How often something is done: `long` in `make chaos`, otherwise `short`."""
    return long if CHAOS else short


def in_long(values: Iterable[object]) -> list[ParameterSet]:
    """Parameters that only `make chaos` takes: the short form has others for what they show."""
    return [pytest.param(value, marks=pytest.mark.chaos) for value in values]


def seed(short: int) -> int:
    """Where chance begins: the same at each run, and another one in `make chaos`. A test prints it, and
    `RELAY_TEST_SEED` repeats it."""
    return int(os.environ.get("RELAY_TEST_SEED", time.time_ns() // 1_000_000 if CHAOS else short))
