"""`relay pipeline …`: what all its commands share. The file of each job adds its command to `group`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from relay.cli.pipeline.expectations import Expectation
from relay.cli.pipeline.variables import WithVariables
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, HELD_BACK, UNAVAILABLE, UNMET, fail
from relay.cli.terminal.parse import length
from relay.core.durability import STORED, Durability

if TYPE_CHECKING:
    from relay.settings import Settings

PIPELINE = "Timers in bulk"

NEEDS_PIPELINE = "this needs Spark; install it with: pip install 'relay-timers[pipeline]'"

group = typer.Typer(
    cls=WithVariables, help="Load, store, sweep and audit timers in bulk, by Spark.", no_args_is_help=True
)

_ended: list[Any] = []
"""The summary of this command's job, once that has ended."""

_expected: list[Expectation] = []
"""What the figures of this command's job have to be."""

_lineage: list[Any] = []
"""Where this command's job tells of what it reads and writes, if it is to."""


@group.callback()
def options(
    context: typer.Context,
    metrics: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--metrics",
            metavar="FILE",
            help="Write the job's figures there, for Prometheus' textfile collector.",
        ),
    ] = None,
    lineage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--lineage",
            metavar="FILE|URL",
            help="Send events of OpenLineage there, with what the job reads and writes.",
        ),
    ] = None,
    expected: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--expect",
            metavar="FIGURE>=N",
            help="Exit with 6 if a figure of the job's summary is not so, such as loaded>=1 or missing=0; "
            "repeatable. What the job has done stands.",
        ),
    ] = None,
    variables: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--vars",
            metavar="MAPPING",
            help="Values for {{ NAME }} in the command's arguments: '{day: 2030-01-31}'.",
        ),
    ] = None,
) -> None:
    """Load, store, sweep and audit timers in bulk, by Spark."""
    _ended.clear()
    _expected[:] = map(Expectation.of, expected or ())
    _lineage.clear()
    if lineage is not None:
        with spark_installed():
            from relay.pipeline.jobs.lineage import Lineage
        with job_errors():
            _lineage.append(Lineage.to(lineage, lambda problem: typer.echo(f"relay: {problem}", err=True)))
    if metrics is not None:
        context.call_on_close(lambda: _measured(context, metrics))


def _measured(context: typer.Context, path: Path) -> None:
    """Write the figures of the command that has ended. Without a summary it failed."""
    with spark_installed():
        from relay.pipeline.jobs import textfile
    with job_errors():
        textfile.write(path, context.invoked_subcommand or "", _ended[0] if _ended else None, time.time())


Master = Annotated[
    Optional[str],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--master", help="Spark's master. Default: that of spark-submit, else local[*]."),
]
Conf = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark's configuration; may be repeated."),
]
TimeZone = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--time-zone",
        help="The time zone of times without one, such as Europe/Berlin. Default: the machine's.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")]
MaxRate = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--max-rate", min=0.001, help="The most timers a second of all loads that name a rate, together."
    ),
]
Rejects = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--rejects", metavar="PATH", help="The folder for invalid rows, each with the reason, as Parquet."
    ),
]


Level = Annotated[
    str,
    typer.Option(
        "--durability",
        metavar="LEVEL",
        help="End well once all is as durable: fsync, replicas:1, fsync+replicas:1. Default: the topics'.",
    ),
]


def level(text: str) -> Durability:
    """Read `--durability`; anything else ends the command."""
    try:
        return Durability.parse(text or str(STORED))
    except ValueError as problem:
        fail(f"--durability: {problem}", BAD_INPUT)


@contextmanager
def spark_installed() -> Generator[None, None, None]:
    """Guards the import of `relay.pipeline`: a missing Spark ends the command with one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "relay":
            raise
        fail(NEEDS_PIPELINE, FAILURE)


def settings(config: Path | None) -> Settings:
    """The settings as the daemon would see them; see `load_settings`."""
    from relay.cli.terminal.redis_connection import load_settings

    return load_settings(config)


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Read `NAME=VALUE` options by name; anything else ends the command."""
    found: dict[str, str] = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator or not name or name in found:
            fail(f"{option} {each}: give NAME=VALUE, each name once", BAD_INPUT)
        found[name] = value
    return found


def micros(text: str, option: str) -> int:
    """Read a length of time such as 2h, in microseconds; anything else ends the command."""
    return length(text, option) // timedelta(microseconds=1)


