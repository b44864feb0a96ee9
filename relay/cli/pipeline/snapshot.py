"""`relay pipeline snapshot` and its options."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.shared import Conf, DryRun, Master, group, run_job, settings, spark_installed
from relay.cli.terminal.options import Config, Json


@group.command()
def snapshot(
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder that does not exist yet, or a URL.")],
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--topic", help="A topic; may be repeated. Default: all topics that Redis knows."),
    ] = None,
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, help="The number of parts in which a topic is read in parallel."),
    ] = 8,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write whole topics to Parquet: ids, due times, states, records, envelopes, byte for byte.

    The snapshot is read back and compared. It does not contain dead letters and journals.
    """
    with spark_installed():
        from relay.pipeline.jobs import snapshot as snapshot_job
        from relay.pipeline.spark.redis_target import Target
    job = snapshot_job.Snapshot(Target.of(settings(config)), out, tuple(topics or ()), partitions, dry_run)

    def work(spark: Any, bar: Any) -> Any:
        return snapshot_job.run(spark, bar, job)

    run_job(
        "snapshot",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        written={"OUT": out},
        topics_read=(job.target, job.topics),
        dry_run=dry_run,
    )
