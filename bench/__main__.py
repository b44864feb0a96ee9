"""Relay beside its peer, in one run: `make bench`.

Three processes for Relay at its default settings (server, daemon, application), two for
faststream-redis-timers, first at its defaults and then at the best of several tunings. The sides
alternate, so that a machine that drifts wrongs neither. Every run checks that all timers were
handled, once, and committed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
from importlib.metadata import version

from bench.drain import Drain, by_peer, by_relay
from examples.demo.processes import daemon, valkey

TIMERS = 20_000
TRIAL = 3_000
ROUNDS = 3
PEER_DEFAULTS = (5, 0.05)
PEER_TUNINGS = ((50, 0.001), (200, 0.001), (1_000, 0.001), (5_000, 0.001))
"""(max_concurrent, polling_interval in seconds)"""


async def main() -> None:
    """Measure, and print."""
    async with valkey() as redis_url, daemon(redis_url) as target:
        best = await best_tuning(redis_url)
        relay: list[Drain] = []
        peer: list[Drain] = []
        for _ in range(ROUNDS):
            relay.append(await by_relay(redis_url, target, TIMERS))
            peer.append(await by_peer(redis_url, TIMERS, *best))
        defaults = await by_peer(redis_url, 500, *PEER_DEFAULTS)
    print(f"\n{conditions()}\n")
    print(f"Drain of {TIMERS:,} due timers of 200 bytes, acknowledged after the handler; timers a second:\n")
    peer_name = f"faststream-redis-timers {version('faststream-redis-timers')}"
    row("relay, one stream, default settings", relay)
    row(f"{peer_name}, max_concurrent {best[0]}, polling_interval {best[1]} s", peer)
    row(f"{peer_name}, defaults (500 timers)", [defaults])
    print(f"\nrelay / peer at its best: {median(relay) / median(peer):.1f}")


async def best_tuning(redis_url: str) -> tuple[int, float]:
    """The peer's fastest setting."""
    rates = {tuning: (await by_peer(redis_url, TRIAL, *tuning)).rate for tuning in PEER_TUNINGS}
    return max(rates, key=rates.__getitem__)


def median(drains: list[Drain]) -> float:
    """The middle rate."""
    return statistics.median(drain.rate for drain in drains)


def row(name: str, drains: list[Drain]) -> None:
    """One line: median and spread."""
    rates = [drain.rate for drain in drains]
    print(f"  {name:<80} {median(drains):>9,.0f}   ({min(rates):,.0f} to {max(rates):,.0f})")


def conditions() -> str:
    """What this was measured on."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"embedded Valkey, grpcio {version('grpcio')}, redis-py {version('redis')}; "
        "server, relay and application share the machine"
    )


if __name__ == "__main__":
    asyncio.run(main())
