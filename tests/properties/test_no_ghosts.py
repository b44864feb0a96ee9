"""Promise 11 on the real scripts: no call that was given up acts, in any interleaving."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from relay.store.server.server_clock import ServerClock
from tests.chaos import count, in_long
from tests.dispatch.test_breaks import BREAKS as OF_DISPATCH
from tests.lua.breaks import BREAKS
from tests.properties.late_calls import LateCalls
from tests.properties.late_deliveries import LateDeliveries
from tests.properties.late_sources import OfAGroup, OfATimeline
from tests.properties.search import HUNT, SEARCH, STEPS_PER_RUN, search
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.desk import BILLING, Desk
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

RUNS = count(25, 3_000)
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


@pytest.mark.slow
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


@pytest.mark.parametrize("clock", [Deaf, *in_long([Optimist])])
def test_clocks_that_are_ahead_are_caught(
    clock: type[ServerClock], valkey: RunningServer, keyspace: Keyspace
) -> None:
    """The bound is a lower one, and renewed."""
    with pytest.raises(AssertionError):
        run(valkey, keyspace.topic(), HUNT, clock=clock)


def group(server: RunningServer, topic: str, *breaks: Break) -> Desk:
    """A topic with a stream."""
    return Desk(server, topic, BILLING, *breaks)


SOURCES: dict[type[LateDeliveries], Callable[..., Any]] = {OfATimeline: Bench, OfAGroup: group}
DELIVERIES = {"claim": "a ghost: nobody holds", "settle": "a ghost: .* was settled"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_no_ghost_among_deliveries(
    source: type[LateDeliveries], valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Whatever claims and settlements come late, and whichever replies are lost."""
    options = settings(SEARCH, max_examples=RUNS)
    found = search(source.of, valkey, keyspace.topic(), options, world=SOURCES[source])
    assert found.steps > RUNS * STEPS_PER_RUN / 4


@pytest.mark.slow
@pytest.mark.parametrize("late", DELIVERIES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_late_deliveries_are_caught(
    source: type[LateDeliveries], late: str, valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Without the refusal a claim takes leases that nobody holds, and a settlement that was given up ends its
    lease."""
    machine, world = partial(source.of, late=[late]), SOURCES[source]
    with pytest.raises(AssertionError, match=DELIVERIES[late]):
        search(machine, valkey, keyspace.topic(), HUNT, UNGUARDED, world=world)


def test_claims_that_can_not_be_found_are_caught(valkey: RunningServer, keyspace: Keyspace) -> None:
    """A group's claim has to say what it takes, since its reply may be lost."""
    machine = partial(OfAGroup.of, late=())
    kept = OF_DISPATCH["a claim is not kept"].broken
    with pytest.raises(AssertionError, match=DELIVERIES["claim"]):
        search(machine, valkey, keyspace.topic(), HUNT, kept, world=group)
