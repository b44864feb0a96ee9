"""A server without memory."""

from __future__ import annotations

from random import Random

from chaos.world import World


class MemoryFull:
    """`maxmemory` is less than a master uses already, and nothing is evicted: it refuses every command that
    could need memory."""

    name = "memory full"
    seconds = 0.2, 3.0

    def strike(self, world: World, chance: Random) -> None:
        self._server = chance.choice(world.servers.masters)
        self._server.control.config_set("maxmemory-policy", "noeviction")
        self._server.control.config_set("maxmemory", "1")

    def heal(self, world: World) -> None:
        self._server.control.config_set("maxmemory", "0")
