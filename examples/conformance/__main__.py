"""The Python client, as `relay conformance` wants it: it does what a delivery's payload says.

relay conformance --client "python -m examples.conformance"
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from relay.client import Delivery, Nack, PushHandlers, Reject, RelayClient, RelayError, Reschedule


def told(delivery: Delivery) -> str:
    """What the handler got, as the suite wants to hear it."""
    due = round(delivery.due_time.timestamp() * 1e6)
    header, content = delivery.headers.get("ort", ""), delivery.payload.hex()
    fields = (
        delivery.timer_id,
        delivery.attempt,
        due,
        delivery.occurrence_id,
        delivery.content_type,
        header,
        content,
    )
    return "|".join(map(str, fields))


async def wait_for(gate: str) -> None:
    """Work until the file is there."""
    while not await asyncio.to_thread(Path(gate).exists):
        await asyncio.sleep(0.02)


async def handle(delivery: Delivery) -> None:
    """Do what the first word says, with what stands behind it."""
    word, _, rest = delivery.payload.partition(b" ")
    text = "" if word == b"tell" else rest.decode().strip()
    match word.decode():
        case "ack":
            pass
        case "nack":
            raise Nack(retry_after=int(text) / 1000 if text else None)
        case "final":
            raise Nack(retryable=False)
        case "error":
            raise RuntimeError(text)
        case "reject":
            raise Reject(text)
        case "reschedule":
            raise Reschedule(delay=int(text) / 1000)
        case "extend":
            await delivery.extend()
            await wait_for(text)
        case "hold":
            await wait_for(text)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "tell":
            raise Reject(told(delivery))
        case other:
            raise Reject(f"the suite has no word {other}")


async def main(role: str, topic: str, *rest: str) -> None:
    """Handle the topic by stream or by push until SIGTERM, or schedule one timer."""
    if role == "push":
        address, places = rest
        push = PushHandlers()
        push.on(topic, concurrency=int(places))(handle)
        await push.run(address)
        return
    client = RelayClient()
    if role == "handle":
        client.on(topic, concurrency=int(rest[0]), prefetch=0)(handle)
        await client.run()
        return
    timer_id, delay_ms, payload = rest
    async with client:
        await client.schedule(
            topic, payload.encode(), timer_id=timer_id, delay=int(delay_ms) / 1000, timeout=60
        )


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except RelayError as error:
        sys.exit(str(error))
