"""Promise 11 on the real scripts: no call that was given up acts, in any interleaving."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from relay.store.server.server_clock import ServerClock
from tests.chaos import count
from tests.lua.breaks import BREAKS
from tests.properties.late_calls import LateCalls
from tests.properties.late_deliveries import LateDeliveries
from tests.properties.search import HUNT, SEARCH, STEPS_PER_RUN, search
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

RUNS = count(60, 3_000)
UNGUARDED = BREAKS["late calls not refused"]


def run(server: RunningServer, topic: str, options: settings, *breaks: Break, **how: Any) -> int:
    """Run the machine; answer how many steps it took. `how`: see `LateCalls.of`."""
    return search(partial(LateCalls.of, **how), server, topic, options, *breaks).steps


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_ghost_in_any_interleaving(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Whatever comes late, whichever relay repeats it, and though the server's clock is set."""
    options = settings(SEARCH, max_examples=RUNS)
    assert run(valkey, keyspace.topic(), options) > RUNS * STEPS_PER_RUN / 4


STORIES = {
    "the old due time comes back": ("schedule",),
    "a Cancel removes what was scheduled since": ("cancel", "schedule"),
    "a timer is made due that was moved since": ("run", "schedule"),
    "a topic is paused that was resumed since": ("pause", "resume"),
}


@pytest.mark.parametrize("verbs", STORIES.values(), ids=STORIES)
def test_scripts_without_the_refusal_are_caught(
    verbs: tuple[str, ...], valkey: RunningServer, keyspace: Keyspace
) -> None:
    """The same interleavings find each story."""
    with pytest.raises(AssertionError, match="a ghost"):
        run(valkey, keyspace.topic(), HUNT, UNGUARDED, verbs=verbs)


def test_callers_who_do_not_wait_are_caught(valkey: RunningServer, keyspace: Keyspace) -> None:
    """The rule for callers is needed: who repeats a call while its first try may act meets that try later."""
    with pytest.raises(AssertionError, match="a ghost"):
        run(valkey, keyspace.topic(), HUNT, patient=False)


class Optimist(ServerClock):
    """It takes the server's time for that of the moment when it was asked: an upper bound."""

    def heard(self, told: int, asked: float, received: float) -> bool:
        """As if the reply had taken no time."""
        return super().heard(told, asked, asked)


class Deaf(ServerClock):
    """It never asks again, so that a clock that has stepped back is never noticed."""

    told = False

    def heard(self, told: int, asked: float, received: float) -> bool:
        """As it is, once."""
        self.told = True
        return super().heard(told, asked, received)

    def is_old(self, now: float) -> bool:
        """Only in the beginning."""
        return not self.told


@pytest.mark.parametrize("clock", [Optimist, Deaf])
def test_clocks_that_are_ahead_are_caught(
    clock: type[ServerClock], valkey: RunningServer, keyspace: Keyspace
) -> None:
    """The bound is a lower one, and renewed."""
    with pytest.raises(AssertionError):
        run(valkey, keyspace.topic(), HUNT, clock=clock)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_ghost_among_deliveries(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Whatever claims and settlements come late, and whichever replies are lost."""
    options = settings(SEARCH, max_examples=RUNS)
    found = search(LateDeliveries.of, valkey, keyspace.topic(), options)
    assert found.steps > RUNS * STEPS_PER_RUN / 4


DELIVERIES = {"claim": "a ghost: nobody holds", "settle": "a ghost: .* was settled"}


@pytest.mark.parametrize("late", DELIVERIES)
def test_late_deliveries_are_caught(late: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """Without the refusal a claim takes leases that nobody holds, and a settlement that was given up ends its
    lease."""
    with pytest.raises(AssertionError, match=DELIVERIES[late]):
        search(partial(LateDeliveries.of, late=[late]), valkey, keyspace.topic(), HUNT, UNGUARDED)
