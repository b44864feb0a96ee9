"""The measured application: counts deliveries of the topic `bench` by relay.client, at its defaults.

Arguments: the relay's address, how many to wait for. Prints one JSON line: seconds from the first to
the last handler, how many were handled, how many of them more than once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from relay.client import Delivery, RelayClient


async def main(target: str, expected: int) -> None:
    """Handle `expected` timers and say how long it took."""
    client = RelayClient(target)
    seen: set[str] = set()
    total, began = 0, 0.0
    done = asyncio.Event()

    @client.on("bench")
    async def count(delivery: Delivery) -> None:
        nonlocal total, began
        began = began or time.perf_counter()
        total += 1
        seen.add(delivery.timer_id)
        if len(seen) == expected:
            done.set()

    async with client:
        await done.wait()
        seconds = time.perf_counter() - began
    # The last acknowledgements are written now, and stray duplicates would have come.
    print(json.dumps({"seconds": seconds, "handled": len(seen), "again": total - len(seen)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
