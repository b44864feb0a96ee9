"""The measured application: takes a topic's timers by stream, by relay.client at its defaults.

Argument: `targets` (one client for each), `topic`, `timers` to wait for; `concurrency` if it is not to
be the client's default; `lateness` true to note how late each timer is; `topics` to open so many idle
streams beside. Says `{"ready": true}` once all streams are open, then how it went.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from bench.applications.tally import Tally, say
from relay.client import Delivery, RelayClient


async def main(
    targets: list[str],
    topic: str,
    timers: int,
    concurrency: int = 100,
    *,
    lateness: bool = False,
) -> None:
    """Handle so many timers and say how it went."""
    tally = Tally(timers)

    async def count(delivery: Delivery) -> None:
        tally.count(delivery.timer_id)

    async def note(delivery: Delivery) -> None:
        tally.late(delivery.due_time.timestamp())
        tally.count(delivery.timer_id)

    async with AsyncExitStack() as stack:
        clients = []
        for target in targets:
            client = RelayClient(target)
            client.on(topic, concurrency=concurrency)(note if lateness else count)
            clients.append(await stack.enter_async_context(client))
        for client in clients:
            await client.wait_ready(60)
        say(ready=True)
        await tally.done.wait()
        seconds = tally.seconds
    # The last acknowledgements are written now, and stray duplicates would have come.
    tally.report(seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
