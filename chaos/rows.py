"""The rows of the table: what breaks, where, and what callers had asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from chaos.faults.clock import ClockLeaps, ClockStepped
from chaos.faults.disk import DiskFull, DiskSlow, MasterWithoutPower, PowerLost
from chaos.faults.fault import Fault
from chaos.faults.memory import MemoryFull
from chaos.faults.network import LINES
from chaos.faults.partitions import PartitionsChanged
from chaos.faults.pods import PodKilled
from chaos.faults.processes import (
    ApplicationKilled,
    FailoverAsked,
    MasterKilled,
    MasterStopped,
    RelayEnded,
    RelayKilled,
    ReplicaKilled,
    ReplicaStopped,
    SentinelKilled,
    ServerKilled,
    ServerStopped,
    SlotMoved,
    Stopped,
)
from chaos.faults.scripts import ForeignScript, ScriptsFlushed, ScriptsKilled
from chaos.faults.upgrade import RelayReplaced
from chaos.topologies import Topology
from chaos.world import TOPIC, World

MANY, FEW = 400, 50
"""How often a fault strikes that costs less than 0.3 s, and any other."""
LEASE_TTL = 2.0
PARTITIONS = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, 4))]
"""Of the topic, on a Cluster."""


def nothing(_: World) -> None:
    """The world is as it is."""


@dataclass(frozen=True)
class Row:
    """One row. `timers` and `faults` are the least of both: the load goes on until the last fault is over."""

    name: str
    breaks: str
    """What the page says of it."""
    faults: Callable[[], Sequence[Fault]]
    topology: Topology = "single"
    level: str = "stored"
    """What each call asks for."""
    sync: Literal["always", "everysec", "no"] = "everysec"
    """The servers' `appendfsync`."""
    config: Mapping[str, str] = field(default_factory=dict)
    """What else their configuration has."""
    number: int = FEW
    timers: int = 20_000
    rate: float = 100.0
    """Timers a second that the callers begin with, together."""
    may_lose: bool = False
    """Whether a loss is allowed that the nemesis explains by what it measured. All else is 0 in any row."""
    lines: bool = False
    """Whether lines stand between applications, relays and servers."""
    disks: bool = False
    """Whether each server has a disk under it that can break."""
    clocks: bool = False
    """Whether each process has a clock under it that can be set."""
    prepare: Callable[[World], None] = nothing
    """Done when all runs, before the first fault."""

    @property
    def calm(self) -> bool:
        """Whether nothing breaks: then nothing comes twice either, and each attempt is counted."""
        return self.number == 0

    @property
    def patience(self) -> float:
        """Seconds that the first try of a call may take; an fsync `everysec` takes two of them."""
        return 8.0 if "fsync" in self.level and self.sync == "everysec" else 3.0

    def sized(self, timers: int, faults: int, rate: float) -> Row:
        """The same in another size."""
        return replace(self, timers=timers, number=0 if self.calm else faults, rate=rate)


def relay_faults() -> list[Fault]:
    return [RelayKilled(), RelayKilled(LEASE_TTL + 1.0), PodKilled(), RelayEnded(), Stopped("relay")]


def failovers() -> list[Fault]:
    return [MasterKilled(), MasterStopped(), FailoverAsked()]


def slots() -> list[Fault]:
    return [SlotMoved("key by key", PARTITIONS), SlotMoved("at once", PARTITIONS), FailoverAsked()]


def network() -> list[Fault]:
    return [fault() for fault in LINES]


def all_processes() -> list[Fault]:
    return [*relay_faults(), ApplicationKilled(), Stopped("application"), *failovers(), *slots()[:2]]


