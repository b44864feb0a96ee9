"""`relay seal rotate` and the ids of dead letters: none is given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.errors import StoreRefused
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.store.test_resealing import DEAD, Desk, contents


@pytest.mark.every_server
async def test_the_last_id_stays(redis_server: RunningServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """The newest letter has been purged. After the rotation its id is still taken: a clock that steps back
    does not give it to another death."""
    topic = keyspace.topic("resealed")
    keyspace.allow(f"*{topic}*")
    old, both = contents(tmp_path, "k1"), contents(tmp_path, "k2", "k1")
    desk = Desk(redis_server.url, topic, old, both, 1)
    try:
        await desk.fill()
        key = desk.server.keys.key("dead", topic)
        entries = [entry for entry, _ in await desk.server.ask("XRANGE", key, "-", "+")]
        assert len(entries) == len(DEAD)
        await desk.topics.purge(topic, [entries[-1].decode()])
        desk.rotate()
        left = [entry for entry, _ in await desk.server.ask("XRANGE", key, "-", "+")]
        assert left == entries[:-1]
        with pytest.raises(StoreRefused, match="equal or smaller"):
            await desk.server.ask("XADD", key, entries[-1], "timer_id", "x")
    finally:
        await desk.server.aclose()
