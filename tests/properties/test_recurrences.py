"""Random interleavings of ticks, changes and ends never lose or double a nominal instant; broken
scripts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.chaos import count, in_long
from tests.lua.breaks import BREAKS
from tests.properties.recurring_world import RecurringWorld
from tests.properties.search import HUNT, SEARCH, STEPS_PER_RUN, search

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

RUNS = count(40, 1_000)


@pytest.mark.timeout(1800)
def test_each_instant_has_one_occurrence_or_one_reason(valkey: RunningServer, keyspace: Keyspace) -> None:
    options = settings(SEARCH, max_examples=RUNS)
    found = search(RecurringWorld.subclass, valkey, keyspace.topic(), options)
    assert found.steps > RUNS * STEPS_PER_RUN / 10


@pytest.mark.parametrize(
    "name",
    [
        "turns of what was read before",
        "changes of what was read before",
        *in_long(["turns whatever has become of the last one"]),
    ],
)
def test_a_broken_script_is_noticed(valkey: RunningServer, keyspace: Keyspace, name: str) -> None:
    with pytest.raises(AssertionError):
        search(RecurringWorld.subclass, valkey, keyspace.topic(), HUNT, BREAKS[name])
