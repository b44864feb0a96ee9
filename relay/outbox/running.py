"""Several movers beside each other, what wakes them, and their metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay.outbox.databases import database_at
from relay.outbox.mover import MoverCounts, OutboxMover
from relay.outbox.ports import DatabaseFailure, OutboxDatabase
from relay.outbox.status import OutboxStatus

logger = logging.getLogger("relay.outbox")

AGAIN = 1.0
"""Seconds until a lost connection is made again."""

LOOK = 5.0
"""Seconds between two looks at how the outbox stands."""


async def listen(database: OutboxDatabase, wake: Callable[[], None]) -> None:
    """Wake the movers as often as a transaction with rows commits. The loop never ends; while it has no
    connection, the movers look by themselves."""

    async def hear() -> None:
        await database.changed()
        wake()

    await _forever(database, hear, "not listening")


async def _forever(database: OutboxDatabase, act: Callable[[], Awaitable[None]], trouble: str) -> None:
    """Do something again and again, by another connection after a failure, of which `trouble` tells."""
    try:
        while True:
            try:
                await act()
            except DatabaseFailure as failure:
                logger.debug("%s: %s", trouble, failure)
                await database.close()
                await asyncio.sleep(AGAIN)
    finally:
        await database.close()


class OutboxMetrics(Collector):
    """How the outbox stands, as movers saw it last, and what those of this process have done."""

    def __init__(self, counts: MoverCounts, status: OutboxStatus | None = None) -> None:
        self.counts = counts
        self.status = status

    async def watch(self, database: OutboxDatabase) -> None:
        """Look again and again. The loop never ends."""

        async def look() -> None:
            self.status = await database.status()
            await asyncio.sleep(LOOK)

        await _forever(database, look, "the outbox can't be looked at")

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics; those of the outbox are absent before the first look."""
        yield from self._standing()
        moved = CounterMetricFamily(
            "relay_outbox_moved_rows",
            "Rows that this mover handed to a relay, by what became of them.",
            labels=["result"],
        )
        for result in ("taken", "refused", "held"):
            moved.add_metric([result], getattr(self.counts, result))
        yield moved

    def _standing(self) -> Iterator[Metric]:
        if (found := self.status) is None:
            return
        yield GaugeMetricFamily(
            "relay_outbox_lag_seconds", "The age of the oldest row that waits for a mover.", value=found.lag
        )
        rows = GaugeMetricFamily(
            "relay_outbox_rows", "Rows of the outbox, by how they stand.", labels=["state"]
        )
        for state in ("waiting", "blocked", "refused"):
            rows.add_metric([state], getattr(found, state))
        yield rows


async def run(url: str, movers: Sequence[OutboxMover], metrics: OutboxMetrics) -> None:
    """Run the movers until `OutboxMover.stop` has ended all of them."""

    def wake() -> None:
        for mover in movers:
            mover.woken.set()

    beside = [
        asyncio.create_task(listen(database_at(url), wake)),
        asyncio.create_task(metrics.watch(database_at(url))),
    ]
    try:
        await asyncio.gather(*(mover.run() for mover in movers))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
