"""`relay app …` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import TIMERS, Json

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(
    app, name="app", help="An application's handlers: run them, check them.", rich_help_panel=TIMERS
)

Application = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:CLIENT", help="The module with the handlers, and its RelayClient, by its name there."
    ),
]


@app.command()
def run(
    application: Application,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, help="How many processes run the handlers.")
    ] = 1,
    concurrency: Annotated[
        Optional[int],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--concurrency",
            min=1,
            max=10_000,
            help="Handlers of a topic that run at a time in each process, where the handler says nothing "
            "itself. Default: 100.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Replace the processes when a Python file below the working directory changes."
        ),
    ] = False,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve /healthz/live, /healthz/ready and /metrics here. Default: nowhere.",
        ),
    ] = "",
    log_format: Annotated[
        str,
        typer.Option(
            "--log-format",
            metavar="FORMAT",
            help="The form of a log line, where the application has configured no logging: json, text, or "
            "auto, which is text on a terminal and else JSON.",
        ),
    ] = "auto",
) -> None:
    """Run an application's handlers in processes of their own, until SIGTERM or SIGINT.

    Handlers that run may then end; a second signal kills them. A process that dies is replaced. The relay
    is the one that the client names, or RELAY_TARGET.
    """
    from relay.cli.app import running

    running.run(application, processes, concurrency, reload, http, log_format)


@app.command()
def check(application: Application, as_json: Json = False) -> None:
    """Show what an application registers, and warn of async handlers that block; nothing is dialled.

    Exit codes: 0 all is well; 1 there are warnings; 2 it can't be imported, or has no handler.
    """
    from relay.cli.app import checking

    checking.check(application, as_json)
