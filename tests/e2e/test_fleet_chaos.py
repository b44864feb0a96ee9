"""Everything at once: three masters and three replicas, two relays, and a topic that gets more partitions and
fewer again, while something breaks every quarter of a second."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress

import grpc
import pytest

from tests.chaos import count, seed
from tests.ghosts.slow_line import SlowLine
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.cluster.failovers import CONFIG, timers_at
from tests.worlds.cluster.faults import Faults
from tests.worlds.cluster.verdict import Verdict
from tests.worlds.relay.crowd import Crowd
from tests.worlds.relay.resharding import Resharding
from tests.worlds.relay.restless import Restless
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

NAMES = "one", "two"
"""The relays."""
TOPIC = "orders"
PARTITIONS = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, 8))]
RETIRED = [
    key
    for partition in PARTITIONS[4:]
    for key in (f"timers_timeline:{{{partition}}}", f"timers_leases:{{{partition}}}#move")
]
"""Where timers are that nobody takes in the end."""
SETTINGS = {
    "RELAY_DEFAULTS__PARTITIONS": "4",
    "RELAY_DEFAULTS__JOURNAL": "false",  # the judge believes nothing of Relay's own
    "RELAY_DEFAULTS__LEASE_TTL": "3",
    "RELAY_REDIS__WRITE_TTL": "1",
    "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "1",
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1000",  # applications are killed all the time
}
CROWDS = 4
TIMERS = count(1_600, 20_000) // CROWDS
"""Of each crowd, beside those of the restless."""
SECONDS = count(10, 150)
"""The time for which something breaks, or twice that where callers have to wait."""
ROUNDS = count(1, 8)
"""How often the topic goes from 4 partitions to 8 and back."""
RATE = 300
"""Timers a second that a move takes along: it lasts for seconds, and meets what breaks."""
ALLOWED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""What callers may be told."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=1, config=CONFIG) as cluster:
        yield cluster


def lines_to(stack: ExitStack, ports: Iterable[int]) -> dict[int, SlowLine]:
    """A line to each port."""
    return {port: stack.enter_context(SlowLine(port)) for port in ports}


def by_way_of(lines: Mapping[int, SlowLine], cluster: Cluster) -> str:
    """The Cluster's URL for a relay that has these lines to its nodes."""
    pairs = (f"127.0.0.1:{port}=127.0.0.1:{line.port}" for port, line in lines.items())
    return f"{cluster.url}?addresses={','.join(pairs)}"


@pytest.mark.timeout(1800)
def test_nothing_is_lost_whatever_breaks(stage: Stage, cluster: Cluster) -> None:
    """Timers are scheduled, moved, cancelled and delivered meanwhile. None is lost, none is early, and no
    answered call is undone, but for what a failover has demonstrably undone; and callers are told of nothing
    but that they have to try again."""
    began, chance = time.monotonic(), seed(27)
    print(f"RELAY_TEST_SEED={chance}")
    with ExitStack() as stack:
        to_nodes = [lines_to(stack, (node.port for node in cluster.running)) for _ in NAMES]
        relays = [
            stage.relay(name, SETTINGS, url=by_way_of(lines, cluster))
            for name, lines in zip(NAMES, to_nodes, strict=True)
        ]
        ports = (int(relay.target.rpartition(":")[2]) for relay in relays)
        to_relays = [*lines_to(stack, ports).values()]
        applications = [
            stage.application(f"127.0.0.1:{line.port}", TOPIC, name=f"of-{relay.name}")
            for relay, line in zip(relays, to_relays, strict=True)
        ]
        producers = [stage.producer(relay) for relay in relays]
        faults = Faults(cluster, relays, applications, to_nodes, to_relays, PARTITIONS, seed=chance)
        crowds = [
            Crowd(producers, TOPIC, TIMERS, seed=chance + n, seconds=SECONDS, name=f"crowd{n}")
            for n in range(CROWDS)
        ]
        callers: list[Crowd | Restless] = [
            *crowds,
            *(Restless(producers, TOPIC, seed=chance + n, name=f"restless{n}") for n in (1, 2)),
        ]
        moves = Resharding(producers, TOPIC, (8, 4) * ROUNDS, rate=RATE)
        with ExitStack() as at_work:
            for caller in callers:
                at_work.enter_context(caller)
            with moves:
                begins = time.monotonic()
                with faults:
                    eventually(
                        lambda: faults.all_kinds() and (all(map(is_done, crowds)) or is_over(begins)),
                        "all kinds of faults have been",
                        900.0,
                    )
                    met = len(moves.done)
                eventually(lambda: all(map(is_done, crowds)), "all is written", 600.0)
        print(f"{dict(faults.done)}, and {met} moves; {time.monotonic() - began:.1f} s")
        assert len(moves.done) == 2 * ROUNDS

        def verdict() -> Verdict:
            asked = [call for caller in callers for call in caller.asked]
            left = timers_at(*faults.failovers.masters())
            return Verdict(asked, stage.journal.events(), faults.failovers.undone, left, RETIRED)

        with suppress(AssertionError):  # the verdict says more
            eventually(lambda: verdict().is_over, "all is handled", 200.0)
        judged = verdict()
        refusals = sum((each.refusals for each in (moves, *callers)), Counter[grpc.StatusCode]())
        told = {each.name: number for each, number in refusals.items()}
        print(f"{judged}\n{told}; {time.monotonic() - began:.1f} s in all")
    assert not judged.lost
    assert not judged.early
    assert not judged.ghosts
    assert judged.is_over
    assert set(refusals) <= ALLOWED
    for application in applications:
        assert application.running
        told_of = re.findall(r"the relay at \S+: ([A-Z_]+):", application.output())
        assert set(told_of) <= {"UNAVAILABLE"}
        assert "ERROR" not in application.output()


def is_done(crowd: Crowd) -> bool:
    return crowd.written == TIMERS


def is_over(begins: float) -> bool:
    """Whether enough has been broken since then (monotonic seconds)."""
    return time.monotonic() - begins > 2 * SECONDS
