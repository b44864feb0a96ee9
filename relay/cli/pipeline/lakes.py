"""`relay pipeline forget`, `migrate-lake`, `migrate-cold` and their options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.pipeline.shared import Conf, DryRun, Master, group, run_job, spark_installed
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.options import Json


@group.command()
def forget(
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic of the timers.")],
    ids: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--id", help="The id of a timer; may be repeated."),
    ] = None,
    prefixes: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--prefix", help="What the ids of timers begin with; may be repeated."),
    ] = None,
    lake: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--lake", metavar="PATH", help="A lake that has records of them."),
    ] = None,
    cold: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cold", metavar="PATH", help="A cold store that has rows of them."),
    ] = None,
    audits: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--audit", metavar="PATH", help="What an audit wrote (its --out); may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Erase timers from the journal's lake, the tables of audits, and the cold store.

    Cancel the timers first, and let `relay pipeline journal` store what Redis has of them.
    """
    if lake is None and cold is None and not audits:
        fail("--lake, --cold or --audit: name where the timers are", BAD_INPUT)
    if not ids and not prefixes:
        fail("--id or --prefix: name the timers", BAD_INPUT)
    with spark_installed():
        from relay.pipeline.jobs import forget as forget_job
    job = forget_job.Forget(
        topic, lake, cold, tuple(ids or ()), tuple(prefixes or ()), tuple(audits or ()), dry_run
    )
    run_job(
        "forget",
        lambda spark, bar: forget_job.run(spark, bar, job),
        as_json=as_json,
        master=master,
        conf=conf,
        written={"--lake": lake, "--cold": cold, **{f"--audit {audit}": audit for audit in audits or ()}},
        dry_run=dry_run,
    )


@group.command("migrate-lake")
def migrate_lake(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A lake of a Relay before Delta; it stays.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Where the new lake goes.")],
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Copy a journal's lake from before Delta into a Delta table, and compare both.

    Stop `relay pipeline journal` before, and start it with the new lake after. Run it again after a crash:
    it goes on where it was.
    """
    with spark_installed():
        from relay.pipeline.jobs import migrate_lake as migrate_job
    job = migrate_job.MigrateLake(old, new, dry_run)
    run_job(
        "migrate-lake",
        lambda spark, bar: migrate_job.run(spark, bar, job),
        as_json=as_json,
        master=master,
        conf=conf,
        read={"OLD": old},
        written={"NEW": new},
        dry_run=dry_run,
    )


@group.command("migrate-cold")
def migrate_cold(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A cold store of a Relay before Delta; it is only read.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Where the new store goes; it may be in use.")],
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Move what rests in a cold store from before Delta into one with a Delta table.

    Stop all jobs of the old store before. Run it again after a crash: it goes on where it was.
    """
    with spark_installed():
        from relay.pipeline.jobs import migrate_cold as migrate_job
    job = migrate_job.MigrateCold(old, new, dry_run)
    run_job(
        "migrate-cold",
        lambda spark, bar: migrate_job.run(spark, bar, job),
        as_json=as_json,
        master=master,
        conf=conf,
        read={"OLD": old},
        written={"NEW": new},
        dry_run=dry_run,
    )
