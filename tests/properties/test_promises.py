"""Random interleavings never break a promise, and broken scripts do not survive them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.chaos import count, in_long
from tests.lua.breaks import BREAKS
from tests.properties.search import HUNT, SEARCH, STEPS_PER_RUN, search
from tests.properties.world import World
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

RUNS = count(25, 1_000)
"""The suite takes the same interleavings each time; `make chaos` takes others, and more of them."""


def run(
    server: RunningServer,
    topic: str,
    options: settings,
    *breaks: Break,
    keep: int = 0,
    start: int | None = None,
) -> int:
    """Run the world on a topic whose journal keeps `keep` records; answers how many steps it took."""

    def world(bench: Bench, runner: asyncio.Runner) -> type[World]:
        bench.keep = keep
        return World.subclass(bench, runner)

    return search(world, server, topic, options, *breaks, start=start).steps


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("keep", [0, 1_000_000], ids=["bare", "journal"])
def test_the_promises_hold(valkey: RunningServer, keyspace: Keyspace, keep: int) -> None:
    """Whatever two relays, the peer and the clock do, in thousands of steps; and the journal tells it all."""
    options = settings(SEARCH, max_examples=RUNS)
    assert run(valkey, keyspace.topic(), options, keep=keep) > RUNS * STEPS_PER_RUN / 4


# One break of each kind: it soon loses a promise in this world. tests/lua/test_mutants.py has all breaks.
CAUGHT = [
    "nonce not compared",
    "score not compared",
    "claim ahead of time",
    "nack does not count",
    "ack leaves the payload",
    "limits not asked on a claim",
    "reject counts no attempt",
    "redrive leaves the letter",
    "cancel without asking",
    "expiry not looked at",
    "run takes a lease away",
    "a pause that is past",
    "the later one stands for the earliest",
]

# Those that lose one, too, some of them only after thousands of steps.
CAUGHT_IN_LONG = [
    "a foreign score taken for ours",
    "record kept on cancel",
    "renewal changes the nonce",
    "end of a lease keeps the state",
    "claim keeps the nonce",
    "return before the due time",
    "due time lost on claim",
    "a republish on the grid overlooked",
    "numbers with 14 digits",
    "release counts without a receipt",
    "release overlooks the relay's word",
    "lapse always counts",
    "occurrence not kept",
    "ack leaves the record",
    "cancel leaves the payload",
    "limit ignored",
    "one claim too many",
    "limits not asked on a return",
    "age ends first deliveries",
    "dead letters of outcomes lost",
    "the dead kept against the policy",
    "last error cut short",
    "content of the dead lost",
    "occurrence of the dead lost",
    "redriven as another occurrence",
    "redriven ahead of the record",
    "an empty stream left by redrive",
    "an empty stream left by purge",
    "a due time not asked for",
    "conditions on nothing hold",
    "expiry not written",
    "reschedule without the fence",
    "run waits for the due time",
    "pause not looked at",
    "a pause since 1970",
    "the look for orphans forgets the end",
    "timers are taken for orphans",
    "reschedule empties the payload",
    "repair leaves the records",
    "repair without asking again",
    "conditions overlook their own call",
    "dead letters of claims lost",
    "reschedule takes a delay for an instant",
    "expiry outlives a republish",
    "one that is due with the earliest replaces",
    "the earliest by the end of a lease",
    "the earlier one stands for the latest",
    "one that is due with the latest replaces",
    "a run has no limit",
    "each call has its own limit",
    "the limit is not of this call's time",
    "a limit that limits nothing",
    "the due time told without the limit",
    "a run goes on whatever the score",
    "the limit is not written",
    "release before the due time",
    "attempts kept by a republish",
    "the expired kept like the dead",
    "create replaces",
    "create overlooks its own call",
    "a full topic refuses replacements",
    "lapse does not count",
    "receipt not recorded",
    "our scores on the publishers' grid",
    "full one too early",
    "age not looked at",
    "redriven over a living timer",
    "conditions on the score",
    "reschedule keeps the payload",
]


SOONER = {
    "reschedule without the fence": 1,
    "age ends first deliveries": 1,
    "a republish on the grid overlooked": 0,
    "claim ahead of time": 0,
    "expiry outlives a republish": 3,
    "score not compared": 0,
    "a foreign score taken for ours": 0,
    "release counts without a receipt": 1,
    "trim without a record": 0,
    "a lapse is not told": 4,
    "purge without a record": 2,
    "a lease voided is not told": 5,
    "a cancelled lease is not told": 3,
    "a receipt as a renewal": 7,
    "the end of a renewal is not told": 7,
    "the letter is not told": 8,
}
"""Seeds of searches that find the break within 40 examples. Without a seed they take hundreds, and these were
a tenth of the suite's time. A change of the world may make one slow again; it can't make it wrong."""


@pytest.mark.parametrize("name", [*CAUGHT, *in_long(CAUGHT_IN_LONG)])
def test_a_broken_script_is_caught(name: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """The same interleavings find the break, by a promise that it loses."""
    with pytest.raises(AssertionError):
        run(valkey, keyspace.topic(), HUNT, BREAKS[name], start=SOONER.get(name))


# The breaks of the journal that its replay soon finds.
TOLD = [
    "numbers begin anew",
    "schedule without a record",
    "claim without a record",
    "an ack leaves no record",
    "a lapse is not told",
    "each claim as the first",
]
TOLD_IN_LONG = [
    "numbers of batches",
    "settle without a record",
    "extend without a record",
    "redrive without a record",
    "run without a record",
    "cancel without a record",
    "purge without a record",
    "trim without a record",
    "a refusal names no lease",
    "the due time before is not told",
    "a lease voided is not told",
    "a cancelled lease is not told",
    "a receipt as a renewal",
    "the end of a renewal is not told",
    "the letter is not told",
]


@pytest.mark.parametrize("name", [*TOLD, *in_long(TOLD_IN_LONG)])
def test_a_false_journal_is_caught(name: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """The same interleavings find what the journal leaves out or says wrongly."""
    with pytest.raises(AssertionError):
        run(valkey, keyspace.topic(), HUNT, BREAKS[name], keep=1_000_000, start=SOONER.get(name))
