"""An application that waits for timers that never come.

Argument: `target`, `topics` (how many). Says `{"ready": true}` once it has a stream for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from bench.applications.tally import say
from relay.client import Delivery, RelayClient


async def main(target: str, topics: int) -> None:
    """Until SIGTERM."""
    client = RelayClient(target)

    async def never(delivery: Delivery) -> None:
        raise AssertionError(delivery.timer_id)

    for number in range(topics):
        client.on(f"idle-{number}")(never)
    async with client:
        await client.wait_ready(60)
        say(ready=True)
        await client.run()


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
