"""`relay pipeline snapshot` and its options."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.shared import Conf, DryRun, Master, group, run_job, settings, spark_installed
from relay.cli.terminal.options import Config, Json


@group.command()
def snapshot(
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder that is not there yet, or a URL.")],
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--topic", help="A topic; may be repeated. Default: all that Redis knows of."),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Parts that a topic is read in, side by side.")
    ] = 8,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write whole topics to Parquet: ids, due times, states, records, envelopes, byte for byte.

    What was written is read back and compared. Dead letters and journals are not part of it.
    """
    with spark_installed():
        from relay.pipeline.jobs import snapshot as snapshot_job
        from relay.pipeline.spark.redis_target import Target
    job = snapshot_job.Snapshot(Target.of(settings(config)), out, tuple(topics or ()), partitions, dry_run)

    def work(spark: Any, bar: Any) -> Any:
        return snapshot_job.run(spark, bar, job)

    run_job(
        "snapshot", work, as_json=as_json, master=master, conf=conf, written={"OUT": out}, dry_run=dry_run
    )
