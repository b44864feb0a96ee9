"""What a journal costs: `python -m bench.journal`.

CPU time of the server for each timer and verb, in calls of 1 to 300 timers: without a journal, with one,
and with one at its limit, where every call trims; the ways alternate, so that a machine that drifts wrongs
none. What a whole drain loses, `make bench` tells.
"""

from __future__ import annotations

import asyncio
import os

from examples.demo.processes import valkey
from relay.core.instants import SECOND
from relay.core.journal import Journals
from relay.core.outcomes import ACKED, ClaimRequest, Extension, Settlement
from relay.core.timers import NewTimer
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

WAYS = {"off": 0, "on": 100_000_000, "trimming": 2_000}
"""How many records the journal keeps."""

CALLS = (1, 10, 100, 300)
ROUNDS = int(os.environ.get("ROUNDS", "5"))
TIMERS = 20_000
TOPIC = "bench"
VERBS = ("schedule", "claim", "extend", "ack")
LEASE = 300 * SECOND


async def scripts(server: Server, size: int) -> tuple[dict[str, float], float]:
    """Microseconds of server CPU for each timer, by verb; and the journal's bytes for each record."""
    store = RedisStore(server)
    timers = TIMERS if size > 1 else TIMERS // 10
    names = [f"{n:032x}" for n in range(timers)]
    claims: list[tuple[bytes, list[str]]] = []

    async def schedule() -> None:
        for start in range(0, timers, size):
            part = names[start : start + size]
            await store.schedule(TOPIC, [NewTimer(name, b"p" * 200, due=1) for name in part])

    async def claim() -> None:
        for n in range(0, timers, size):
            nonce = n.to_bytes(16, "big")
            claim = await store.claim(
                TOPIC, ClaimRequest(limit=size, lease=LEASE, nonce=nonce, max_bytes=1 << 24)
            )
            claims.append((nonce, [timer.timer_id for timer in claim.timers]))

    async def extend() -> None:
        for nonce, taken in claims:
            await store.extend(TOPIC, [Extension(name, nonce, received=True) for name in taken], lease=LEASE)

    async def ack() -> None:
        for nonce, taken in claims:
            await store.settle(TOPIC, [Settlement(nonce, ACKED, taken)])

    spent: dict[str, float] = {}
    for verb, step in zip(VERBS, (schedule, claim, extend, ack), strict=True):
        before = await cpu(server)
        await step()
        spent[verb] = (await cpu(server) - before) / timers * 1e6
    journal = KeyNames().of(TOPIC)[-1]
    size_of = await server.ask("MEMORY USAGE", journal, "SAMPLES", 0) or 0
    await server.ask("DEL", journal)
    return spent, size_of / (4 * timers)


async def cpu(server: Server) -> float:
    """Seconds of CPU that the server has used."""
    (info,) = (await server.info()).values()
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def verbs(redis_url: str) -> None:
    """The scripts, the least of all rounds."""
    way = "off"
    journals = Journals(lambda _: WAYS[way])
    async with Server(redis_url, connections=1, timeout=30, journals=journals) as server:
        for size in CALLS:
            least: dict[tuple[str, str], float] = {}
            each = 0.0
            for _ in range(ROUNDS):
                for way in WAYS:
                    spent, bytes_each = await scripts(server, size)
                    each = bytes_each if way == "on" else each
                    for verb, value in spent.items():
                        least[way, verb] = min(value, least.get((way, verb), value))
            for way in WAYS:
                shown = "  ".join(f"{verb} {least[way, verb]:5.1f}" for verb in VERBS)
                print(f"{size:>4} a call, {way:<9} {shown}  µs" + (f"  {each:.0f} bytes" * (way == "on")))


async def main() -> None:
    """Measure, and print."""
    async with valkey() as redis_url:
        await verbs(redis_url)


if __name__ == "__main__":
    asyncio.run(main())
