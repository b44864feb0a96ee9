"""`relay pipeline views`."""

from __future__ import annotations

from importlib import resources

import typer

from relay.cli.pipeline.shared import group


@group.command()
def views() -> None:
    """Print SQL that makes views of the journal's lake, for Spark and for DuckDB."""
    typer.echo(resources.files("relay.pipeline.lake").joinpath("views.sql").read_text("utf-8"), nl=False)
