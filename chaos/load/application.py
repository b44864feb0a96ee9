"""Handlers, as an application runs them: each writes down that it begins, and how it ends.

    python -m chaos.load.application --target 127.0.0.1:7451 --ledgers DIR --name application-1

A payload is a JSON object: `n` (the intent), `due` (microseconds), `sleep` (seconds of work), `nack` (how
many attempts of an occurrence are answered NACK), `reject` (REJECT, until the operator has seen the dead
letter and left a file).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.ledger import Ledger
from chaos.load.asked import asked
from chaos.world import TOPIC
from relay.client import Delivery, Nack, Reject, RelayClient
from relay.core.instants import SECOND

CONCURRENCY = 200
SEEN = "seen"
"""The folder of files that are named like timers whose dead letters the operator has seen."""


def seen(ledgers: Path, timer_id: str) -> Path:
    """The file that says that this timer may be acknowledged now."""
    return ledgers / SEEN / timer_id


class Handler:
    """Does what the payload asks for."""

    def __init__(self, ledger: Ledger, ledgers: Path) -> None:
        self._ledger = ledger
        self._ledgers = ledgers
        self._nacked: Counter[str] = Counter()

    async def __call__(self, delivery: Delivery) -> None:
        asks: dict[str, Any] = json.loads(delivery.payload)
        self._write("begin", delivery, asks)
        await asyncio.sleep(asks.get("sleep", 0.0))
        if self._nacked[delivery.occurrence_id] < asks.get("nack", 0):
            self._nacked[delivery.occurrence_id] += 1
            self._write("end", delivery, asks, outcome="nack")
            raise Nack(retry_after=0.1)
        if asks.get("reject") and not seen(self._ledgers, delivery.timer_id).exists():
            self._write("end", delivery, asks, outcome="reject")
            raise Reject("as asked")
        self._write("end", delivery, asks, outcome="ack")

    def _write(self, kind: str, delivery: Delivery, asks: dict[str, Any], **more: str) -> None:
        self._ledger.write(
            kind,
            id=delivery.timer_id,
            n=asks["n"],
            due=round(delivery.due_time.timestamp() * SECOND),
            attempt=delivery.attempt,
            occurrence=delivery.occurrence_id,
            deadline=round(delivery.lease_deadline.timestamp() * SECOND),
            **more,
        )


async def serve(target: str, ledgers: Path, name: str) -> None:
    """Handle until SIGTERM."""
    ledger = Ledger(ledgers, name)
    client = RelayClient(target)
    client.on(TOPIC, concurrency=CONCURRENCY)(Handler(ledger, ledgers))
    async with client:
        await client.wait_ready()
        ledger.write("ready")
        await client.run()


def main() -> None:
    options = asked(target=str)
    asyncio.run(serve(options.target, options.ledgers, options.name))


if __name__ == "__main__":
    main()
