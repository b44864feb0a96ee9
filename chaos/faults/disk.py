"""Disks that lose power, are slow, or are full. What is modelled and what is not, says `chaos.under.disk`."""

from __future__ import annotations

from random import Random

from chaos.faults.processes import MasterKilled
from chaos.topologies import in_step
from chaos.under.disk import Disk
from chaos.world import World
from tests.sentinels import until_answered
from tests.servers import RunningServer
from tests.worlds.waiting import eventually

SLOW = 0.02, 0.5
"""Seconds that an fsync takes longer, from a bad disk to a sick one."""
ROOM = 20_000
"""Bytes at most that a disk has left, when it begins to be full: the last record is cut."""


def torn(chance: Random) -> Random | None:
    """By what chance a part of what was not synced is on the disk; in half of the cases None, for nothing."""
    return chance if chance.random() < 0.5 else None


def lose_power(world: World, server: RunningServer, chance: Random) -> None:
    """The server's machine is off, and its disk has what was synced; in half of the cases also a part of what
    was not."""
    disk = world.disks[server.port]
    server.kill()
    lost = disk.lose_power(torn(chance))
    if lost.cut or lost.gone or lost.back:
        safe = world.witness.written(server, lost.safe)
        world.lost_after(safe, "not synced")
        world.note("power lost", bytes=lost.bytes, gone=sorted(lost.gone), back=sorted(lost.back))


class PowerLost:
    """The machine of the only server loses power, and starts again."""

    name = "power lost"
    seconds = 0.0, 0.5

    def strike(self, world: World, chance: Random) -> None:
        (self._server,) = world.servers.masters
        lose_power(world, self._server, chance)

    def heal(self, world: World) -> None:
        self._server.start()


class MasterWithoutPower(MasterKilled):
    """The machine of a master loses power, and a replica takes its place. It comes back when the other
    replicas follow that one; or at once, when no Sentinel knows yet that there is another master."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.name = "power lost, failover, back at once" if at_once else "power lost, failover"
        self._at_once = at_once

    def strike(self, world: World, chance: Random) -> None:
        super().strike(world, chance)
        world.disks[self._master.port].lose_power(torn(chance))

    def heal(self, world: World) -> None:
        if not self._at_once:
            until_answered(lambda: self._is_followed(world), "the others follow the new master", 120.0)
        super().heal(world)

    def _is_followed(self, world: World) -> bool:
        others = len(world.servers.all) - 2
        return self._is_replaced(world) and any(in_step(each, others) for each in world.servers.masters)


class DiskSlow:
    """Each fsync of a master's disk takes longer, in half of the cases each write as well."""

    name = "disk slow"
    seconds = 0.5, 3.0

    def strike(self, world: World, chance: Random) -> None:
        self._disk = world.disks[chance.choice(world.servers.masters).port]
        sync = chance.uniform(*SLOW)
        self._disk.slow(sync=sync, write=sync / 10 if chance.random() < 0.5 else 0.0)

    def heal(self, world: World) -> None:
        self._disk.heal()


class DiskFull:
    """A master's disk is full. A server that syncs always ends by that, and is started again when there is
    room; any other refuses all writes."""

    name = "disk full"
    seconds = 0.5, 2.0

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(world.servers.masters)
        self._disk: Disk = world.disks[self._server.port]
        self._refused = self._disk.refused
        self._disk.fill(chance.randrange(ROOM))

    def heal(self, world: World) -> None:
        eventually(lambda: self._disk.refused > self._refused, "the disk has refused something")
        if self._server.config["appendfsync"] == "always":
            eventually(lambda: not self._server.running, "the server has ended")
        self._disk.heal()
        self._server.start()  # if it has ended
