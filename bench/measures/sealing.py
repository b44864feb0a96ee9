"""What sealing costs: timers of 200 bytes in a sealed topic beside the same in a plain one; timers a second.

Drained by stream as under `drain`, and stored by relay's client as under `schedule`. Both ways alternate,
with a relay each.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.rows import Row
from bench.harness.timers import TOPIC
from bench.harness.world import World
from bench.measures.drain import drained
from bench.measures.schedule import emptied, scheduled
from relay.store.codec.contents import Contents
from relay.trust.keyring import FileKeyring

MEASURE = "sealing"
UNIT = "timers/s"
DRAIN, SEALED_DRAIN = "drain, plain", "drain, sealed"
LOAD, SEALED_LOAD = "load, plain", "load, sealed"


async def measure(world: World) -> AsyncIterator[Row]:
    """Drain and load, plain and sealed."""
    timers = world.plan.drain_beside
    with _keyring() as file:
        env = {f"RELAY_TOPICS__{TOPIC}__SEALING": "true", "RELAY_SEALING__KEYRING": str(file)}
        contents = Contents(FileKeyring(file), lambda _: True)

        async def plain_drain() -> float:
            return (await drained(world, timers)).rate

        async def sealed_drain() -> float:
            try:  # the topic's mark is left
                return (await drained(world, timers, env=env, contents=contents, left=1)).rate
            finally:
                await world.server.clear()

        async def load(own: dict[str, str]) -> float:
            async with world.relay(**own) as relay:
                return await emptied(world, scheduled(world, relay, world.plan.batch))

        async def plain_load() -> float:
            return await load({})

        async def sealed_load() -> float:
            return await load(env)

        for plain, sealed, names in (
            (plain_drain, sealed_drain, (DRAIN, SEALED_DRAIN)),
            (plain_load, sealed_load, (LOAD, SEALED_LOAD)),
        ):
            for name, rate in zip(names, await world.in_turns(plain, sealed), strict=True):
                yield Row(MEASURE, name, rate, UNIT)


@contextmanager
def _keyring() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as directory:
        file = Path(directory, "keyring.json")
        key = base64.b64encode(os.urandom(32)).decode()
        file.write_text(json.dumps({"write": "k1", "keys": {"k1": {"base64": key}}}), encoding="utf-8")
        yield file
