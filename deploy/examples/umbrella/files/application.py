"""The sample application: it sets a reminder when it starts, and prints reminders that fall due."""

import asyncio
import os

from relay.client import Delivery, RelayClient

client = RelayClient()  # it dials RELAY_TARGET


@client.on("reminders")
async def remind(delivery: Delivery) -> None:
    print(f"{delivery.timer_id}: {delivery.payload.decode()} (attempt {delivery.attempt})", flush=True)


async def main() -> None:
    async with client:
        pod = os.environ.get("POD_NAME", "nobody")
        await client.schedule("reminders", b"hello", timer_id=pod, delay=5)
        await client.run()  # until SIGTERM: then it ends what it has begun


asyncio.run(main())
