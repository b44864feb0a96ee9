"""A sample application, played by its timers: each payload says what its handler does.

    python -m tests.e2e.application --target 127.0.0.1:7451 --topic orders --events events.jsonl

A payload that is no JSON object means {}: be handled at once. What an object may hold:

    sleep: seconds          work for so long
    hang: true              work for ever
    die: "start" | "end"    SIGKILL itself, before or after the handler's work
    die_until: attempt      … only in attempts before this one (always, if left out)
    nack_until: attempt     NACK attempts before this one
    retry_after: seconds    … with this pause
    reject: true            REJECT
    extend: seconds         say EXTEND so often while it sleeps
    again: seconds          schedule its own id anew, this far from now, on attempt 1 of the first occurrence

Every event is appended to the file as one JSON line by one `write`, so that none is lost with the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from typing import Any

from opentelemetry import propagate

from relay.client import Delivery, Nack, Reject, RelayClient


class Journal:
    """Appends events to a file that several processes may share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        line = {"event": event, "at": time.time(), "pid": os.getpid(), **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def note(self, event: str, delivery: Delivery) -> None:
        """One event of a delivery. `late` (seconds) is by this machine's clock, which is Redis's too."""
        self.write(
            event,
            topic=delivery.topic,
            timer_id=delivery.timer_id,
            attempt=delivery.attempt,
            occurrence=delivery.occurrence_id,
            late=time.time() - delivery.due_time.timestamp(),
            approximate=delivery.due_time_approximate,
            headers=delivery.headers,
            current=current_trace(),
        )


def current_trace() -> str:
    """The `traceparent` of what is current in this task; empty if nothing is."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


def asked(payload: bytes) -> dict[str, Any]:
    """What a payload asks for; nothing, if it is no JSON object."""
    if not payload.startswith(b"{"):
        return {}
    asks: dict[str, Any] = json.loads(payload)
    return asks


class Handler:
    """Does what the payload asks for."""

    def __init__(self, client: RelayClient, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._renewed: set[str] = set()

    async def __call__(self, delivery: Delivery) -> None:
        asks = asked(delivery.payload)
        self._journal.note("start", delivery)
        self._die(asks, "start", delivery)
        await self._work(asks, delivery)
        if "again" in asks and delivery.timer_id not in self._renewed:
            self._renewed.add(delivery.timer_id)
            await self._client.schedule(
                delivery.topic, b"again", delay=asks["again"], timer_id=delivery.timer_id
            )
        self._journal.note("end", delivery)
        self._die(asks, "end", delivery)
        if delivery.attempt < asks.get("nack_until", 0):
            raise Nack(retry_after=asks.get("retry_after"), reason="as asked")
        if asks.get("reject"):
            raise Reject("as asked")

    async def _work(self, asks: dict[str, Any], delivery: Delivery) -> None:
        if asks.get("hang"):
            await asyncio.Event().wait()
        end = time.monotonic() + asks.get("sleep", 0.0)
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, asks.get("extend", left)))
            if "extend" in asks:
                await delivery.extend()

    def _die(self, asks: dict[str, Any], when: str, delivery: Delivery) -> None:
        if asks.get("die") == when and delivery.attempt < asks.get("die_until", sys.maxsize):
            os.kill(os.getpid(), signal.SIGKILL)


async def tell_ready(client: RelayClient, journal: Journal) -> None:
    await client.wait_ready()
    journal.write("ready")


async def serve(options: argparse.Namespace) -> None:
    client = RelayClient(options.target, shutdown_timeout=options.shutdown_timeout)
    journal = Journal(options.events)
    for topic in options.topic:
        client.on(topic, concurrency=options.concurrency, prefetch=options.prefetch)(Handler(client, journal))
    async with client:
        telling = asyncio.create_task(tell_ready(client, journal))
        await client.run()
        telling.cancel()
    journal.write("stopped")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--topic", required=True, action="append")
    parser.add_argument("--events", required=True)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--prefetch", type=int)
    parser.add_argument("--shutdown-timeout", type=float, default=30.0)
    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
