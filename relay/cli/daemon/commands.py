"""The commands that run or inspect a daemon, and their options.

A command imports what it needs when it runs, so each starts fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import DAEMON, DEFAULT_TARGET, Config, Json, Target

app = typer.Typer()


@app.command(rich_help_panel=DAEMON)
def serve(config: Config = None) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Settings come from the file and from RELAY_… variables, which override it; `relay config` shows them.
    """
    from relay.cli.daemon import serve as implementation

    implementation.serve(config)


@app.command(rich_help_panel=DAEMON)
def dev(
    config: Config = None,
    port: Annotated[
        Optional[int],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65_533,
            help="Port of the gRPC API on 127.0.0.1. Probes and metrics have the next port, the API in JSON "
            "the one after that, unless the settings name others. Default: 7451.",
        ),
    ] = None,
    data_dir: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--data-dir", help="Keep the timers here. Without it they end with the command."),
    ] = None,
) -> None:
    """Run the daemon on an embedded Valkey: nothing else to install or start."""
    from relay.cli.daemon import serve as implementation

    implementation.dev(config, port, data_dir)


@app.command(rich_help_panel=DAEMON)
def healthcheck(
    target: Target = DEFAULT_TARGET,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds to wait for an answer.")
    ] = 2.0,
) -> None:
    """Ask a relay for its health; exit 0 if it is SERVING, else 1."""
    from relay.cli.daemon import healthcheck

    healthcheck.check(target, timeout)


@app.command(name="config", rich_help_panel=DAEMON)
def show_config(config: Config = None, as_json: Json = False) -> None:
    """Print the settings as the daemon would see them, passwords masked."""
    from relay.cli.daemon import serve as implementation

    implementation.show_config(config, as_json)


@app.command(rich_help_panel=DAEMON)
def doctor(
    config: Config = None,
    as_json: Json = False,
    no_push: Annotated[
        bool, typer.Option("--no-push", help="Do not call the applications that relays push to.")
    ] = False,
    acl: Annotated[
        bool,
        typer.Option(
            "--acl",
            help="Only print ACL SETUSER for a relay, for one that only schedules, and for the pipeline.",
        ),
    ] = False,
) -> None:
    """Check the settings and the Redis that they name, and say what is wrong; exit 1 if anything is.

    It tries what a relay does, on a topic of its own, and leaves nothing behind. RELAY_REDIS__URL or --config
    names the Redis; RELAY_TARGET has no effect. Exit 4 if Redis can't be reached.
    """
    if acl:
        from relay.cli.daemon import doctor_acl

        doctor_acl.print_rights(config)
        return
    from relay.cli.daemon import doctor as implementation

    implementation.doctor(config, as_json, push=not no_push)
