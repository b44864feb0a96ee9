"""All that goes wrong with a Cluster and the relays at it: another fault every quarter of a second."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Self

from tests.ghosts.slow_line import SlowLine
from tests.servers import RunningServer
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.cluster.failovers import Failovers
from tests.worlds.relay.processes import Application, Relay

PACE = 0.25
"""Seconds from one fault to the next. Those that take longer go on meanwhile."""

SLOTS, NODES = "slots", "nodes"

Act = Callable[[random.Random, str], None]
Way = Callable[[Cluster, str, RunningServer, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """`hits` are what it may hit, one at a time, and nothing else is done to that meanwhile. It comes
    `weight` times as often as one of weight 1."""

    name: str
    hits: Sequence[str]
    act: Act
    weight: int = 1


class Faults:
    """Does all of them again and again, in threads, until it is left; then it heals what it has hurt.

    `to_nodes` are the lines from each relay to the nodes, by the node's port, and `to_relays` those from
    applications to relays. Which fault comes next depends on `seed`, and on which of them are over.
    """

    def __init__(
        self,
        cluster: Cluster,
        relays: Sequence[Relay],
        applications: Sequence[Application],
        to_nodes: Sequence[Mapping[int, SlowLine]],
        to_relays: Sequence[SlowLine],
        partitions: Sequence[str],
        *,
        seed: int,
    ) -> None:
        self._cluster = cluster
        self.failovers = Failovers(cluster)
        self._relays = {relay.name: relay for relay in relays}
        self._applications = {each.name: each for each in applications}
        self._to_nodes = {f"bytes {n}": lines for n, lines in enumerate(to_nodes)}
        lines = [*to_relays, *chain(*(each.values() for each in to_nodes))]
        self._lines = {f"line {line.port}": line for line in lines}
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._busy: set[str] = set()
        self._under_way: list[Future[None]] = []
        self._leaving = threading.Event()
        self._threads = ThreadPoolExecutor(16, "fault")
        self._clock = threading.Thread(target=self._run, name="faults")
        self.done: Counter[str] = Counter()
        """How often each fault was begun."""
        self._faults = self._all()

    def _all(self) -> list[Fault]:
        return [
            Fault("slot moved key by key", [SLOTS], self._slot_by(key_by_key), 4),
            Fault("slot moved at once", [SLOTS], self._slot_by(at_once), 4),
            Fault("relay killed", [*self._relays], self._kill_relay, 1),
            Fault("relay stopped", [*self._relays], self._stop_relay, 2),
            Fault("application killed", [*self._applications], self._kill_application, 2),
            Fault("connections cut", [*self._lines], self._cut, 4),
            Fault("bytes held back", [*self._to_nodes], self._hold, 6),
            Fault("master killed", [NODES], self._on_a_shard(self.failovers.kill), 1),
            Fault("master killed, its replica behind", [NODES], self._on_a_shard(self._kill_behind), 1),
            Fault("replica promoted", [NODES], self._on_a_shard(self.failovers.promote), 1),
        ]

    def all_kinds(self) -> bool:
        """Whether each fault was begun. Raises what has gone wrong with a fault itself."""
        for each in self._under_way:
            if each.done():
                each.result()
        return len(self.done) == len(self._faults)

    # ------------------------------------------------------------------------- the clock

    def _run(self) -> None:
        at = time.monotonic()
        while not self._leaving.wait(max(at - time.monotonic(), 0)):
            at += PACE
            self._begin_one()

    def _begin_one(self) -> None:
        """Begin one of those that came most seldom and have something to hit."""
        self._chance.shuffle(self._faults)
        for fault in sorted(self._faults, key=lambda fault: self.done[fault.name] / fault.weight):
            free = [each for each in fault.hits if each not in self._busy]
            if free:
                hit, chance = self._chance.choice(free), random.Random(self._chance.random())
                self._busy.add(hit)
                self.done[fault.name] += 1
                self._under_way.append(self._threads.submit(self._do, fault, chance, hit))
                return

    def _do(self, fault: Fault, chance: random.Random, hit: str) -> None:
        try:
            fault.act(chance, hit)
        finally:
            self._busy.discard(hit)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._clock.join()
        self._threads.shutdown()
        for each in self._under_way:
            each.result()

    # ------------------------------------------------------------------------- the faults

    def _slot_by(self, way: Way) -> Act:
        def move(chance: random.Random, _: str) -> None:
            partition = chance.choice(self._partitions)
            with self.failovers.still:
                masters = self.failovers.masters()
                owner = self._cluster.owner_of(partition, masters[0])
                targets = [node for node in masters if node is not owner]
                if owner in masters and targets:
                    way(self._cluster, partition, chance.choice(targets), chance)

        return move

    def _on_a_shard(self, act: Callable[[int], None]) -> Act:
        return lambda chance, _: act(chance.randrange(len(self._cluster.nodes)))

    def _kill_behind(self, number: int) -> None:
        self.failovers.kill(number, behind=True)

    def _kill_relay(self, _: random.Random, name: str) -> None:
        self._relays[name].kill()
        self._relays[name].start()

    def _stop_relay(self, chance: random.Random, name: str) -> None:
        with self._relays[name].frozen():
            time.sleep(
                chance.uniform(0.05, 2.0)
            )  # from too short to be noticed to longer than a call may act

    def _kill_application(self, _: random.Random, name: str) -> None:
        self._applications[name].kill()
        self._applications[name].spawn()

    def _cut(self, _: random.Random, line: str) -> None:
        self._lines[line].cut_all()

    def _hold(self, chance: random.Random, name: str) -> None:
        """Script calls of one relay to one node arrive late, many of them after the relay has given them up,
        and the caller has gone on through the other relay."""
        with self.failovers.still:
            master = chance.choice(self.failovers.masters())
        line = self._to_nodes[name][master.port]
        line.hold("EVALSHA")
        time.sleep(chance.uniform(0.05, 4.0))
        if chance.random() < 0.5:
            line.hang_up()
        with suppress(OSError):  # the node has died
            line.deliver()
        line.drop()


def key_by_key(cluster: Cluster, partition: str, target: RunningServer, chance: random.Random) -> None:
    """A slot goes over slowly: for up to half a second some of its keys are here and some are there."""
    source = cluster.owner_of(partition, target)
    assert source is not None
    cluster.begin_move(partition, source, target)
    pause = chance.uniform(0.0, 0.1)
    while cluster.carry(partition, source, target, most=1):
        time.sleep(pause)
    cluster.end_move(partition, target)


def at_once(cluster: Cluster, partition: str, target: RunningServer, _: random.Random) -> None:
    """Valkey 9 moves it by itself."""
    cluster.migrate(partition, target)