def run_job(
    name: str,
    work: Callable[..., Any],
    *,
    as_json: bool,
    master: str | None = None,
    conf: list[str] | None = None,
    time_zone: str | None = None,
    read: Mapping[str, str | None] | None = None,
    written: Mapping[str, str | None] | None = None,
    topics_read: tuple[Any, Sequence[str]] | None = None,
    topics_written: tuple[Any, Sequence[str]] | None = None,
    dry_run: bool = False,
) -> None:
    """Run a job's `work(spark, bar)`, print its summary, and exit with the summary's code.

    `read` and `written` are paths by the names of their options, which a cluster's workers must see too.
    `topics_read` and `topics_written` are a `Target` and its topics, for events of OpenLineage; no topics
    means that nobody named them.
    """
    with spark_installed():
        from relay.pipeline.jobs import job
        from relay.pipeline.jobs.cluster import Paths
    paths = Paths.of(read=read or {}, written=written or {}, dry_run=dry_run)
    running = job.Running(master, pairs("--conf", conf), time_zone, paths=paths)
    with job_errors(), ExitStack() as stack:
        told = None
        if _lineage:
            found = _datasets(name, read or {}, written or {}, topics_read, topics_written)
            told = stack.enter_context(_lineage[0].of(name, found))
        summary = job.run(name, work, running)
        unmet = [] if summary.problems else _unmet(summary.document())
        summary.problems += unmet
        if told is not None:
            told(summary)
    _ended.append(summary)
    show(summary.document(), as_json)
    for warning in summary.warnings:
        typer.echo(f"relay: {warning}", err=True)
    raise typer.Exit(UNMET if unmet else FAILURE if summary.problems else 0)


def _unmet(document: Mapping[str, Any]) -> list[str]:
    return [problem for each in _expected if (problem := each.unmet(document))]


def _datasets(
    name: str,
    read: Mapping[str, str | None],
    written: Mapping[str, str | None],
    topics_read: tuple[Any, Sequence[str]] | None,
    topics_written: tuple[Any, Sequence[str]] | None,
) -> Any:
    from relay.pipeline.jobs.lineage import Datasets, datasets, in_redis

    redis = Datasets(
        *([] if each is None else in_redis(each[0].url, each[1]) for each in (topics_read, topics_written))
    )
    given = ({option: path for option, path in each.items() if path} for each in (read, written))
    return datasets(name, *given, redis)


@contextmanager
def job_errors() -> Generator[None, None, None]:
    """Within the block an error of a job ends the command, with one sentence and a code."""
    from relay.core.errors import InvalidField, ServiceError, StoreUnavailable

    with spark_installed():
        from relay.pipeline.inputs.run_ids import HeldBack
        from relay.pipeline.jobs.job import JobFailed
        from relay.pipeline.spark.java import NoJava
    try:
        yield
    except JobFailed as failure:
        wrong = failure.kind is InvalidField
        fail(str(failure), UNAVAILABLE if failure.unavailable else BAD_INPUT if wrong else FAILURE)
    except InvalidField as problem:
        fail(str(problem), BAD_INPUT)
    except HeldBack as problem:
        fail(str(problem), HELD_BACK)
    except StoreUnavailable as failure:
        fail(f"Redis can't be reached: {failure}", UNAVAILABLE)
    except (ServiceError, NoJava) as failure:
        fail(str(failure), FAILURE)


def _figure(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_figure(part)}" for name, part in value.items() if part) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show(document: dict[str, Any], as_json: bool) -> None:
    """Print a job's summary: JSON on one line, or a line for each figure."""
    from relay.cli.terminal import output

    if as_json:
        output.document(document)
        return
    left_out = ("ok", "problems", "job", "dry_run", "first")
    rows = [(key.replace("_", " "), _figure(value)) for key, value in document.items() if key not in left_out]
    done = "would do" if document["dry_run"] else "done" if document["ok"] else "failed"
    typer.echo(output.block([(document["job"], done), *rows]))
    if "first" in document:
        from relay.pipeline.inputs.preview import sentence

        typer.echo("first rows:")
        for found in document["first"]:
            typer.echo(f"  {sentence(found)}")
    for problem in document["problems"]:
        typer.echo(f"relay: {output.safe(problem)}", err=True)
