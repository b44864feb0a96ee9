"""The measured application that relays dial: `TimerHandler` by relay.client, at its defaults.

Argument: `port`, `topic`, `timers` to wait for. Says `{"ready": true}`, then how it went.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from bench.applications.tally import Tally, say
from relay.client import Delivery, PushHandlers


async def main(port: int, topic: str, timers: int) -> None:
    """Handle so many timers and say how it went."""
    tally = Tally(timers)
    push = PushHandlers()

    @push.on(topic)
    async def count(delivery: Delivery) -> None:
        tally.count(delivery.timer_id)

    async with push.serve(f"127.0.0.1:{port}"):
        say(ready=True)
        await tally.done.wait()
        seconds = tally.seconds
    tally.report(seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
