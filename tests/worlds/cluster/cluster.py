"""A real Cluster: masters that share the slots, replicas of them, slots that move, nodes that die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any, Self, cast

import redis
from redis.crc import key_slot

from tests.servers import Kind, RunningServer, start_server
from tests.worlds.waiting import eventually

SLOTS = 16_384

CONFIG = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "5000",  # milliseconds; a busy machine is no dead node
    "cluster-require-full-coverage": "no",  # a dead node takes its own slots only
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}


def slot_of(topic: str) -> int:
    """The slot of all keys of a topic."""
    return key_slot(f"{{{topic}}}".encode())


def port_of(node: RunningServer) -> int:
    """Where the other nodes and relays reach a node; the test itself reaches each without TLS."""
    return int(node.config.get("tls-port", node.port))


class Cluster:
    """`masters` nodes with about as many slots each, and `replicas` of each, all running and in agreement;
    `with` ends them.

    `nodes` are the masters of the beginning, `replicas` those of each in the same order. `config` is that of
    each node, or makes it. Nodes with a `tls-port` are reached there by each other, and by `url`.
    """

    def __init__(
        self,
        kind: Kind = "valkey",
        *,
        masters: int = 3,
        replicas: int = 0,
        config: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._stack = ExitStack()
        self._names = count()
        made = config if callable(config) else lambda: config or {}
        try:
            all_nodes = [
                self._stack.enter_context(start_server(kind, config={**CONFIG, **made()}))
                for _ in range(masters * (1 + replicas))
            ]
            self.nodes, others = all_nodes[:masters], all_nodes[masters:]
            self.replicas = [others[n::masters] for n in range(masters)]
            self._share_slots()
            self._meet(all_nodes)
            for master, its_replicas in zip(self.nodes, self.replicas, strict=True):
                for replica in its_replicas:
                    self._replicate(master, replica)
            self.until_agreed()
        except BaseException:
            self._stack.close()
            raise

    def _share_slots(self) -> None:
        share = -(-SLOTS // len(self.nodes))
        for n, node in enumerate(self.nodes):
            last = min((n + 1) * share, SLOTS)
            self.tell(node, "CLUSTER", "ADDSLOTS", *range(n * share, last))
            self.tell(node, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)  # or two may begin with one epoch

    def _meet(self, all_nodes: list[RunningServer]) -> None:
        for node in all_nodes[1:]:
            self.tell(node, "CLUSTER", "MEET", "127.0.0.1", port_of(all_nodes[0]))
        eventually(
            lambda: all(len(self.known_by(node)) == len(all_nodes) for node in all_nodes),
            "all nodes have met",
        )

    def _replicate(self, master: RunningServer, replica: RunningServer) -> None:
        self.tell(replica, "CLUSTER", "REPLICATE", self.id_of(master))
        eventually(lambda: self.role_of(replica) == "slave", "a replica follows")
        eventually(
            lambda: (
                cast("dict[str, Any]", self.tell(replica, "INFO", "replication"))["master_link_status"]
                == "up"
            ),
            "a replica is in step",
        )

    # ----------------------------------------------------------------- what is where

    @property
    def running(self) -> list[RunningServer]:
        """All nodes that run."""
        return [node for node in self._all if node.running]

    @property
    def url(self) -> str:
        """With every master of the beginning as a seed."""
        scheme = "rediss" if "tls-port" in self.nodes[0].config else "redis"
        return f"{scheme}+cluster://{','.join(map(self.place_of, self.nodes))}"

    def place_of(self, node: RunningServer) -> str:
        """What the Cluster calls it."""
        return f"127.0.0.1:{port_of(node)}"

    def topic_at(self, node: RunningServer) -> str:
        """A new topic whose slot the node has at the beginning."""
        share = -(-SLOTS // len(self.nodes))
        wanted = self.nodes.index(node)
        names = (f"topic-{n}" for n in self._names)
        return next(name for name in names if slot_of(name) // share == wanted)

    def owner_of(self, topic: str, seen_by: RunningServer | None = None) -> RunningServer | None:
        """The node that has the topic's slot, as a running node sees it."""
        slots = cast("list[Any]", self._slots(seen_by or self.running[0]))
        for first, last, (_, port, *_more), *_ in slots:
            if first <= slot_of(topic) <= last:
                return next((node for node in self._all if node.port == port), None)
        return None

    def hosts(self, node: RunningServer) -> set[str]:
        """How a node calls the masters."""
        return {owner[0].decode() for _, _, owner, *_ in cast("list[Any]", self._slots(node))}

    @property
    def _all(self) -> list[RunningServer]:
        return [*self.nodes, *(replica for of in self.replicas for replica in of)]

    def _slots(self, node: RunningServer) -> Any:
        with node.client() as client:
            client.set_response_callback("CLUSTER SLOTS", lambda reply, **_: reply)
            return client.execute_command("CLUSTER SLOTS")

    def until_agreed(self) -> None:
        """Until the nodes `agree`."""
        eventually(self.agree, "all nodes of the Cluster agree")

    def agree(self) -> bool:
        """Whether the nodes `agree_on_owners`, and see the same replicas of them, which is all that run."""

        def replicas(node: RunningServer) -> list[tuple[int, list[int]]]:
            slots = cast("list[Any]", self._slots(node))
            return sorted((owner[1], sorted(each[1] for each in rest)) for _, _, owner, *rest in slots)

        views = [replicas(node) for node in self.running]
        masters = {port for port, _ in views[0]}
        complete = {port for _, ports in views[0] for port in ports} | masters
        same = len(complete) == len(self.running) and all(view == views[0] for view in views)
        return same and self.agree_on_owners()

    def agree_on_owners(self) -> bool:
        """Whether every running node sees the same owners of slots, and says that all is well."""
        views = [
            sorted((first, last, owner[1]) for first, last, owner, *_ in cast("list[Any]", self._slots(node)))
            for node in self.running
        ]
        well = all("cluster_state:ok" in self.text(node, "CLUSTER", "INFO") for node in self.running)
        return well and all(view == views[0] for view in views)

    # ----------------------------------------------------------------- what happens to it

    def begin_move(self, topic: str, source: RunningServer, target: RunningServer) -> None:
        """The old way, first step: keys of the topic's slot that are not at the source are asked for at the
        target."""
        slot = slot_of(topic)
        self._set_slot(target, slot, "IMPORTING", self.id_of(source))
        self._set_slot(source, slot, "MIGRATING", self.id_of(target))

    def _set_slot(self, node: RunningServer, slot: int, *what: str) -> None:
        """Tell a node of a slot. Valkey refuses that for as long as its replicas have not heard of it."""

        def is_told() -> bool:
            try:
                self.tell(node, "CLUSTER", "SETSLOT", slot, *what)
            except redis.ResponseError as refusal:
                if "NOREPLICAS" not in str(refusal):
                    raise
                return False
            return True

        eventually(is_told, "the replicas of the node know of the slot")

    def carry(self, topic: str, source: RunningServer, target: RunningServer, *, most: int = 1000) -> int:
        """The old way, second step: at most `most` keys of the slot go over; return how many were to."""
        with source.client() as client:
            keys = cast("list[bytes]", client.execute_command("CLUSTER GETKEYSINSLOT", slot_of(topic), most))
            if keys:
                try:
                    client.execute_command(
                        "MIGRATE", "127.0.0.1", port_of(target), "", 0, 60_000, "KEYS", *keys
                    )
                except redis.ResponseError as refusal:
                    if "CLUSTERDOWN" not in str(refusal):  # for a moment, as nodes miss each other's words
                        raise
        return len(keys)

    def end_move(self, topic: str, target: RunningServer) -> None:
        """The old way, last step: the target owns the slot, and all nodes are told."""
        for node in [target, *(node for node in self.running if node is not target)]:
            if self.role_of(node) == "master":
                self._set_slot(node, slot_of(topic), "NODE", self.id_of(target))

    def move(self, topic: str, target: RunningServer) -> None:
        """The whole old way: the topic's slot and all of its keys."""
        source = self.owner_of(topic)
        assert source is not None
        self.begin_move(topic, source, target)
        while self.carry(topic, source, target):
            pass
        self.end_move(topic, target)

    def migrate(self, topic: str, target: RunningServer) -> None:
        """Valkey 9's way: the server moves the slot by itself, and hands it over at once. Returns when every
        node knows."""
        source, slot = self.owner_of(topic), slot_of(topic)
        assert source is not None
        command = "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.id_of(target)

        def is_handed_over() -> bool:
            return all(self.owner_of(topic, node) is target for node in self.running)

        def asked_again() -> bool:
            """A source that stands still for seconds as it hands over gives up, and nobody begins again."""
            with suppress(AssertionError):
                return eventually(is_handed_over, "the slot is handed over", 20.0)
            with suppress(redis.ResponseError):  # it is under way, or over by now
                self.tell(source, *command)
            return False

        self.tell(source, *command)
        eventually(asked_again, "the slot is handed over")

    def fail_over(self, replica: RunningServer) -> None:
        """A replica takes the place of its living master, and both agree about it first."""

        def took_over() -> bool:
            with suppress(redis.ResponseError):  # one is under way
                self.tell(replica, "CLUSTER", "FAILOVER")
            with suppress(AssertionError):  # a vote that failed is not repeated by itself
                return eventually(lambda: self.role_of(replica) == "master", "it is the master", 6.0)
            return False

        eventually(took_over, "the replica has taken over")
        self.until_agreed()

    # ----------------------------------------------------------------- words with a node

    def tell(self, node: RunningServer, *command: str | int) -> Any:
        """One command to one node."""
        with node.client() as client:
            return client.execute_command(*command)

    def text(self, node: RunningServer, *command: str | int) -> str:
        """The same, and its answer as a text."""
        with node.client() as client:
            connection = client.connection_pool.get_connection()
            connection.send_command(*command)
            reply = cast("bytes", connection.read_response(disable_decoding=True))
            client.connection_pool.release(connection)
        return reply.decode()

    def id_of(self, node: RunningServer) -> str:
        return self.text(node, "CLUSTER", "MYID")

    def role_of(self, node: RunningServer) -> str:
        """`master` or `slave`."""
        with node.client() as client:
            return str(cast("dict[str, Any]", client.info("replication"))["role"])

    def known_by(self, node: RunningServer) -> list[str]:
        """The lines of CLUSTER NODES about nodes that have been met."""
        lines = self.text(node, "CLUSTER", "NODES").splitlines()
        return [line for line in lines if "handshake" not in line]

    def close(self) -> None:
        """End all nodes."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
