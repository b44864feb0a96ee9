"""Drains due timers, by Relay and by the peer, and says how fast."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass

from relay.core.timers import NewTimer
from relay.store.connect import connect
from relay.store.keys import KeyNames
from relay.store.redis import RedisStore

PAYLOAD = b"p" * 200
TOPIC = "bench"
LOAD_BATCH = 500
PATIENCE = 300.0


class Wrong(Exception):
    """A run lost timers or delivered them twice: its rate means nothing."""


@dataclass(frozen=True)
class Drain:
    """One run: how many timers in how many seconds, first handler to last."""

    timers: int
    seconds: float

    @property
    def rate(self) -> float:
        """Timers a second."""
        return self.timers / self.seconds


async def load(redis_url: str, timers: int) -> None:
    """Store due timers of 200 bytes, in the form that both sides read."""
    async with connect(redis_url, connections=1, timeout=30) as redis:
        store = RedisStore(redis)
        for start in range(0, timers, LOAD_BATCH):
            batch = range(start, min(start + LOAD_BATCH, timers))
            await store.schedule(TOPIC, [NewTimer(f"timer-{n}", PAYLOAD, delay=0) for n in batch])


async def left(redis_url: str) -> int:
    """How many keys are left but the names of topics: none, if every timer was committed.

    The journal goes as well: the next run begins with none.
    """
    keys = KeyNames()
    async with connect(redis_url, connections=1, timeout=30) as redis:
        await redis.delete(keys.of(TOPIC)[-1])
        return int(await redis.dbsize()) - int(await redis.exists(keys.topics))


async def by_relay(redis_url: str, target: str, timers: int) -> Drain:
    """Three processes: server, daemon, application."""
    return await _drain(redis_url, timers, "bench.relay_application", target, str(timers))


async def by_peer(redis_url: str, timers: int, max_concurrent: int, polling_interval: float) -> Drain:
    """Two processes: server, application."""
    tuning = str(max_concurrent), str(polling_interval)
    return await _drain(redis_url, timers, "bench.peer_application", redis_url, str(timers), *tuning)


async def _drain(redis_url: str, timers: int, module: str, *arguments: str) -> Drain:
    await load(redis_url, timers)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    result = json.loads(output)
    remaining = await left(redis_url)
    if result["handled"] != timers or result["again"] or remaining:
        raise Wrong(f"{module}: {result}, {remaining} keys left of {timers} timers")
    return Drain(timers, result["seconds"])
