"""`relay pipeline schedule` and its options."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Optional

import typer

from relay.cli.exits import BAD_INPUT, fail
from relay.cli.options import Config, Json
from relay.cli.pipeline_commands import (
    Conf,
    DryRun,
    Master,
    MaxRate,
    Rejects,
    TimeZone,
    group,
    micros,
    pairs,
    run_job,
    settings,
    spark_installed,
)


@group.command()
def schedule(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file, a folder, a URL, or a table's name.")
    ],
    topic: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--topic", help="The topic of rows that have no column `topic`."),
    ] = None,
    source_format: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--format", help="parquet, json, csv, table … Default: by the file's name."),
    ] = None,
    read_options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--read-option", metavar="NAME=VALUE", help="Of Spark's reader; may be repeated."),
    ] = None,
    columns: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--map",
            "-m",
            metavar="COLUMN=SQL",
            help="Where a timer's column comes from: timer_id=task_id, due_time='timestamp + delay', "
            "payload='struct(task, args)'. May be repeated.",
        ),
    ] = None,
    content_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--content-type", help="Of payloads that have none of their own."),
    ] = None,
    due_unit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--due-unit", help="Of times that are numbers: s, ms or us since 1970."),
    ] = None,
    cold: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cold", metavar="PATH", help="The cold store, where timers rest that are due later."),
    ] = None,
    horizon: Annotated[
        str, typer.Option("--horizon", help="With --cold: what is due so far ahead goes to Redis.")
    ] = "2h",
    rejects: Rejects = None,
    max_rate: MaxRate = None,
    dry_run: DryRun = False,
    time_zone: TimeZone = None,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Load timers from a table: Parquet, JSON, CSV, or whatever Spark reads.

    Whatever lives under their ids is replaced. A row without timer_id gets one of its content, the same at
    each run. Rows that can't be timers end the load, or go to --rejects.
    """
    if due_unit not in (None, "s", "ms", "us"):
        fail(f"--due-unit {due_unit}: give s, ms or us", BAD_INPUT)
    with spark_installed():
        from relay.pipeline import schedule_job
        from relay.pipeline.sources import Source
        from relay.pipeline.target import Target
    given = {"topic": topic, "content_type": content_type}
    job = schedule_job.Schedule(
        target=Target.of(settings(config)),
        source=Source(
            source,
            source_format,
            pairs("--read-option", read_options),
            pairs("--map", columns),
            {name: value for name, value in given.items() if value is not None},
            due_unit,
        ),
        max_rate=max_rate,
        rejects=rejects,
        dry_run=dry_run,
    )

    ahead = micros(horizon, "--horizon")

    def work(spark: Any, bar: Any) -> Any:
        if cold is None:
            return schedule_job.run(spark, bar, job)
        from relay.pipeline import sweep_job

        return schedule_job.run(spark, bar, replace(job, **sweep_job.ways(spark, job.target, cold, ahead)))

    run_job(
        "schedule",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        time_zone=time_zone,
        read={"SOURCE": None if source_format == "table" else source},
        written={"--rejects": rejects, "--cold": cold},
        dry_run=dry_run,
    )
