"""`relay pipeline sweep`, `cancel`, `cold`, `restore` and their options."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.shared import (
    Conf,
    DryRun,
    Level,
    Master,
    MaxRate,
    group,
    level,
    micros,
    run_job,
    settings,
    spark_installed,
)
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.options import Config, Json
from relay.cli.terminal.parse import length

Cold = Annotated[
    str,
    typer.Option(
        "--cold", metavar="PATH", help="The cold store: a folder, or a URL that Spark can write to."
    ),
]
Topics = Annotated[
    Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--topic", help="A topic; may be repeated. Default: all topics of the cold store."),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Give up a sweep over another store that nobody will finish. If somebody does finish it, timers "
        "that were delivered since may come again.",
    ),
]


@group.command()
def sweep(
    cold: Cold,
    horizon: Annotated[
        str,
        typer.Option(
            "--horizon", help="How far ahead to look, such as 2h or 90m; the last hour counts whole."
        ),
    ] = "2h",
    topics: Topics = None,
    wait: Annotated[
        str,
        typer.Option("--wait", help="How long to wait for other sweeps of the topics, which may have died."),
    ] = "20s",
    keep: Annotated[
        str,
        typer.Option("--keep", help="Rows of timers that are over are removed this much later."),
    ] = "7d",
    take_over: TakeOver = False,
    max_rate: MaxRate = None,
    durability: Level = "",
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Bring timers that fall due soon from the cold store to Redis, once.

    A sweep may be killed at any point and run again: it goes on where it was. A timer that exists in Redis,
    or that was delivered or cancelled since the sweep began, is left alone.
    """
    with spark_installed():
        from relay.pipeline.cold.sweep_options import SweepOptions
        from relay.pipeline.jobs import sweep as sweep_job
        from relay.pipeline.spark.redis_target import Target
    ahead, kept = (micros(*each) for each in ((horizon, "--horizon"), (keep, "--keep")))
    seconds = length(wait, "--wait").total_seconds()
    options = SweepOptions(horizon=ahead, rate=max_rate, wait=seconds, take_over=take_over)
    job = sweep_job.SweepJob(
        Target.of(settings(config), level(durability)), cold, options, tuple(topics or ()), kept, dry_run
    )

    def work(spark: Any, bar: Any) -> Any:
        return sweep_job.sweep(spark, bar, job)

    run_job(
        "sweep",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        written={"--cold": cold},
        topics_written=(job.target, job.topics),
        dry_run=dry_run,
    )


@group.command()
def cancel(
    cold: Cold,
    topic: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--topic", help="The topic of the ids, if no column `topic` names it."),
    ] = None,
    timer_ids: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[TIMER_ID]…", help="Ids, without --from; - reads them from standard input, one a line."
        ),
    ] = None,
    source: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from", metavar="SOURCE", help="A file, a folder or a URL with a column timer_id."),
    ] = None,
    source_format: Annotated[
        str, typer.Option("--format", help="The format of --from: parquet, json, csv …, or table.")
    ] = "parquet",
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Cancel timers wherever they are: in the cold store, on their way, or in Redis."""
    if bool(timer_ids) == (source is not None):
        fail("cancel: give ids, or a table with --from", BAD_INPUT)
    if timer_ids and topic is None:
        fail("--topic: is missing; ids have one", BAD_INPUT)
    with spark_installed():
        from relay.pipeline.jobs import sweep as sweep_job
        from relay.pipeline.spark.redis_target import Target
    target = Target.of(settings(config))
    names = sys.stdin.read().splitlines() if timer_ids == ["-"] else timer_ids or []

    def work(spark: Any, bar: Any) -> Any:
        if source is None:
            timers = sweep_job.named(spark, topic or "", names)
        else:
            timers = sweep_job.listed(spark, source, source_format, topic)
        return sweep_job.cancel(spark, bar, target, cold, timers)

    run_job(
        "cancel",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        read={"--from": None if source_format == "table" else source},
        written={"--cold": cold},
        topics_written=(target, (topic,) if topic else ()),
    )


@group.command(name="cold")
def cold_status(
    cold: Cold,
    compact: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--compact",
            min=2,
            help="First merge files, if there are this many more than the table's size asks for.",
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Show what rests in the cold store: the rows of each topic, with --json those of each hour."""
    with spark_installed():
        from relay.pipeline.jobs import sweep as sweep_job

    def work(spark: Any, bar: Any) -> Any:
        if compact is not None:
            sweep_job.compact(spark, bar, cold, compact)
        summary = sweep_job.status(spark, cold)
        if not as_json:
            sweep_job.for_people(summary)
        return summary

    run_job(
        "cold",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        written={"--cold": cold},
        dry_run=compact is None,
    )


@group.command()
def restore(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="A folder that `snapshot` wrote.")],
    topics: Topics = None,
    work_folder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--work", metavar="PATH", help="Where to keep how far the restore is. Default: in the snapshot."
        ),
    ] = None,
    take_over: TakeOver = False,
    max_rate: MaxRate = None,
    durability: Level = "",
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Bring a snapshot's timers back to Redis, once. A timer that exists there is newer, and stays.

    A restore may be killed at any point and run again. Each timer has the due time, the expiry and the
    envelope of the snapshot, and begins with no attempts.
    """
    with spark_installed():
        from relay.pipeline.jobs import restore as restore_job
        from relay.pipeline.spark.redis_target import Target
    job = restore_job.Restore(
        Target.of(settings(config), level(durability)),
        snapshot,
        tuple(topics or ()),
        work_folder,
        max_rate,
        take_over,
        dry_run,
    )

    def work(spark: Any, bar: Any) -> Any:
        return restore_job.run(spark, bar, job)

    run_job(
        "restore",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        read={"SNAPSHOT": snapshot},
        written={"--work": work_folder or snapshot},
        topics_written=(job.target, job.topics),
        dry_run=dry_run,
    )
