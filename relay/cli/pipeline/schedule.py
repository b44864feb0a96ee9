"""`relay pipeline schedule` and its options."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.shared import (
    Conf,
    Level,
    Master,
    MaxRate,
    Rejects,
    TimeZone,
    group,
    job_errors,
    level,
    micros,
    pairs,
    run_job,
    settings,
    spark_installed,
)
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.options import Config, Conflict, Json


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
        typer.Option(
            "--read-option",
            metavar="NAME=VALUE",
            help="An option of Spark's reader; repeatable. CSV: sep, quote, escape, nullValue, encoding.",
        ),
    ] = None,
    single_line: Annotated[
        bool,
        typer.Option(
            "--single-line",
            help="State that no value of the CSV files spans lines, so several tasks can read one file.",
        ),
    ] = False,
    columns: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--map",
            "-m",
            metavar="COLUMN=SQL",
            help="Where a timer's column comes from: timer_id=task_id, due_time='timestamp + delay', "
            "payload='struct(task, args)'. Also op (schedule, cancel, move) and version. May be repeated.",
        ),
    ] = None,
    content_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--content-type", help="The content type of payloads without one of their own."),
    ] = None,
    due_unit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--due-unit", help="The unit of times that are numbers: s, ms or us since 1970."),
    ] = None,
    cold: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--cold",
            metavar="PATH",
            help="The cold store, where timers rest that are due beyond the horizon.",
        ),
    ] = None,
    horizon: Annotated[
        str, typer.Option("--horizon", help="With --cold: timers that fall due within this time go to Redis.")
    ] = "2h",
    rejects: Rejects = None,
    max_rejects: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--max-rejects",
            metavar="N|P%",
            help="Write nothing and exit with 5 if more than N rows, or P percent of the rows, can't be "
            "timers. The rows are then read twice: once to count, once to load.",
        ),
    ] = None,
    min_rows: Annotated[
        int,
        typer.Option(
            "--min-rows",
            min=0,
            help="Write nothing and exit with 5 if fewer rows than this can be timers. The rows are then "
            "read twice.",
        ),
    ] = 0,
    run_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--run-id",
            metavar="ID",
            help="The name of this run. A timer that a run with this id has inserted is not inserted again "
            "for 7 days. Default: a digest of the input's files, the mapping and the topic.",
        ),
    ] = None,
    replace_all: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Insert every row, even if its timer exists or this run has inserted it before.",
        ),
    ] = False,
    create_only: Annotated[
        bool, typer.Option("--create-only", help="Leave timers alone that exist in Redis.")
    ] = False,
    on_conflict: Annotated[
        Optional[Conflict],  # noqa: UP045
        typer.Option(
            "--on-conflict", help="Which timer stands where one with a row's id exists. Default: replace."
        ),
    ] = None,
    spread: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--spread",
            metavar="LENGTH",
            help="Move each due time back by less than this, to a place that the timer's id decides.",
        ),
    ] = None,
    max_rate: MaxRate = None,
    durability: Level = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the first rows as timers, count all rows, and write nothing."),
    ] = False,
    time_zone: TimeZone = None,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Load timers from a table: Parquet, JSON, CSV, or whatever Spark reads.

    A row replaces a timer with its id. A repeated run inserts nothing that it has inserted before: what was
    delivered, cancelled or moved meanwhile stays so. A row without timer_id gets one from its content, the
    same at each run. Rows that can't be timers end the load, or go to --rejects.
    """
    if create_only and on_conflict is not None:
        fail("--on-conflict: leave it out with --create-only, which is keep-existing", BAD_INPUT)
    stands = Conflict.KEEP_EXISTING if create_only else on_conflict or Conflict.REPLACE
    if stands is not Conflict.REPLACE and replace_all:
        option = "--create-only" if create_only else "--on-conflict"
        fail(f"{option}: leave it out with --replace, which replaces existing timers", BAD_INPUT)
    if cold is not None and stands in (Conflict.KEEP_EARLIEST, Conflict.KEEP_LATEST):
        fail("--on-conflict: leave it out with --cold, which does not compare due times", BAD_INPUT)
    if max_rejects is not None and rejects is None and not dry_run:
        fail("--max-rejects: name a folder for refused rows with --rejects", BAD_INPUT)
    with spark_installed():
        from relay.core.timers import OnConflict
        from relay.pipeline.inputs import preflight, run_ids
        from relay.pipeline.inputs.sources import Source
        from relay.pipeline.jobs import schedule as schedule_job
        from relay.pipeline.spark.redis_target import Target
    given = {"topic": topic, "content_type": content_type}
    found = settings(config)
    with job_errors():
        job = schedule_job.Schedule(
            target=Target.of(found, level(durability)),
            source=Source(
                source,
                source_format,
                pairs("--read-option", read_options),
                pairs("--map", columns),
                {name: value for name, value in given.items() if value is not None},
                due_unit,
                single_line,
            ),
            max_rate=max_rate,
            rejects=rejects,
            run_id=None if run_id is None else run_ids.checked(run_id),
            replace=replace_all,
            on_conflict=OnConflict[stands.name],
            spread=0 if spread is None else micros(spread, "--spread"),
            max_rejects=None if max_rejects is None else run_ids.MaxRejects.of(max_rejects),
            min_rows=min_rows,
            dry_run=dry_run,
        )
    ahead = micros(horizon, "--horizon")
    told = pairs("--conf", conf)
    with job_errors():
        preflight.check_options(master=master, time_zone=time_zone)
        preflight.check_source(job.source, job.target, told)
        preflight.check_folder("rejects", rejects)
        preflight.check_folder("cold", cold)
        preflight.check_keyring(job.target, topic)
        if not dry_run:
            preflight.check_redis(found, topic)

    def work(spark: Any, bar: Any) -> Any:
        if cold is None:
            return schedule_job.run(spark, bar, job)
        from relay.pipeline.jobs import sweep as sweep_job

        return schedule_job.run(spark, bar, replace(job, **sweep_job.ways(spark, job.target, cold, ahead)))

    run_job(
        "schedule",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        time_zone=time_zone,
        read={
            "SOURCE": None if source_format == "table" else source,
            "sealing.keyring": found.sealing.keyring if found.policies().seals(topic or "") else None,
        },
        written={"--rejects": rejects, "--cold": cold},
        topics_written=(job.target, (topic,) if topic else ()),
        dry_run=dry_run,
    )
