"""Processes that die, stand still, come back and change their parts: relays, applications, servers."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, suppress
from random import Random
from typing import cast

import redis

from chaos.topologies import Fleet, Replicated, masters_of
from chaos.world import World
from tests.sentinels import Sentinel, until_answered
from tests.servers import RunningServer
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.cluster.faults import at_once, key_by_key
from tests.worlds.relay.processes import Process


class RelayKilled:
    """SIGKILL. A new one comes in its place, at once or when the other relay has taken all that it held."""

    def __init__(self, away: float = 0.0) -> None:
        self.name = "relay killed and away" if away else "relay killed"
        self.seconds = away, away + 0.5

    def strike(self, world: World, chance: Random) -> None:
        self._relay = chance.choice(world.relays)
        self._relay.kill()
        world.relay_died(self._relay)

    def heal(self, world: World) -> None:
        self._relay.start()


class RelayEnded:
    """SIGTERM: it hands back what it holds and ends, as in a rollout."""

    name = "relay ended in order"
    seconds = 0.0, 0.0

    def strike(self, world: World, chance: Random) -> None:
        self._relay = chance.choice(world.relays)
        self._relay.terminate()

    def heal(self, world: World) -> None:
        self._relay.start()


class Stopped:
    """SIGSTOP and SIGCONT: from too short to be noticed to longer than a lease."""

    def __init__(self, what: str) -> None:
        self.name = f"{what} stopped"
        self._what = what
        self.seconds = 0.05, 3.0

    def strike(self, world: World, chance: Random) -> None:
        victims: list[Process] = list(world.relays if self._what == "relay" else world.applications)
        self._stack = ExitStack()
        self._stack.enter_context(chance.choice(victims).frozen())

    def heal(self, world: World) -> None:
        self._stack.close()


class ApplicationKilled:
    """SIGKILL, and a new one in its place."""

    name = "application killed"
    seconds = 0.0, 0.5

    def strike(self, world: World, chance: Random) -> None:
        self._application = chance.choice(world.applications)
        self._application.kill()

    def heal(self, world: World) -> None:
        self._application.spawn()


class ServerKilled:
    """SIGKILL of the only server, and a start on its file. A process that is killed takes with it what it had
    not handed to the kernel."""

    name = "server killed"
    seconds = 0.0, 0.5

    def strike(self, world: World, chance: Random) -> None:
        (self._server,) = world.servers.masters
        safe = world.witness.written(self._server)
        self._server.kill()
        world.lost_after(safe, "not handed to the kernel")

    def heal(self, world: World) -> None:
        self._server.start()


class ServerStopped:
    """SIGSTOP of a master, for so short that nobody takes its place."""

    name = "server stopped"
    seconds = 0.05, 0.6

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(world.servers.masters)
        self._server.freeze()

    def heal(self, world: World) -> None:
        self._server.thaw()


class ReplicaKilled:
    """SIGKILL of a replica, which comes back on its file."""

    name = "replica killed"
    seconds = 0.0, 1.0

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(replicas_of(world))
        self._server.kill()

    def heal(self, world: World) -> None:
        self._server.start()


class ReplicaStopped:
    """SIGSTOP of a replica."""

    name = "replica stopped"
    seconds = 0.05, 3.0

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(replicas_of(world))
        self._server.freeze()

    def heal(self, world: World) -> None:
        self._server.thaw()


class SentinelKilled:
    """SIGKILL of one of three Sentinels, which comes back."""

    name = "Sentinel killed"
    seconds = 0.0, 1.0

    def strike(self, world: World, chance: Random) -> None:
        self._sentinel: Sentinel = chance.choice(cast("Replicated", world.servers).sentinels)
        self._sentinel.process.kill()
        self._sentinel.process.wait()

    def heal(self, world: World) -> None:
        again, quiet = self._sentinel, subprocess.DEVNULL
        arguments = again.process.args
        again.process = subprocess.Popen(
            arguments,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            cwd=again.directory,
        )
        until_answered(lambda: again.client().ping(), "the Sentinel answers")


class MasterKilled:
    """SIGKILL of a master; a replica takes its place, and it comes back as a replica."""

    name = "master killed, failover"
    seconds = 0.0, 0.0

    def strike(self, world: World, chance: Random) -> None:
        self._master = chance.choice(world.servers.masters)
        self._before = {each.port for each in world.servers.masters}
        self._master.kill()

    def heal(self, world: World) -> None:
        until_answered(lambda: self._is_replaced(world), "a replica has taken over", 120.0)
        self._master.start()

    def _is_replaced(self, world: World) -> bool:
        now = {each.port for each in world.servers.masters}
        return len(now) == len(self._before) and now != self._before


class MasterStopped(MasterKilled):
    """SIGSTOP of a master for so long that a replica takes its place; it wakes up and has to be told."""

    name = "master stopped, failover"

    def strike(self, world: World, chance: Random) -> None:
        self._master = chance.choice(world.servers.masters)
        self._before = {each.port for each in world.servers.masters}
        self._master.freeze()

    def heal(self, world: World) -> None:
        until_answered(lambda: self._is_replaced(world), "a replica has taken over", 120.0)
        self._master.thaw()


class FailoverAsked:
    """A person asks for a failover: `SENTINEL FAILOVER`, or `CLUSTER FAILOVER` at a replica, with which
    master and replica agree first."""

    name = "failover by request"
    seconds = 0.0, 0.0

    def strike(self, world: World, chance: Random) -> None:
        before = {each.port for each in world.servers.masters}
        if isinstance(world.servers, Fleet):
            world.servers.cluster.fail_over(chance.choice(replicas_of(world)))
            return
        group = cast("Replicated", world.servers).group

        def is_over() -> bool:
            with suppress(redis.ResponseError):  # one is under way, or none is fit
                group.fail_over()
            with suppress(AssertionError):
                return bool(
                    until_answered(
                        lambda: len(now := world.servers.masters) == 1 and now[0].port not in before,
                        "another one is the master",
                        15.0,
                    )
                )
            return False

        until_answered(is_over, "Sentinel has failed over", 120.0)

    def heal(self, world: World) -> None:
        """There is nothing to heal."""


class SlotMoved:
    """The slot of a partition goes to another master, key by key or at once."""

    seconds = 0.0, 0.0

    def __init__(self, way: str, partitions: list[str]) -> None:
        self.name = f"slot moved {way}"
        self._move = key_by_key if way == "key by key" else at_once
        self._partitions = partitions

    def strike(self, world: World, chance: Random) -> None:
        cluster: Cluster = cast("Fleet", world.servers).cluster
        partition, masters = chance.choice(self._partitions), masters_of(cluster.running)
        owner = cluster.owner_of(partition, masters[0])
        targets = [each for each in masters if each is not owner]
        self._move(cluster, partition, chance.choice(targets), chance)

    def heal(self, world: World) -> None:
        """There is nothing to heal."""


def replicas_of(world: World) -> list[RunningServer]:
    """Those that are no masters now."""
    masters = world.servers.masters
    return [each for each in world.servers.all if each not in masters]
