"""A stream of JSON lines into timers, whose batches a test takes one by one, or again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.pipeline.timers_source import TimersDataSource
from relay.store.keys import KeyNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.servers import RunningServer

SOON, FAR = "2026-01-01T00:00:00Z", "2090-01-01T00:00:00Z"
FIRST_FILE = 1_767_225_600
"""When the first file was changed, in unix seconds."""
SCHEMA = "topic string, timer_id string, due_time timestamp, payload string"


class Stream:
    """Files that are added to a folder; one is a batch. The checkpoint keeps what was read."""

    def __init__(self, spark: SparkSession, url: str, place: Path, schema: str = SCHEMA) -> None:
        spark.dataSource.register(TimersDataSource)
        self.spark, self.url, self.schema = spark, url, schema
        self.folder, self.checkpoint = place / "rows", place / "checkpoint"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files = 0

    def add(self, *rows: Mapping[str, Any]) -> None:
        """One more file. Spark takes files by the milliseconds of their last change, and those of one in any
        order; so they are a second apart."""
        lines = "".join(json.dumps(dict(row)) + "\n" for row in rows)
        hidden = self.folder / f".{self._files}.jsonl"  # Spark is not to see a half of it
        hidden.write_text(lines)
        os.utime(hidden, (FIRST_FILE + self._files,) * 2)
        hidden.rename(self.folder / f"{self._files:03}.jsonl")
        self._files += 1

    def start(self, *, files: int = 1, **options: str) -> StreamingQuery:
        """Begin to write all that is there, so many files a batch."""
        read = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", files)
        rows = read.json(str(self.folder))
        asked = {"redis_url": self.url, "checkpointLocation": str(self.checkpoint), **options}
        writer = rows.writeStream.format("timers").options(**asked)
        return writer.trigger(availableNow=True).start()

    def run(self, *, files: int = 1, **options: str) -> str:
        """Write all that is there; the stream's id. Raises what it ends with."""
        query = self.start(files=files, **options)
        query.awaitTermination()
        return str(query.id)

    def forget(self, batch: int) -> None:
        """Put the checkpoint into the state of a driver that died behind all writes of a batch, and before
        Spark noted that it is done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()


def row(topic: str, timer_id: str, due_time: str = FAR, payload: str = "x", **more: Any) -> dict[str, Any]:
    return {"topic": topic, "timer_id": timer_id, "due_time": due_time, "payload": payload, **more}


def live(server: RunningServer, topic: str) -> dict[str, float]:
    """The timers of a topic and their scores."""
    with server.client() as client:
        found: Any = client.zrange(KeyNames().of(topic)[0], 0, -1, withscores=True)
    return {name.decode(): score for name, score in found}


def payload(server: RunningServer, topic: str, timer_id: str) -> bytes:
    """What Redis has of a timer, as it is stored."""
    with server.client() as client:
        found: Any = client.hget(KeyNames().of(topic)[1], timer_id)
    return bytes(found)


def ledger(server: RunningServer, topic: str, stream: str) -> set[str]:
    """The timers on which the newest batch has decided."""
    with server.client() as client:
        found: Any = client.hkeys(KeyNames().key("ledger", topic, run=stream))
    return {name.decode() for name in found} - {"\1"}


def end(server: RunningServer, topic: str, timer_id: str) -> None:
    """As a foreign worker commits it."""
    timeline, payloads, *_ = KeyNames().of(topic)
    with server.client() as client:
        assert client.zrem(timeline, timer_id)
        client.hdel(payloads, timer_id)
