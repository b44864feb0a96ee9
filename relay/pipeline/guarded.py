"""The guarded load: staged batches into Redis, each once, by `lua/load.lua`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.pipeline.files import Files
from relay.pipeline.plans import Staged
from relay.pipeline.staging import FILE_BITS, STAGED
from relay.pipeline.target import Target
from relay.store.bulk import BATCH_BYTES
from relay.store.loading import Loaded, Loading, Marks, Rows, StalePlan
from relay.store.pace import Pace

COUNTS = "batches long, loaded long, live long, marked long, again long, stale long"
UNCUT = {
    "spark.sql.files.maxPartitionBytes": "8796093022208b",
    "spark.sql.files.openCostInBytes": "1099511627776b",
}


def load(
    spark: SparkSession,
    files: Files,
    target: Target,
    marks: Marks,
    staged: Staged,
    *,
    rate: float | None = None,
    again: bool = False,
) -> Loaded:
    """Load all batches; those that were loaded before count as they did then.

    `rate` in timers a second for all workers together; `again` asks for each batch first whether it was
    loaded before. Raises `StalePlan`, and Spark's errors where Redis or a worker is gone.
    """
    if not staged.files:
        return Loaded()
    sizes = {number: rows for number, _, rows in staged.files}
    batch, marks = staged.batch, marks._replace(staging=staged.name)

    def of_partition(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _load(target, marks, _batches(parts, sizes, batch), rate, again)

    with _uncut(spark):
        told = _in_order(spark, files, staged).mapInArrow(of_partition, COUNTS)
        counts = told.agg(*(f.coalesce(f.sum(name), f.lit(0)) for name in told.columns)).first()
    assert counts is not None  # an aggregate without groups has one row
    *done, stale = counts
    if stale:
        raise StalePlan("the marks of this plan are gone; plan anew")
    loaded = Loaded(*done)
    if loaded.batches != staged.batches:
        raise RuntimeError(f"{loaded.batches} batches of {staged.batches} were loaded; run the sweep again")
    return loaded


def _in_order(spark: SparkSession, files: Files, staged: Staged) -> DataFrame:
    """A partition for each file, in the order of due times."""
    read = spark.read.schema(STAGED)
    return reduce(
        DataFrame.unionAll, [read.parquet(files.at(f"{staged.folder}/{name}")) for _, name, _ in staged.files]
    )


@contextmanager
def _uncut(spark: SparkSession) -> Generator[None, None, None]:
    """No file is cut within: two workers would have a part of one batch each."""
    before = {name: spark.conf.get(name) for name in UNCUT}
    for name, value in UNCUT.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def _batches(
    parts: Iterable[pa.RecordBatch], sizes: Mapping[int, int], size: int
) -> Iterator[pa.RecordBatch]:
    """Arrow's batches cut anew, one for each of ours. Raises `RuntimeError` unless each comes whole and in
    one piece: what the ledger says of a part of it would be said of all."""
    rest: list[pa.RecordBatch] = []
    for part in parts:
        at = 0
        while at < part.num_rows:
            number = part.column("batch")[at].as_py() if not rest else rest[0].column("batch")[0].as_py()
            file, place = number >> FILE_BITS, number & ((1 << FILE_BITS) - 1)
            wanted = min(size, sizes[file] - place * size)
            piece = part.slice(at, wanted - sum(each.num_rows for each in rest))
            rest.append(piece)
            at += piece.num_rows
            if sum(each.num_rows for each in rest) == wanted:
                whole = rest[0] if len(rest) == 1 else pa.concat_batches(rest)
                numbers = whole.column("batch").unique()
                if len(numbers) != 1:
                    raise RuntimeError(
                        f"batch {number} does not come in one piece; run the sweep with other options"
                    )
                yield whole
                rest = []
    if rest:
        raise RuntimeError(
            f"batch {rest[0].column('batch')[0]} is not whole; run the sweep with other options"
        )


def _load(
    target: Target, marks: Marks, batches: Iterator[pa.RecordBatch], rate: float | None, again: bool
) -> pa.RecordBatch:
    """Load them; one row of counts."""
    stale = cuts = 0
    with target.open() as store:
        loading = Loading(store)
        pace = Pace(store, rate) if rate else None
        try:
            for batch in batches:
                parts = list(_parts(batch))
                cuts += len(parts) - 1
                for name, part in parts:
                    if again and loading.skip(marks, name):
                        continue
                    if pace is not None:
                        loading.flush()
                        pace.turn(part.num_rows)
                    loading.load(marks, _rows(name, part))
            loading.flush()
        except StalePlan:
            stale = 1
    done = loading.done._replace(batches=loading.done.batches - cuts)
    names = COUNTS.replace(" long", "").split(", ")
    return pa.RecordBatch.from_pydict(
        {name: [count] for name, count in zip(names, (*done, stale), strict=True)}
    )


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A batch as one call takes it, and its name in the ledger: whole, or, where payloads are large, in parts
    of about `BATCH_BYTES` that are named by their rows, which always come in the same order."""
    number = batch.column("batch")[0].as_py()
    lengths = pc.binary_length(batch.column("envelope"))
    if (pc.sum(lengths).as_py() or 0) <= BATCH_BYTES:
        yield str(number), batch
        return
    sizes = lengths.to_pylist()
    start = held = 0
    for n, size in enumerate(sizes):
        if held and held + size > BATCH_BYTES:
            yield f"{number}/{start}-{n}", batch.slice(start, n - start)
            start, held = n, 0
        held += size
    yield f"{number}/{start}-{len(sizes)}", batch.slice(start)


def _rows(name: str, batch: pa.RecordBatch) -> Rows:
    versions = batch.column("version")
    one = versions.unique()
    expires = batch.column("expires_us")
    return Rows(
        name,
        batch.column("timer_id").cast(pa.binary()).to_pylist(),
        batch.column("due_us").to_pylist(),
        batch.column("envelope").to_pylist(),
        one.to_pylist() if len(one) == 1 else versions.to_pylist(),
        expires.to_pylist() if expires.null_count < len(expires) else (),
    )
