"""The sample application: two handlers, as a user of Relay would write them.

It prints one JSON line for each event, which the demo reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from relay.client import Delivery, RelayClient

client = RelayClient()


def tell(event: str, delivery: Delivery, **more: Any) -> None:
    """Print one line on standard output."""
    print(json.dumps({"event": event, "timer_id": delivery.timer_id, **more}), flush=True)


@client.on("demo")
async def handle(delivery: Delivery) -> None:
    """Work for as long as the payload says; returning acknowledges."""
    lateness = time.time() - delivery.due_time.timestamp()
    tell("delivered", delivery, attempt=delivery.attempt, lateness_ms=1000 * lateness)
    await asyncio.sleep(delivery.json()["work_seconds"])
    tell("handled", delivery)


async def main() -> None:
    """Serve until SIGTERM."""
    async with client:
        await client.wait_ready()
        print(json.dumps({"event": "ready"}), flush=True)
        await client.run()


if __name__ == "__main__":
    # The client warns about a reschedule in flight; here it is part of the story.
    logging.basicConfig(level=logging.ERROR)
    sys.exit(asyncio.run(main()))
