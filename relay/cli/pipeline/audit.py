"""`relay pipeline audit` and its options."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.journal import Lake
from relay.cli.pipeline.shared import Conf, DryRun, Master, group, run_job, settings, spark_installed
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, OK, fail
from relay.cli.terminal.options import Config, Json

CODES = {"proved": OK, "refuted": FAILURE, "can't be said": BAD_INPUT}


@group.command()
def audit(
    lake: Lake,
    out: Annotated[
        str, typer.Option("--out", metavar="PATH", help="The folder for the tables and the report.")
    ],
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--topic", "-t", help="A topic; may be repeated. Default: all topics of the lake."),
    ] = None,
    then_redis: Annotated[
        bool,
        typer.Option(
            "--then-redis", help="Go on with the streams in Redis, and ask Redis which timers exist."
        ),
    ] = False,
    snapshot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--snapshot", metavar="PATH", help="Ask a snapshot which timers exist, instead of Redis."
        ),
    ] = None,
    cold: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cold", metavar="PATH", help="The cold store. Timers that rest there are not lost."),
    ] = None,
    at_rest: Annotated[bool, typer.Option("--at-rest", help="Require that every timer has ended.")] = False,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Assume that only relays with this journal ever wrote to the topics. A change without a "
            "record is then a broken promise, and not the work of another writer.",
        ),
    ] = False,
    lost: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--lost", metavar="PATH", help="Write lost timers there, for relay pipeline schedule."),
    ] = None,
    payloads: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--payloads",
            metavar="PATH",
            help="Parquet files with the content of lost timers.",
        ),
    ] = None,
    examples: Annotated[
        int,
        typer.Option(
            "--examples",
            min=0,
            max=100,
            help="Show at most this many broken cases for each promise in the report.",
        ),
    ] = 5,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Judge a lake of journals: promises 1 to 5 and 9, lateness and counts by topic and hour, lost timers.

    This writes Delta tables and report.html. Exit 0 if all promises are proved, 1 if one is refuted, 2 if
    a verdict can't be given.
    """
    if then_redis and snapshot:
        fail("--snapshot: leave it out with --then-redis, which asks Redis itself", BAD_INPUT)
    if payloads and not lost:
        fail("--payloads: has an effect with --lost only; add --lost or leave it out", BAD_INPUT)
    with spark_installed():
        from relay.pipeline.jobs import audit as audit_job
        from relay.pipeline.spark.redis_target import Target
    target = Target.of(settings(config)) if then_redis else None
    job = audit_job.AuditJob(
        lake=lake,
        out=out,
        topics=tuple(topics or ()),
        source=target.options() if target is not None else {},
        snapshot=snapshot or "",
        cold=cold or "",
        exclusive=exclusive,
        at_rest=at_rest,
        lost=lost or "",
        payloads=payloads or "",
        examples=examples,
        dry_run=dry_run,
    )
    code = OK

    def work(spark: Any, bar: Any) -> Any:
        nonlocal code
        summary = audit_job.run(spark, bar, job)
        code = CODES.get(summary.facts.get("verdict", ""), OK)
        return summary

    try:
        run_job(
            "audit",
            work,
            as_json=as_json,
            master=master,
            conf=conf,
            read={"--lake": lake, "--snapshot": snapshot, "--cold": cold, "--payloads": payloads},
            written={"--out": out, "--lost": lost},
            topics_read=None if target is None else (target, topics or ()),
            dry_run=dry_run,
        )
    except typer.Exit as done:
        raise typer.Exit(code or done.exit_code) from None