ROWS: tuple[Row, ...] = (
    Row("calm", "nothing", list, number=0),
    Row("relay", "relays killed, ended in order, stopped", relay_faults),
    Row("relay-cluster", "relays killed, ended in order, stopped", relay_faults, "cluster"),
    Row(
        "application",
        "applications killed, stopped",
        lambda: [ApplicationKilled(), Stopped("application")],
    ),
    Row(
        "partitions",
        "a topic gets more partitions and fewer, the relay that moves its timers killed",
        lambda: [PartitionsChanged(), PartitionsChanged(killed=True)],
    ),
    Row("server-killed", "the server killed, started on its file", lambda: [ServerKilled()], may_lose=True),
    Row(
        "server-killed-fsync",
        "the server killed, started on its file",
        lambda: [ServerKilled()],
        level="fsync",
    ),
    Row(
        "server-killed-always",
        "the server killed, started on its file",
        lambda: [ServerKilled()],
        level="fsync",
        sync="always",
    ),
    Row("server-stopped", "the server stopped for up to 0.6 s", lambda: [ServerStopped()], number=MANY),
    Row(
        "replica",
        "replicas killed, stopped; Sentinels killed",
        lambda: [ReplicaKilled(), ReplicaStopped(), SentinelKilled()],
        "sentinel",
        "replicas:1",
    ),
    Row("failover", "failovers by Sentinel", failovers, "sentinel", may_lose=True),
    # Of two replicas, one has it: the other may be the one that takes over.
    Row("failover-replica", "failovers by Sentinel", failovers, "sentinel", "replicas:1", may_lose=True),
    Row("failover-replicas", "failovers by Sentinel", failovers, "sentinel", "replicas:2"),
    Row("failover-both", "failovers by Sentinel", failovers, "sentinel", "fsync+replicas:2", sync="always"),
    Row("failover-cluster", "failovers by the Cluster", failovers, "cluster", may_lose=True),
    Row("failover-cluster-replicas", "failovers by the Cluster", failovers, "cluster", "replicas:1"),
    Row("slots", "slots moved, failovers by request", slots, "cluster", may_lose=True),
    Row(
        "power",
        "the server's machine loses power",
        lambda: [PowerLost()],
        may_lose=True,
        disks=True,
    ),
    Row("power-fsync", "the server's machine loses power", lambda: [PowerLost()], level="fsync", disks=True),
    Row(
        "power-always",
        "the server's machine loses power",
        lambda: [PowerLost()],
        level="fsync",
        sync="always",
        disks=True,
    ),
    Row(
        "power-replicas",
        "the master's machine loses power, a replica takes over; it comes back after that, or in that moment",
        lambda: [MasterWithoutPower(), MasterWithoutPower(at_once=True)],
        "sentinel",
        "replicas:2",
        # Back on its disk, it has old timers delivered until Sentinel makes it a replica, unless it takes no
        # writes without all of its replicas: one of them is the new master. See 0102.
        config={"min-replicas-to-write": "2"},
        disks=True,
    ),
    Row("disk", "the disk slow, full", lambda: [DiskSlow(), DiskFull()], disks=True),
    Row(
        "disk-always",
        "the disk slow, full",
        lambda: [DiskSlow(), DiskFull()],
        level="fsync",
        sync="always",
        disks=True,
    ),
    Row("network", "connections cut, delayed, narrow, half open; bytes held back", network, lines=True),
    Row(
        "network-cluster",
        "connections cut, delayed, narrow, half open; bytes held back",
        network,
        "cluster",
        lines=True,
    ),
    Row(
        "clocks",
        "clocks of relays, applications, the server stepped by an hour; the server's leapt back by seconds",
        lambda: [ClockStepped("relay"), ClockStepped("application"), ClockStepped("server"), ClockLeaps()],
        clocks=True,
    ),
    Row("memory", "no memory left", lambda: [MemoryFull()]),
    Row(
        "scripts",
        "scripts forgotten, killed, behind a foreign script that does not end",
        lambda: [ScriptsFlushed(), ForeignScript(), ScriptsKilled()],
    ),
    Row(
        "upgrade",
        "relays replaced one by one by those of the version before, and back",
        lambda: [RelayReplaced()],
    ),
    Row("all", "all of these processes", all_processes, "cluster", "replicas:1"),
)
SHORT = {"relay": 5, "server-killed-fsync": 3}
"""What the short form plays, and with how many faults; and its timers, and how many a second."""
SHORT_TIMERS, SHORT_RATE = 300, 60.0


def row(name: str) -> Row:
    """The row of this name. Raises KeyError if there is none."""
    return {each.name: each for each in ROWS}[name]
