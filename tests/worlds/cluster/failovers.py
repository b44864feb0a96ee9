"""Masters of a Cluster that die under load, and exactly which changes die with them.

A master answers before its replicas have what it did. So a failover may undo changes that were answered OK,
and a test that counts what was lost has to know which. It is not guessed by the clock: every node writes an
append-only file, which has all that the node has ever answered for, and is whole after a SIGKILL. The dead
master's file is compared with that of the replica, which may take the master's place only afterwards.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import redis

from relay.store.codec import envelope
from tests.servers import RunningServer, binary, free_port
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.waiting import eventually

CONFIG = {
    "appendonly": "yes",
    "appendfsync": "no",  # a process that is killed takes nothing with it that it has written
    "cluster-node-timeout": "1000",  # milliseconds; nobody takes over unasked, however busy the machine is
    "cluster-replica-no-failover": "yes",  # until the replica's file was read
    "cluster-replica-validity-factor": "0",  # however long that has taken
    "cluster-allow-replica-migration": "no",
}
"""What the nodes need for this, beside one replica for each master."""

BEHIND = 4_000
"""Bytes of replication that a replica lacks before its master is killed."""

Held = tuple[str, str]
"""The key of a timeline, or of what is on its way from there to another one, and the id of a timer there."""

ON_ITS_WAY = """
local found, timers = redis.call('HGETALL', KEYS[1]), {}
for n = 1, #found, 2 do
  if string.sub(found[n], 1, 1) == 't' then
    timers[#timers + 1] = string.sub(found[n], 2)
    timers[#timers + 1] = cmsgpack.unpack(found[n + 1])[3] or ''
  end
end
return timers
"""
"""The ids and envelopes of what a move has taken out of a partition; see lua/move/leave.lua."""


@dataclass(frozen=True)
class Undone:
    """What a failover has undone of one timer at one place.

    By the timer's payload, which is the due time that somebody asked for (microseconds): the dead master had
    it by `had`, and the replica by `has`. None: it had no such timer. `at`: when the master died (unix
    seconds).
    """

    timer_id: str
    had: int | None
    has: int | None
    at: float


class Failovers:
    """The masters and replicas of a Cluster, of which one master at a time may die.

    Where slots are moved beside this, it is done under `still`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shards = [[master, *its] for master, its in zip(cluster.nodes, cluster.replicas, strict=True)]
        self.still = threading.Lock()
        """Held while a node may not be asked: between the look at the whole Cluster and a death, while roles
        change by agreement, and while a node starts."""
        self.undone: list[Undone] = []
        """All that was undone by failovers till now."""

    def masters(self) -> list[RunningServer]:
        """The nodes that run as masters."""
        return [node for node in self._cluster.running if self._cluster.role_of(node) == "master"]

    def whole(self) -> bool:
        """Whether all nodes run and agree who has which slots, and each master has a replica that is in
        step."""
        if not all(node.running for shard in self._shards for node in shard):
            return False
        shards = [[self._about(node) for node in shard] for shard in self._shards]
        for shard in shards:
            roles = sorted(about["role"] for about in shard)
            if roles != ["master", *["slave"] * (len(shard) - 1)]:
                return False
        return all(map(is_in_step, chain(*shards))) and self._cluster.agree_on_owners()

    def _about(self, node: RunningServer) -> dict[str, Any]:
        return cast("dict[str, Any]", self._cluster.tell(node, "INFO", "everything"))

    def _until_whole(self) -> None:
        try:
            eventually(self.whole, "the Cluster is whole")
        except AssertionError as failure:
            for node in self._cluster.running:
                failure.add_note("\n".join(self._cluster.known_by(node)))
                failure.add_note(str(self._cluster.tell(node, "INFO", "replication")))
            raise

    def promote(self, number: int) -> None:
        """The replica of a shard takes over by agreement: nothing is undone."""
        with self.still:
            self._until_whole()
            _, replica = self._roles(number)
            self._cluster.fail_over(replica)

    def kill(self, number: int, *, behind: bool = False) -> None:
        """The master of a shard dies, its replica takes over, and it comes back as a replica. `behind`: the
        replica lacks the last of what the master has done, as where a network fails first."""
        with self.still:
            self._until_whole()
            master, replica = self._roles(number)
            if behind:
                self._cut_off(master, replica)
            master.kill()
            died = time.time()
            replica.thaw()
        eventually(
            lambda: self._about(replica)["master_link_status"] == "down", "the replica has read all that came"
        )
        has = kept(replica)
        self._cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "no")
        self.undone += differences(kept(master), has, died)
        eventually(lambda: self._cluster.role_of(replica) == "master", "the replica has taken over")
        self._cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
        with self.still:
            master.start()
            eventually(lambda: self._follows(master, replica), "the old master follows the new one")
        self._until_whole()

    def _follows(self, node: RunningServer, master: RunningServer) -> bool:
        """Whether a node that has come back is a replica. It becomes one by itself, unless its slots are with
        two others, since one was moved on meanwhile. Then somebody has to tell it."""
        if self._cluster.role_of(node) == "slave":
            return True
        with suppress(redis.ResponseError):  # it does not know yet what it has lost
            self._cluster.tell(node, "CLUSTER", "REPLICATE", self._cluster.id_of(master))
        return False

    def _roles(self, number: int) -> tuple[RunningServer, RunningServer]:
        return cast(
            "tuple[RunningServer, RunningServer]",
            tuple(sorted(self._shards[number], key=self._cluster.role_of)),  # master before slave
        )

    def _cut_off(self, master: RunningServer, replica: RunningServer) -> None:
        """The replica stands still without a connection until the master has done more, if anything is done
        there."""
        replica.freeze()
        before = self._offset(master)
        self._cluster.tell(master, "CLIENT", "KILL", "TYPE", "replica")
        with suppress(AssertionError):
            eventually(lambda: self._offset(master) > before + BEHIND, "the master has done more", 0.7)

    def _offset(self, node: RunningServer) -> int:
        return int(self._about(node)["master_repl_offset"])


def is_in_step(about: Mapping[str, Any]) -> bool:
    """Whether a node, by what it says of itself, has all that its master has, if it is a replica; and is not
    writing its file anew."""
    linked = about["role"] == "master" or about["master_link_status"] == "up"
    return linked and not about["aof_rewrite_in_progress"] and not about["aof_rewrite_scheduled"]


def kept(node: RunningServer) -> dict[Held, int]:
    """The timers of a node by its append-only file, and the due times that their payloads name. It must not
    be written to now."""
    path = binary("valkey")
    assert path
    with RunningServer("valkey", path, free_port(), {"appendonly": "yes"}, {}) as reader:
        shutil.copytree(node.directory / "appendonlydir", reader.directory / "appendonlydir")
        reader.start()
        return timers_at(reader)


def timers_at(*nodes: RunningServer) -> dict[Held, int]:
    """The same of nodes that run; of Clusters, of masters."""
    found: dict[Held, int] = {}
    for node in nodes:
        with node.client() as client:
            for key in cast("list[bytes]", client.keys("timers_timeline:*")):
                payloads = key.replace(b"timeline", b"payloads", 1)
                names = cast("list[bytes]", client.zrange(key, 0, -1))
                texts = cast("list[bytes | None]", client.hmget(payloads, names) if names else [])
                for name, text in zip(names, texts, strict=True):
                    if text is not None:
                        found[key.decode(), name.decode()] = int(envelope.decode(text).payload)
            for key in cast("list[bytes]", client.keys("timers_leases:*#move")):
                way = cast("list[bytes]", client.eval(ON_ITS_WAY, 1, key))
                for name, text in zip(way[::2], way[1::2], strict=True):
                    if text:
                        found[key.decode(), name.decode()] = int(envelope.decode(text).payload)
    return found


def differences(had: dict[Held, int], has: dict[Held, int], at: float) -> Iterable[Undone]:
    """What the second lacks of the first, and the other way round."""
    for place in had.keys() | has.keys():
        if had.get(place) != has.get(place):
            yield Undone(place[1], had.get(place), has.get(place), at)
