"""A cold store beside a Redis, for the tests of the sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from relay.core.instants import SECOND
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore, Write
from relay.pipeline.cold.sweep import Sweep, now
from relay.pipeline.cold.sweep_options import SweepOptions, Swept
from relay.pipeline.spark.redis_target import Target
from relay.store.codec import envelope
from relay.store.keys import KeyNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers import RunningServer

HOUR = 3600 * SECOND
ROWS = "topic string, timer_id string, due_us long, expires_us long, envelope binary"
LATE = "held back"
OPTIONS = SweepOptions(horizon=2 * HOUR, lock=2 * SECOND)


class ColdWorld:
    """One topic that rests in one store; `at` is the time by the clock of Redis as the test began."""

    def __init__(self, spark: SparkSession, server: RunningServer, path: Path | str, topic: str) -> None:
        self.spark, self.topic, self.path = spark, topic, Path(path)
        self.server, self.target = server, Target(server.url)
        self.cold = ColdStore(spark, str(path))
        self.raw = server.client()
        self.at = now(self.target)
        timeline, payloads, leases, *_ = KeyNames().of(topic)
        self.timeline, self.payloads, self.leases = timeline, payloads, leases
        self.marks = KeyNames().key("marks", topic)

    def rows(self, timers: Iterable[tuple[str, int]], payload: str = "payload") -> DataFrame:
        stored = envelope.encode(payload.encode(), {}, "")
        made = [(self.topic, name, self.at + after, None, stored) for name, after in timers]
        return self.spark.createDataFrame(made, ROWS)

    def write(
        self,
        timers: Iterable[tuple[str, int]],
        payload: str = "payload",
        *,
        version: int | None = None,
        retired: bool = True,
    ) -> Write:
        """Put timers into the cold store: ids, and when they are due after the test's beginning."""
        write = self.cold.write(self.rows(timers, payload), version or self.version())
        assert write is not None
        if retired:
            retire(self.cold, self.target, write)
        return write

    def write_many(self, count: int, due: str, size: int = 0, late: str = "false") -> Write:
        """The same for `t0` and so on; `due` is an expression of `id`, each payload has `size` bytes. Rows
        for which the expression `late` is true carry `LATE`, so that a line can hold them."""
        head, body = envelope.encode(b"", {}, "").hex(), "78" * size
        rows = self.spark.range(count).selectExpr(
            f"'{self.topic}' as topic",
            "'t' || id as timer_id",
            f"{self.at} + ({due}) as due_us",
            "cast(null as long) as expires_us",
            f"unhex(if({late}, '{head}{LATE.encode().hex()}', '{head}{body}')) as envelope",
        )
        write = self.cold.write(rows, self.version())
        assert write is not None
        retire(self.cold, self.target, write)
        return write

    def cancel(self, *names: str, version: int | None = None, retired: bool = True) -> Write:
        rows = self.spark.createDataFrame(
            [(self.topic, name) for name in names], "topic string, timer_id string"
        )
        write = self.cold.cancel(rows, version or self.version())
        assert write is not None
        if retired:
            retire(self.cold, self.target, write)
        return write

    def version(self) -> int:
        return self.cold.version(now(self.target))

    def sweep(self, options: SweepOptions = OPTIONS, **changes: object) -> Swept:
        """Sweep the topic. Raises why it was left out, if it was."""
        sweep = self.sweeper(replace(options, **changes))  # type: ignore[arg-type]
        swept = sweep.run()
        for why in sweep.left_out.values():
            raise why
        return swept

    def sweeper(
        self,
        options: SweepOptions = OPTIONS,
        step: Callable[[str], None] = lambda name: None,
        **changes: object,
    ) -> Sweep:
        changed = replace(options, **changes)  # type: ignore[arg-type]
        return Sweep(self.spark, self.cold, self.target, [self.topic], changed, step)

    def live(self) -> dict[str, int]:
        """Timers in Redis, and when they are due after the test's beginning."""
        found: Sequence[tuple[bytes, float]] = self.raw.zrange(self.timeline, 0, -1, withscores=True)  # type: ignore[assignment]
        return {name.decode(): round(score * SECOND) - self.at for name, score in found}

    def payload_of(self, name: str) -> str:
        stored: bytes = self.raw.hget(self.payloads, name)  # type: ignore[assignment]
        return envelope.decode(stored).payload.decode()

    def whole(self) -> bool:
        """Whether timeline and payloads hold the same timers, and nothing is left of the sweep."""
        names = {name.encode() for name in self.live()}
        return names == set(self.raw.hkeys(self.payloads)) and not self.raw.exists(self.marks)

    def touch(self, *names: str) -> None:
        """End these timers as a relay does: cancelled, or delivered and acknowledged."""
        from relay.store.server.scripts import source

        keys = (self.timeline, self.payloads, self.leases, self.marks)
        parts = (part for name in names for part in (name, ""))
        until = (int(time.time()) + 60) * SECOND
        self.raw.eval(source("timeline/cancel"), 4, *keys, until, "", *parts)

    def close(self) -> None:
        self.raw.close()
