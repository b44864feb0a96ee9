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
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="Where tables and report go.")],
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--topic", "-t", help="May be repeated. Default: all of the lake."),
    ] = None,
    then_redis: Annotated[
        bool,
        typer.Option("--then-redis", help="Go on with the streams in Redis, and ask Redis for what lives."),
    ] = False,
    snapshot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--snapshot", metavar="PATH", help="Ask a snapshot for what lives, instead of Redis."),
    ] = None,
    cold: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cold", metavar="PATH", help="The cold store: what rests there is not lost."),
    ] = None,
    at_rest: Annotated[
        bool, typer.Option("--at-rest", help="Every timer must have ended: none may wait.")
    ] = False,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Nobody but relays with this journal has ever written to the topics: whatever has no record "
            "is then a break, and not somebody else's doing.",
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
            help="Where lost timers' content is, as Parquet.",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, max=100, help="In the report, for each promise.")
    ] = 5,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Judge a lake of journals: promises 1 to 5, lateness and counts by topic and hour, what is lost.

    Writes tables (Parquet) and report.html. Exit 0 if all is proved, 1 if a promise is refuted, 2 if
    something can't be said.
    """
    if then_redis and snapshot:
        fail("--snapshot: leave it out with --then-redis, which asks Redis itself", BAD_INPUT)
    if payloads and not lost:
        fail("--payloads: is of use with --lost only", BAD_INPUT)
    with spark_installed():
        from relay.pipeline.jobs import audit as audit_job
        from relay.pipeline.spark.redis_target import Target
    job = audit_job.AuditJob(
        lake=lake,
        out=out,
        topics=tuple(topics or ()),
        source=Target.of(settings(config)).options() if then_redis else {},
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
            dry_run=dry_run,
        )
    except typer.Exit as done:
        raise typer.Exit(done.exit_code or code) from None
