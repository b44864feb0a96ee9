"""Which servers Relay is tried on: all pairs of server, topology and append-only file; in `make chaos` all
three at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations, product
from typing import Literal, NamedTuple, get_args

from tests.chaos import CHAOS
from tests.sentinels import Group
from tests.servers import KINDS, SYSTEM, Kind, RunningServer, binary, server_id, start_server
from tests.worlds.cluster.cluster import Cluster

Topology = Literal["single", "sentinel", "cluster"]
File = Literal["off", "everysec", "always"]

SERVERS: tuple[Kind, ...] = (*KINDS, *([SYSTEM] if binary(SYSTEM) else []))
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)
FILES: tuple[File, ...] = get_args(File)
WITH_WAITAOF: tuple[Kind, ...] = ("valkey", "redis-8")


class Cell(NamedTuple):
    """One of them."""

    server: Kind
    topology: Topology
    file: File

    def __str__(self) -> str:
        return f"{server_id(self.server)}-{self.topology}-{self.file}"

    @property
    def config(self) -> dict[str, str]:
        """Of each of its servers."""
        return {} if self.file == "off" else {"appendonly": "yes", "appendfsync": self.file}

    @property
    def can_fsync(self) -> bool:
        """Whether it can wait for its disk."""
        return self.file != "off" and self.server in WITH_WAITAOF


WHOLE = [Cell(*each) for each in product(SERVERS, TOPOLOGIES, FILES)]


def pairwise() -> list[Cell]:
    """A cell for each server and topology. The files are shifted by one from server to server, so that all
    pairs are there."""
    return [
        Cell(server, topology, FILES[(s + t) % len(FILES)])
        for s, server in enumerate(SERVERS)
        for t, topology in enumerate(TOPOLOGIES)
    ]


CELLS = WHOLE if CHAOS else pairwise()


def pairs(cells: list[Cell]) -> set[frozenset[tuple[str, str]]]:
    """The pairs of values that stand together in a cell."""
    named = [list(zip(Cell._fields, cell, strict=True)) for cell in cells]
    return {frozenset(pair) for each in named for pair in combinations(each, 2)}


class Place(NamedTuple):
    """What a cell runs on. `masters` have the timers."""

    url: str
    masters: list[RunningServer]
    replicas: int
    """How many replicas each master has."""


@contextmanager
def running(cell: Cell) -> Iterator[Place]:
    """Its servers, all of which know each other."""
    with ExitStack() as stack:
        if cell.topology == "sentinel":
            group = stack.enter_context(Group(cell.server, cell.config))
            yield Place(group.url, [group.servers[0]], 2)
        elif cell.topology == "cluster":
            cluster = stack.enter_context(Cluster(cell.server, masters=2, config=cell.config))
            yield Place(cluster.url, cluster.nodes, 0)
        else:
            server = stack.enter_context(start_server(cell.server, config=cell.config))
            yield Place(server.url, [server], 0)
