"""Makes the archive of classes that `tests.pipeline.small_jvm` names: Java writes it as a session ends.

python -m tests.pipeline.class_archive
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from relay.pipeline.spark.session import session
from tests.pipeline.small_jvm import ARCHIVE, BARE, SMALL_AND_QUICK

LONGEST = 600.0
"""Seconds that Java may take to write it."""


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """What a worker does."""
    yield from batches


def work(spark: SparkSession, folder: str) -> None:
    """A little of all that the jobs ask of Spark: their classes are those that are stored."""
    rows = spark.createDataFrame([(n, f"t{n}", b"x") for n in range(9)], "n long, timer_id string, x binary")
    parts = rows.withColumn("part", f.expr("n % 3"))
    parts.mapInArrow(same, parts.schema).write.partitionBy("part").parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows").where("n > 1")
    counts = read.groupBy("part").agg(f.count("*").alias("count"), f.max("timer_id"))
    read.join(counts, "part").orderBy("n").select(f.to_json(f.struct("n", "count"))).collect()
    read.dropDuplicates(["timer_id"]).repartition(2, "timer_id").sortWithinPartitions("n").write.json(
        f"{folder}/json"
    )
    spark.read.json(f"{folder}/json").createOrReplaceTempView("rows")
    spark.sql("select row_number() over (partition by part order by n) as place from rows").collect()
    spark.read.text(f"{folder}/json").select(f.input_file_name()).distinct().count()
    table = f"delta.`{folder}/table`"
    spark.sql(f"create table {table} (n long, timer_id string, x binary, part long) using delta")
    for number in (1, 2):
        once = parts.write.format("delta").mode("append")
        once.options(txnAppId="once", txnVersion=number).save(f"{folder}/table")
    spark.sql(f"optimize {table}").collect()
    spark.sql(f"delete from {table} where n > 7").collect()
    spark.read.format("delta").option("versionAsOf", 1).load(f"{folder}/table").groupBy(
        "part"
    ).count().collect()
    spark.sql(f"describe history {table}").collect()
    stream = spark.readStream.schema(read.schema).parquet(f"{folder}/rows").writeStream.format("parquet")
    at = stream.option("checkpointLocation", f"{folder}/at").trigger(availableNow=True)
    at.start(f"{folder}/out").awaitTermination()


def main() -> None:
    ARCHIVE.unlink(missing_ok=True)  # Java replaces none
    options = f"{BARE} -XX:ArchiveClassesAtExit={ARCHIVE}"
    conf = {**SMALL_AND_QUICK, "spark.driver.extraJavaOptions": options}
    with tempfile.TemporaryDirectory() as folder:
        spark = session("class archive", master="local[1]", conf=conf)
        work(spark, folder)
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # by which a driver's JVM ends
        gateway.proc.wait(LONGEST)
    ARCHIVE.touch()  # a Java that can store nothing is none the worse


if __name__ == "__main__":
    main()
