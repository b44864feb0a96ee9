"""Random interleavings never break a promise, and broken scripts do not survive them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lua.bench import Bench, Break
from tests.lua.breaks import BREAKS
from tests.properties.world import World

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

THOROUGH = os.environ.get("CI") == "true" or os.environ.get("RELAY_REQUIRE_ALL") == "1"
STEPS_PER_RUN = 50
RUNS = 800 if THOROUGH else 100
COMMON = settings(
    stateful_step_count=STEPS_PER_RUN,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=True,
)
SEARCH = settings(COMMON, max_examples=RUNS)
HUNT = settings(COMMON, max_examples=800, derandomize=True, phases=[Phase.generate])


def run(server: RunningServer, topic: str, options: settings, *breaks: Break) -> int:
    """Run the world on a topic; answers how many steps it took."""
    with asyncio.Runner() as runner:

        async def opened() -> Bench:
            return Bench(server, topic, *breaks)

        bench = runner.run(opened())
        world = World.subclass(bench, runner)
        try:
            run_state_machine_as_test(world, settings=options)
        finally:
            runner.run(bench.close())
        return world.steps


@pytest.mark.timeout(600)
def test_the_promises_hold(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Whatever two relays, the peer and the clock do, in thousands of steps."""
    assert run(valkey, keyspace.topic(), SEARCH) > RUNS * STEPS_PER_RUN / 4


# The breaks that soon lose a promise in this world; tests/lua/test_mutants.py has them all.
CAUGHT = [
    "nonce not compared",
    "score not compared",
    "record kept on cancel",
    "our scores on the publishers' grid",
    "renewal changes the nonce",
    "end of a lease keeps the state",
    "claim keeps the nonce",
    "claim ahead of time",
    "return before the due time",
    "release before the due time",
    "due time lost on claim",
    "a republish on the grid overlooked",
    "numbers with 14 digits",
    "release counts without a receipt",
    "release overlooks the relay's word",
    "lapse does not count",
    "lapse always counts",
    "nack does not count",
    "receipt not recorded",
    "occurrence not kept",
    "attempts kept by a republish",
    "ack leaves the payload",
    "ack leaves the record",
    "cancel leaves the payload",
    "limit ignored",
    "one claim too many",
    "limits not asked on a claim",
    "limits not asked on a return",
    "age not looked at",
    "age ends first deliveries",
    "reject counts no attempt",
    "dead letters of claims lost",
    "dead letters of outcomes lost",
    "the dead kept against the policy",
    "the expired kept like the dead",
    "last error cut short",
    "content of the dead lost",
    "occurrence of the dead lost",
    "redriven over a living timer",
    "redrive leaves the letter",
    "redriven as another occurrence",
    "redriven ahead of the record",
    "an empty stream left by redrive",
    "an empty stream left by purge",
    "create replaces",
    "create overlooks its own call",
    "a due time not asked for",
    "conditions on the score",
    "conditions on nothing hold",
    "conditions overlook their own call",
    "cancel without asking",
    "expiry not written",
    "expiry not looked at",
    "expiry outlives a republish",
    "full one too early",
    "a full topic refuses replacements",
    "reschedule keeps the payload",
    "reschedule empties the payload",
    "reschedule without the fence",
    "reschedule takes a delay for an instant",
    "run takes a lease away",
    "run waits for the due time",
    "pause not looked at",
    "a pause that is past",
    "a pause since 1970",
    "sweep forgets the end",
    "sweep takes timers for orphans",
    "repair without asking again",
    "repair leaves the records",
]


@pytest.mark.parametrize("name", CAUGHT)
def test_a_broken_script_is_caught(name: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """The same interleavings find the break, by a promise that it loses."""
    with pytest.raises(AssertionError):
        run(valkey, keyspace.topic(), HUNT, BREAKS[name])
