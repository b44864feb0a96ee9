"""A master with an append-only file, and a replica that a test may freeze."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import RunningServer, start_server
from tests.worlds.waiting import eventually

EVERYSEC = {"appendonly": "yes", "appendfsync": "everysec"}
AT_ONCE = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}


@contextmanager
def replicated() -> Iterator[tuple[RunningServer, RunningServer]]:
    """The two, once the replica has all. It has no file of its own."""
    with (
        start_server("valkey", config={**EVERYSEC, **AT_ONCE}) as master,
        start_server("valkey", config={**AT_ONCE, "replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        eventually(
            lambda: master.control.info("replication").get("slave0", {}).get("state") == "online",
            "the replica is online",
        )
        yield master, replica
