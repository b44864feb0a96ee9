"""The lake of a Relay before Delta, to be read by `relay pipeline migrate-lake` alone.

OLD/log/00000017.json    version 17: folders that it added and removed; each 32nd has the whole state
OLD/data/…               folders of Parquet, by topic and hour; one that no version names does not count
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.core.partitions import topic_of
from relay.pipeline.lake.journal_lake import TABLE
from relay.pipeline.spark.files import Files
from relay.store.journal.scan import Mark


class OldLake:
    """A lake as its log says. Raises `InvalidField("old", …)` for a log that is not whole."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self._files = Files(spark, path)
        self.version = -1
        self.folders: dict[str, Mapping[str, Any]] = {}
        """The folders that count; each has its records and its end by the names of its streams."""
        self.dropped: Counter[str] = Counter()
        self.marks: dict[str, Mark] = {}
        for told in reversed(self._told()):
            self._fold(told)

    def _told(self) -> list[dict[str, Any]]:
        """The versions since the last whole state, newest first."""
        names = [name for name in self._files.names("log") if name.endswith(".json")]
        told: list[dict[str, Any]] = []
        for number, name in enumerate(reversed(names)):
            told.append(json.loads(self._files.read(f"log/{name}") or "{}"))
            if told[-1].get("format") != 1 or int(name[:-5]) != int(names[-1][:-5]) - number:
                break
            if told[-1]["state"] is not None or int(name[:-5]) == 0:
                self.version = int(names[-1][:-5])
                return told
        raise InvalidField("old", f"{self._files.root} has no whole log of a lake from before Delta")

    def _fold(self, told: Mapping[str, Any]) -> None:
        state = told["state"] or {}
        for folder in told["remove"]:
            self.folders.pop(folder, None)
        for part in [*state.get("parts", ()), *told["add"]]:
            self.folders[part["folder"]] = part["topics"]
            for stream, share in part["topics"].items():
                self._reach(stream, Mark(share["last_entry"], share["last"]))
        for stream, mark in state.get("marks", {}).items():
            self._reach(stream, Mark(*mark))
        self.dropped.update(state.get("dropped") or told["dropped"])

    def _reach(self, stream: str, mark: Mark) -> None:
        if mark.place > self.marks.get(stream, Mark()).place:
            self.marks[stream] = mark

    def records(self) -> Counter[str]:
        """Count the records of each topic, as the log has them."""
        found: Counter[str] = Counter()
        for shares in self.folders.values():
            for stream, share in shares.items():
                found[topic_of(stream)] += share["records"]
        return found

    def rows(self, topics: Sequence[str] = ()) -> DataFrame:
        """Return the rows of some topics, or of all."""
        chosen = [
            folder
            for folder, shares in self.folders.items()
            if not topics or set(map(topic_of, shares)) & set(topics)
        ]
        columns = [f"{name} {kind}" for name, kind in TABLE.items()]
        if not chosen:
            return self.spark.createDataFrame([], ", ".join(columns))
        table = self.spark.read.schema(", ".join([*columns, "whole_topic string"]))
        rows = table.option("basePath", self._files.at("data")).parquet(*map(self._files.at, chosen))
        # A name that is too long for a folder stands in a column.
        rows = rows.withColumn("topic", f.coalesce("whole_topic", "topic")).select(*TABLE)
        return rows.where(f.col("topic").isin(*topics)) if topics else rows
