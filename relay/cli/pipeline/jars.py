"""`relay pipeline jars` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.pipeline.shared import Conf, group, job_errors, pairs, spark_installed


@group.command()
def jars(
    into: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--into", metavar="PATH", help="A folder. Default: Spark's own, so all sessions have them."
        ),
    ] = None,
    for_s3: Annotated[bool, typer.Option("--s3", help="Also those for s3a://…, 13 MB.")] = False,
    conf: Conf = None,
) -> None:
    """Fetch the jars of Delta Lake from Maven, once: for images, and for machines without a network.

    Without them, each first job on a machine fetches them by itself; those for S3 no job fetches.
    """
    with spark_installed():
        from relay.pipeline.jobs import jars as jars_job
    with job_errors():
        found = jars_job.run(into, pairs("--conf", conf), for_s3=for_s3)
    for jar in found:
        typer.echo(str(jar))
