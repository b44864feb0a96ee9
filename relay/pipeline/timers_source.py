"""The data source `timers`: it reads and writes a topic's timers as rows.

    spark.dataSource.register(TimersDataSource)
    rows.write.format("timers").option("redis_url", …).option("topic", "orders").mode("append").save()
    rows.writeStream.format("timers").option("redis_url", …).option("topic", "orders").start()
    spark.read.format("timers").option("redis_url", …).option("topic", "orders").load()

docs/how-to/pipeline.md lists the options. Without `redis_url` the settings in the driver's environment count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.pipeline.rows.columns import CONTENT, ddl
from relay.pipeline.spark.redis_target import Target, flag, names_of, whole
from relay.pipeline.timers_writers import TimersStreamWriter, TimersWriter, load_of, stream_load_of
from relay.store.bulk.scanning import TopicSlice, cut

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PARTS = 8
"""The default number of parts in which a topic is read."""

BATCH_TIMERS, BATCH_BYTES = 5_000, 4 << 20
"""The size of a batch of Arrow's: for a few hundred timers its calls would cost more than the timers."""

_TIMER = (
    "topic string, timer_id string, due_time timestamp, next_claim_time timestamp, state string, "
    "attempts long, claims long, expire_time timestamp"
)
SCHEMA = f"{_TIMER}, {ddl(CONTENT)}"
RAW_SCHEMA = f"{_TIMER}, due_us long, score double, record binary, envelope binary"


class TimersDataSource(DataSource):
    """Timers in Redis. Options may have any case, as everywhere in Spark."""

    @classmethod
    def name(cls) -> str:
        """The name for `format("timers")`."""
        return "timers"

    def schema(self) -> str:
        """The columns: with the content, without it (`payload=false`), or as stored (`raw=true`)."""
        if flag(self.options, "raw", default=False):
            return RAW_SCHEMA
        return SCHEMA if flag(self.options, "payload", default=True) else _TIMER

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what Spark asks for. Raises `InvalidField`."""
        topics = list(names_of("topic", self.options.get("topic", "")))
        target = Target.from_options(self.options)
        for topic in topics:
            target.admit(topic)
        return TimersReader(
            target,
            topics,
            schema.fieldNames(),
            partitions=whole(self.options, "partitions", PARTS, least=1),
            envelopes="payload" in schema.fieldNames() or "envelope" in schema.fieldNames(),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what Spark asks for. Raises `InvalidField`."""
        if overwrite:
            raise InvalidField("mode", "is overwrite, which would remove timers; use append")
        return TimersWriter(*load_of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return what Spark asks for. Raises `InvalidField`."""
        if overwrite:
            raise InvalidField("outputMode", "is complete, which would remove timers; use append or update")
        return TimersStreamWriter(*stream_load_of(self.options, schema))


# ------------------------------------------------------------------------------------------- reading


class TopicPart(InputPartition):
    """What one task reads: slices of one topic."""

    def __init__(self, slices: Sequence[TopicSlice]) -> None:
        super().__init__(slices)
        self.slices = slices


class TimersReader(DataSourceReader):
    """Reads parts of topics of equal size by rank; `relay.store.bulk.scanning` says what changes meanwhile
    do."""

    def __init__(
        self, target: Target, topics: list[str], columns: list[str], *, partitions: int, envelopes: bool
    ) -> None:
        self._target = target
        self._topics = topics
        self._columns = columns
        self._partitions = partitions
        self._envelopes = envelopes
        self._low, self._high = 0, LATEST + 1

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read by topics and due times. Spark applies all filters again, so this may read
        more."""
        for each in filters:
            path = getattr(each, "attribute", None)
            if path == ("topic",):
                self._narrow_topics(each)
            elif path == ("due_time",):
                self._narrow_due(each)
            yield each

    def _narrow_topics(self, each: Filter) -> None:
        if isinstance(each, EqualTo):
            wanted = {each.value}
        elif isinstance(each, In):
            wanted = set(each.value)
        else:
            return
        if self._topics:
            self._topics = [topic for topic in self._topics if topic in wanted]
            wanted = set(self._topics)
        self._topics = sorted(topic for topic in wanted if topic) or [""]

    def _narrow_due(self, each: Filter) -> None:
        if not isinstance(value := getattr(each, "value", None), datetime):
            return
        at = micros_of(value)
        if isinstance(each, EqualTo):
            self._low, self._high = max(self._low, at), min(self._high, at + 1)
        elif isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            self._low = max(self._low, at + isinstance(each, GreaterThan))
        elif isinstance(each, (LessThan, LessThanOrEqual)):
            self._high = min(self._high, at + isinstance(each, LessThanOrEqual))

    def partitions(self) -> list[TopicPart]:
        """Ask Redis for the topics, if none were named, and for the places at which each is split."""
        high = None if self._high > LATEST else self._high
        with self._target.open() as store:
            topics = filter(None, self._topics or store.topics())
            found = [cut(store, topic, self._partitions, low=self._low, high=high) for topic in topics]
        return [TopicPart(part) for slices in found for part in self._gathered(slices)] or [TopicPart(())]

    def _gathered(self, slices: list[TopicSlice]) -> list[list[TopicSlice]]:
        """Divide slices of a topic among the wanted number of tasks. What is due and stands elsewhere is not
        counted: it has few timers."""
        tasks = max(self._partitions, 1) + sum(each.due is not None for each in slices[:1])
        most = -(-len(slices) // tasks) if len({each.partition for each in slices}) > 1 else 1
        return [slices[start : start + most] for start in range(0, len(slices), most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of some pages each."""
        from relay.pipeline.rows.pages import batch_of
        from relay.store.bulk.scanning import read, together

        if not isinstance(partition, TopicPart) or not partition.slices:
            return
        with self._target.open() as store:
            pages = (
                page for part in partition.slices for page in read(store, part, envelopes=self._envelopes)
            )
            for page in together(pages, timers=BATCH_TIMERS, size=BATCH_BYTES):
                yield batch_of(partition.slices[0].topic, page, self._columns)


def micros_of(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time from Spark's filters, with or without a zone."""
    aware = moment.astimezone()  # pyspark makes naive times in this process's zone
    whole_seconds = int(aware.replace(microsecond=0).timestamp())
    return whole_seconds * SECOND + aware.microsecond
