"""The limit to compare with: one client that writes rows out of its memory, and does nothing else."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relay.pipeline.rows.packing import pack_rows
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.store import BATCH
from relay.store.bulk.sweeping import Marks
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer, as_arguments
from relay.store.server.scripts import Argument
from relay.store.verbs import bulk

AHEAD = 2
"""Batches under way."""


@dataclass(frozen=True)
class Rows:
    """Timers in memory, ready to be sent; once more as the cold store has them."""

    ids: list[str]
    scores: list[float]
    envelopes: list[bytes]
    cold: list[pa.RecordBatch]


def rows(table: Path) -> Rows:
    """A table of timers, in the order of due times."""
    held = pq.read_table(table).sort_by("due_time")
    due = held["due_time"].cast(pa.timestamp("us", tz="UTC")).cast("int64").combine_chunks()
    front = envelope.encode(b"", {}, "")
    ids, envelopes = held["timer_id"].to_pylist(), [front + each for each in held["payload"].to_pylist()]
    cold = pa.table(
        {
            "timer_id": ids,
            "due_us": due,
            "envelope": pa.array(envelopes, pa.binary()),
            "version": pa.repeat(1, len(ids)),
            "expires_us": pa.nulls(len(ids), pa.int64()),
        }
    )
    scores = pc.divide(due.cast("double"), 1e6).to_pylist()
    return Rows(ids, scores, envelopes, cold.to_batches(max_chunksize=20 * BATCH))


def pipelines(url: str, topic: str, held: Rows) -> float:
    """Variadic ZADD and HSET, 500 timers each, pipelined: timers a second."""
    timeline, payloads, *_ = KeyNames().of(topic)
    with BlockingServer(url, timeout=60) as line:
        line.ask("PING")
        under_way: deque[int] = deque()
        began = time.perf_counter()
        for start in range(0, len(held.ids), BATCH):
            ids = held.ids[start : start + BATCH]
            timers: list[Argument] = [b""] * (2 * len(ids))
            stored: list[Argument] = [b""] * (2 * len(ids))
            timers[::2], timers[1::2] = held.scores[start : start + BATCH], ids
            stored[::2], stored[1::2] = ids, held.envelopes[start : start + BATCH]
            line.send(("ZADD", timeline, *timers), ("HSET", payloads, *stored))
            under_way.append(2)
            while len(under_way) > AHEAD:
                line.receive(under_way.popleft())
        line.receive(sum(under_way))
        return len(held.ids) / (time.perf_counter() - began)


def guarded(target: Target, marks: Marks, held: Rows) -> float:
    """The script of the guarded load, 500 timers a call, pipelined: timers a second."""
    with target.server() as server:
        call = server.prepare(bulk.guarded_load(marks.layout.topic, marks.epoch, marks.plan, "", "", ""))
        server.ask("SCRIPT", "LOAD", call.script.text)
        front = "EVALSHA", call.script.sha, *call.head
        behind = *call.channel, marks.epoch, marks.plan
        under_way = 0
        began = time.perf_counter()
        for number, rows in enumerate(part for some in held.cold for part in pack_rows(some)):
            given = *front, server.until(), *behind, number, rows.versions, rows.expires
            head = as_arguments(*given)
            server.send_packed(b"".join((b"*%d\r\n" % (len(given) + 3), head, *rows.arguments())), 1)
            under_way += 1
            if under_way > AHEAD:
                server.receive(1)
                under_way -= 1
        server.receive(under_way)
        return len(held.ids) / (time.perf_counter() - began)
