"""The store in memory, and on each real server in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.core.journal import JournalBatch, Journals
from relay.store.memory import MemoryStore
from tests.chaos import CHAOS
from tests.contract.subject import Subject
from tests.servers import ALONE, KINDS, LUA54, SYSTEM, Kind, ServerPool, binary, server_id
from tests.turns import in_turn
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace

REAL: tuple[Kind, ...] = (*KINDS, *([SYSTEM] if binary(SYSTEM) and not ALONE else []))
"""The servers, and Debian's Redis 7 where it is installed: every verb, so every script."""


class MemoryLedger:
    """The journal of a store in memory."""

    store: MemoryStore

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.keep = self.trimmed = 0

    def on_trimmed(self, topic: str, count: int) -> None:
        assert topic == self.topic
        self.trimmed += count

    async def batches(self) -> list[JournalBatch]:
        return self.store.journal(self.topic)


BY_LUA54 = [pytest.param(LUA54, marks=pytest.mark.chaos)] if CHAOS and binary(LUA54) else []
"""And by Lua 5.4, which each script meets in tests/lua and tests/dispatch already."""


def store_id(kind: Kind | None) -> str:
    return server_id(kind) if kind else "memory"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A subject, or a scene of recurrences, is in memory, and on a server whose turn it is."""
    for name in {"subject", "scene"} & set(metafunc.fixturenames):
        stores = [None, *in_turn(metafunc, REAL), *BY_LUA54]
        metafunc.parametrize(name, stores, indirect=True, ids=store_id)


@pytest.fixture
async def subject(
    request: pytest.FixtureRequest, server_pool: ServerPool, keyspace: Keyspace
) -> AsyncIterator[Subject]:
    """A store with its clock at NOW."""
    topic = keyspace.topic()
    kind: Kind | None = request.param
    if kind is None:
        instants = [NOW]
        ledger = MemoryLedger(topic)
        store = ledger.store = MemoryStore(
            lambda: instants[-1], journals=Journals(lambda _: ledger.keep, ledger.on_trimmed)
        )
        yield Subject(store, topic, instants.append, ledger)
        return
    bench = Bench(server_pool.get(kind), topic)
    yield Subject(bench.store, topic, lambda instant: setattr(bench, "now", instant), bench)
    await bench.close()
