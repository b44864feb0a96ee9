"""What the nemesis acts on: servers, relays, applications, and the lines between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.ledger import Ledger
from chaos.topologies import Servers
from chaos.under.clocks import Clocks
from chaos.under.disk import Disk
from chaos.witness import Witness
from tests.ghosts.slow_line import SlowLine
from tests.worlds.relay.processes import Process, Relay
from tests.worlds.waiting import eventually

TOPIC = "orders"

Line = SlowLine
"""What stands between a sender and a port, in worlds with lines."""


@dataclass
class World:
    """All of it runs when the nemesis begins.

    `servers.all` are `RunningServer`s: `kill`, `start` on what is in `directory`, `freeze`, `thaw`, and
    `environment` for variables of the next start. `relays` and `applications` are `Process`es: `kill`,
    `start`, `frozen`, `settings` (variables) and `root` (the code) of the next start. Application n hangs on
    relay n.

    With `lines`, relay NAME reaches the server on a port by `to_servers[NAME][port]`, and its application
    reaches it by `to_relays[NAME]`; otherwise both are empty. With `disks`, each server has one under it, by
    its port. With `clocks`, each server, relay and application has one of its own.
    """

    directory: Path
    servers: Servers
    ledger: Ledger
    witness: Witness
    lease_ttl: float
    relays: Sequence[Relay] = ()
    applications: Sequence[Process] = ()
    clients: Sequence[Process] = ()
    to_servers: Mapping[str, Mapping[int, Line]] = field(default_factory=dict)
    to_relays: Mapping[str, Line] = field(default_factory=dict)
    disks: Mapping[int, Disk] = field(default_factory=dict)
    clocks: Clocks | None = None
    partitions: int = 1
    """Of the topic, as was asked for last."""
    stack: ExitStack = field(default_factory=ExitStack)
    """Closed with the world."""

    def whole(self) -> bool:
        """Whether all servers, relays and applications run, and servers are in step."""
        processes = [*self.relays, *self.applications]
        return all(each.running for each in processes) and self.servers.whole()

    def until_whole(self) -> None:
        """Raises AssertionError after two minutes."""
        eventually(self.whole, "the world is whole")

    def application_of(self, relay: Relay) -> Process:
        """The one that hangs on this relay."""
        return self.applications[list(self.relays).index(relay)]

    # ------------------------------------------------------------- what the judge is told

    def lost_after(self, safe: float, why: str) -> None:
        """What servers answered for after `safe` (monotonic seconds) and till now may be gone; such as "not
        synced". To be called at the moment of the loss. Failovers are seen by the witness."""
        self.ledger.write("loss", safe=safe, why=why, lag=time.monotonic() - safe)

    def relay_died(self, relay: Relay) -> None:
        """To be called when a relay is dead: what it held has to come again within `lease_ttl` + 1 s."""
        self.ledger.write("death", relay=relay.name)

    def note(self, what: str, **fields: Any) -> None:
        """Anything else that a reader of the row's ledgers may want to know."""
        self.ledger.write("note", what=what, **fields)
