"""`serve`, `dev` and `config`."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail, settings_errors

if TYPE_CHECKING:
    from relay.app import Listening

NEEDS_DEV = "`relay dev` needs the embedded Valkey; install it with: pip install 'relay-timers[dev]'"

DEV_PORT = 7451
"""The port of 127.0.0.1 on which `relay dev` serves gRPC by default. Probes and metrics have the next port,
the API in JSON the one after that. All three are on loopback, since only its user needs them."""

OWN_REDIS = {"redis.username": "", "redis.password": "", "redis.sentinel_password": ""}
"""The credentials of another server, which are not for the embedded one."""

IF_TAKEN = ", or give relay dev another --port N: it takes N, N + 1 and N + 2"


def serve(config: Path | None) -> None:
    """Run the daemon and exit with its code."""
    from relay.settings import load

    with settings_errors():
        settings = load(config)
    from relay import app

    raise typer.Exit(app.run(settings))


def dev(config: Path | None, port: int | None, data_dir: Path | None) -> None:
    """Run the daemon on a Valkey of its own, which ends with it."""
    from relay.settings import load

    overrides: dict[str, object] = {} if port is None else {"grpc.listen": f"127.0.0.1:{port}"}
    with settings_errors():
        asked = load(config, overrides=overrides)  # mistakes are reported before anything starts
    for number, section in enumerate(("http", "api"), (port or DEV_PORT) + 1):
        if "listen" not in getattr(asked, section).model_fields_set:
            overrides[f"{section}.listen"] = f"127.0.0.1:{number}"
    try:
        from relay.cli.daemon.embedded import EmbeddedError, embedded_valkey
    except ModuleNotFoundError:
        fail(NEEDS_DEV, FAILURE)
    from relay import app

    signal.signal(signal.SIGTERM, _leave)  # until the daemon takes the signal over
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        with embedded_valkey(data_dir) as url:
            settings = load(config, overrides={**overrides, **OWN_REDIS, "redis.url": url})

            def started(listening: app.Listening) -> None:
                typer.echo(_welcome(listening, url, data_dir), err=True)

            code = app.run(settings, started=started, if_taken=IF_TAKEN)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # the rest takes a moment, and is bounded
    except EmbeddedError as error:
        fail(str(error), BAD_INPUT if error.is_bad_input else FAILURE)
    raise typer.Exit(code)


def _leave(number: int, _: FrameType | None) -> None:
    """Let a signal unwind the stack, so that the embedded server is stopped."""
    raise SystemExit(128 + number)


def _welcome(listening: Listening, url: str, data_dir: Path | None) -> str:
    """Return what another terminal needs, as lines that can be copied."""
    kept = f"are kept in {data_dir}" if data_dir else "are gone when this ends"
    api = f", API in JSON on http://{listening.api}" if listening.api else ""
    console = f" The console is on {listening.console}." if listening.console else ""
    return (
        f"relay dev: gRPC on {listening.grpc}, probes and metrics on http://{listening.http}{api}.{console} "
        f"Timers are in an embedded Valkey and {kept}. Try, in another terminal:\n"
        f"  export RELAY_TARGET={shlex.quote(listening.grpc)}\n"
        f"  export RELAY_REDIS__URL={shlex.quote(url)}\n"
        "  relay schedule reminders --in 5s --payload hello"
    )


def show_config(config: Path | None, as_json: bool) -> None:
    """Print the effective settings."""
    import yaml

    from relay.settings import doubtful, load

    with settings_errors():
        tree = load(config).model_dump(mode="json")
    for sentence in doubtful(os.environ):
        typer.echo(f"relay: {sentence}", err=True)
    if as_json:
        typer.echo(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        typer.echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)
