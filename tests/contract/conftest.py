"""Every store in turn: in memory, and on each real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.store.memory import MemoryStore
from tests.contract.subject import NOW, Subject
from tests.lua.bench import Bench
from tests.servers import KINDS, Kind, ServerPool, binary, server_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace

STORES: tuple[Kind | None, ...] = (None, *KINDS)


@pytest.fixture(params=STORES, ids=lambda kind: server_id(kind) if kind else "memory")
async def subject(
    request: pytest.FixtureRequest, server_pool: ServerPool, keyspace: Keyspace
) -> AsyncIterator[Subject]:
    """A store with its clock at NOW."""
    topic = keyspace.topic()
    kind: Kind | None = request.param
    if kind is None:
        instants = [NOW]
        yield Subject(MemoryStore(lambda: instants[-1]), topic, instants.append)
        return
    if binary(kind) is None:
        pytest.skip(f"no {kind} server is installed here")
    bench = Bench(server_pool.get(kind), topic)
    yield Subject(bench.store, topic, lambda instant: setattr(bench, "now", instant))
    await bench.close()
