"""A sample application with recurrences above its handlers, as any number of replicas run it.

    python -m tests.worlds.relay.recurring --target 127.0.0.1:7451 --events events.jsonl

`failing` comes every second, and each of its occurrences fails in every attempt. What happens is appended to
the file as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from relay.client import Delivery, RelayClient
from tests.worlds.relay.application import Journal
from tests.worlds.waiting import make_one_try


async def serve(target: str, journal: Journal) -> None:
    client = RelayClient(target, timeout=60.0)

    @client.cron("0 3 * * MON-FRI", zone="Europe/Berlin", payload=b"weekdays", recurrence_id="weekdays")
    @client.every("1 s", recurrence_id="failing")
    @client.on("failing", concurrency=1)
    async def always_fails(delivery: Delivery) -> None:
        journal.note("start", delivery)
        raise RuntimeError("as always")

    async with client:
        await client.wait_ready()
        journal.write("ready")
        await client.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--events", required=True)
    asked = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    make_one_try()  # of a second try a replica says that it found its recurrence as it is
    asyncio.run(serve(asked.target, Journal(asked.events)))


if __name__ == "__main__":
    main()
