"""`relay pipeline journal` and its options."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from relay.cli.pipeline.shared import Conf, DryRun, Master, group, run_job, settings, spark_installed
from relay.cli.terminal import parse
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.options import Config, Json

Lake = Annotated[
    str, typer.Option("--lake", metavar="PATH", help="The lake: a folder, or a URL that Spark can write.")
]
Topics = Annotated[
    Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
    typer.Option(
        "--topic", "-t", help="A topic; may be repeated. * stands for all topics that have a journal."
    ),
]


@group.command()
def journal(
    lake: Lake,
    topics: Topics = None,
    files: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option("--file", "-f", help="A file that relay journal export wrote; may be repeated."),
    ] = None,
    every: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--every",
            metavar="LENGTH",
            help="Go on until Ctrl-C or SIGTERM, with a batch at this interval, such as 10s or 1m.",
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option("--go-on", help="If records are missing, store a row of the kind GAP and go on."),
    ] = False,
    trim: Annotated[
        bool,
        typer.Option("--trim", help="Remove from Redis what is safe in the lake, except the newest entry."),
    ] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Compact the lake now. By itself this happens after 64 commits.")
    ] = False,
    keep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--keep", metavar="LENGTH", help="Drop hours of the lake that are older than this, such as 2160h."
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--max-records", min=1, help="The most records of one batch.")
    ] = 1_000_000,
    checkpoint: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="Where to keep how far the streams were read. Default: in the lake.",
        ),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Store the journals of topics in a lake, a Delta table, each record exactly once.

    This stores what there is and ends, or goes on with --every. Run it again after a crash: it goes on where
    it was.
    """
    if not topics and not files and not compact and keep is None:
        fail("--topic or --file: name what to store", BAD_INPUT)
    seconds = parse.length(every, "--every").total_seconds() if every is not None else None
    kept = parse.length(keep, "--keep") if keep is not None else None
    with spark_installed():
        from relay.pipeline.jobs import journal as journal_job
        from relay.pipeline.spark.redis_target import Target
    source: dict[str, str] = {}
    target = Target.of(settings(config)) if topics else None
    if target is not None:
        source = {
            **target.options(),
            "topics": json.dumps(topics),
            "maxRecordsPerTrigger": str(most),
            "failOnDataLoss": str(not go_on).lower(),
        }
    job = journal_job.Journal(
        lake=lake,
        source=source,
        files=tuple(str(file) for file in files or ()),
        every=seconds,
        trim=trim,
        compact=compact,
        keep=kept,
        checkpoint=checkpoint or "",
        dry_run=dry_run,
    )
    stop = threading.Event()

    def end(*_: object) -> None:
        """Let SIGTERM or Ctrl-C end the stream, so that the summary is still printed. An exception would be
        raised in the middle of a call to Spark."""
        stop.set()

    if seconds is not None:
        signal.signal(signal.SIGTERM, end)

    def work(spark: Any, bar: Any) -> Any:
        if seconds is not None:
            signal.signal(signal.SIGINT, end)  # Spark has set a handler of its own meanwhile
        return journal_job.run(spark, bar, job, stop)

    run_job(
        "journal",
        work,
        as_json=as_json,
        master=master,
        conf=conf,
        read={f"--file {file}": str(file) for file in files or ()},
        written={"--lake": lake, "--checkpoint": checkpoint},
        topics_read=None if target is None else (target, topics or ()),
        dry_run=dry_run,
    )
