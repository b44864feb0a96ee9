"""How fast rows of an outbox become timers: `python -m bench.outbox --database URL --target 127.0.0.1:7451`.

The URL is of PostgreSQL or of SQLite. It writes rows into the database, which needs the tables of `relay
outbox migrate` and should be used by nobody else, and runs movers in this process. It prints rows a second of
a backlog, and how long a single row takes from its commit to the answer of the relay. The timers stay, and
are due in a day.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from time import monotonic
from typing import Any

from sqlalchemy import Engine, create_engine

from relay.client import NewTimer, RelayClient
from relay.outbox import schedule_batch
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.mover import MoverCounts, OutboxMover
from relay.outbox.running import OutboxMetrics, run


def write(engine: Engine, timers: Sequence[NewTimer]) -> float:
    """Commit rows, and return when."""
    with engine.begin() as connection:
        schedule_batch(connection, timers)
    return monotonic()


class TimedMover(OutboxMover):
    """It notes when a relay has answered for a row."""

    taken: dict[str, float]

    async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
        """Hand over, and note the time."""
        done = await super().hand_over(rows, deadline)
        now = monotonic()
        names = {row.id: row.timer_id for row in rows}
        self.taken |= dict.fromkeys((names[each] for each in done.taken), now)
        return done


async def measure(options: argparse.Namespace) -> None:
    """Print the figures."""
    taken: dict[str, float] = {}
    counts = MoverCounts()
    engine = create_engine(options.database.replace("postgresql:", "postgresql+psycopg:"))
    new: dict[str, Any] = {"topic": options.topic, "payload": b"x" * 200, "delay": 86_400.0}
    async with RelayClient(options.target) as client:
        movers = [TimedMover(options.database, client, counts=counts) for _ in range(options.movers)]
        for mover in movers:
            mover.taken = taken
        backlog = [NewTimer(timer_id=f"row-{n}", **new) for n in range(options.rows)]
        await asyncio.to_thread(write, engine, backlog)
        began = monotonic()
        running = asyncio.create_task(run(options.database, movers, OutboxMetrics(counts)))
        while counts.taken < options.rows:
            await asyncio.sleep(0.01)
        rate = options.rows / (monotonic() - began)
        print(f"{rate:,.0f} rows a second, {options.rows:,} rows, {len(movers)} movers")
        latencies = []
        for n in range(options.singles):
            timer = NewTimer(timer_id=f"single-{n}", **new)
            committed = await asyncio.to_thread(write, engine, [timer])
            while timer.timer_id not in taken:
                await asyncio.sleep(0.0005)
            latencies.append(taken[timer.timer_id] - committed)
            await asyncio.sleep(0.01)
        p50, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
        print(
            f"commit to scheduled: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, {options.singles} rows"
        )
        for mover in movers:
            mover.stop()
        await running
    engine.dispose()


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", required=True)
    parser.add_argument("--target", default="127.0.0.1:7451")
    parser.add_argument("--topic", default="bench-outbox")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--singles", type=int, default=300)
    parser.add_argument("--movers", type=int, default=2)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
