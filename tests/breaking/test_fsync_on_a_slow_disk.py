"""What was answered as `fsync` is on the disk, however slow that is: the machine loses power right behind the
OK."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from relay.core.durability import needing
from relay.core.timers import NewTimer
from relay.store.server import server as server_module
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.breaking.conftest import OnDisk
from tests.servers import Kind, binary, server_id
from tests.store.test_bulk_durability import fill
from tests.store.test_durability import FSYNC
from tests.worlds.waiting import PATIENCE, eventually, until

pytestmark = pytest.mark.slow

LATER = 4_000_000_000_000_000
WITH_WAITAOF: list[Kind] = [kind for kind in ("valkey", "redis-8") if binary(kind)]
IN_LONG = [pytest.mark.chaos]
"""Each server meets one of the two disks in `make test-all`."""


@pytest.mark.parametrize(
    ("kind", "takes"),
    [
        pytest.param(kind, takes, id=f"{takes}-{server_id(kind)}", marks=marks)
        for place, kind in enumerate(WITH_WAITAOF)
        for takes, marks in ((1.6, IN_LONG[place % 2 :]), (3.0, IN_LONG[1 - place % 2 :]))
    ],
)
async def test_an_ok_comes_behind_the_fsync(
    kind: Kind, takes: float, on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An fsync is under way as the call is made, so the server begins the one that has it later: when the
    first has ended; or two seconds after it was asked to write, it writes all the same, and syncs when the
    first has ended."""
    monkeypatch.setattr(server_module, "DURABLE_TTL", PATIENCE)
    server, disk = on_disk(kind, "everysec")
    async with Server(server.url, timeout=PATIENCE, write_ttl=PATIENCE) as client:
        store = RedisStore(client)
        await schedule(store, "before")
        disk.slow(sync=takes)
        slowed = disk.slowed
        await asyncio.to_thread(server.control.set, "something", "to be synced")
        await until(lambda: disk.slowed > slowed, "an fsync is under way")
        await schedule(store, "a")
        server.kill()
        disk.lose_power()
        disk.heal()
        server.start()
        assert server.control.zscore("timers_timeline:t", "a") is not None


@pytest.mark.parametrize("kind", WITH_WAITAOF[:1], ids=server_id)
def test_so_does_the_end_of_a_load(kind: Kind, on_disk: OnDisk) -> None:
    """The server writes beside an fsync that takes longer than two seconds, and begins the next one a second
    after that, which may be behind the end of the first."""
    server, disk = on_disk(kind, "everysec")
    disk.slow(sync=2.4)
    server.control.set("something", "to be synced")
    eventually(lambda: disk.slowed, "an fsync is under way")
    fill(server.url, FSYNC, "t", "a")
    server.kill()
    disk.lose_power()
    disk.heal()
    server.start()
    assert server.control.zscore("timers_timeline:t", "a") is not None


async def schedule(store: RedisStore, timer_id: str) -> None:
    with needing(FSYNC):
        await store.schedule("t", [NewTimer(timer_id, b"", due=LATER)], deadlines=[monotonic() + PATIENCE])
