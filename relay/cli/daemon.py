"""`serve`, `dev` and `config`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import FrameType

import typer

from relay.cli.exits import BAD_INPUT, FAILURE, fail, settings_errors

NEEDS_DEV = "`relay dev` needs the embedded Valkey; install it with: pip install 'relay-timers[dev]'"

DEV_HTTP = "127.0.0.1:7452"
"""Where `relay dev` serves probes and metrics unless told: nobody but its user wants them."""


def serve(config: Path | None) -> None:
    """Exits with the daemon's code."""
    from relay.settings import load

    with settings_errors():
        settings = load(config)
    from relay import app

    raise typer.Exit(app.run(settings))


def dev(config: Path | None, port: int | None, data_dir: Path | None) -> None:
    """The same on a Valkey of its own, which ends with the daemon."""
    from relay.settings import HttpSettings, load

    overrides: dict[str, object] = {} if port is None else {"grpc.listen": f"127.0.0.1:{port}"}
    with settings_errors():
        asked = load(config, overrides=overrides)  # tell of mistakes before anything starts
    if asked.http == HttpSettings():
        overrides["http.listen"] = DEV_HTTP
    try:
        from relay.cli.embedded import EmbeddedError, embedded_valkey
    except ModuleNotFoundError:
        fail(NEEDS_DEV, FAILURE)
    from relay import app

    signal.signal(signal.SIGTERM, _leave)  # until the daemon takes the signal over
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        with embedded_valkey(data_dir) as url:
            settings = load(config, overrides={**overrides, "redis.url": url})
            typer.echo(_welcome(settings.grpc.listen, url, data_dir), err=True)
            code = app.run(settings)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # what is left takes a moment, and is bounded
    except EmbeddedError as error:
        fail(str(error), BAD_INPUT if error.is_bad_input else FAILURE)
    raise typer.Exit(code)


def _leave(number: int, _: FrameType | None) -> None:
    """Let a signal unwind the stack, so that the embedded server is stopped."""
    raise SystemExit(128 + number)


def _welcome(listen: str, url: str, data_dir: Path | None) -> str:
    kept = f"kept in {data_dir}" if data_dir else "gone when this ends"
    return (
        f"relay dev: gRPC on {listen}, embedded Valkey at {url}, timers {kept}. Try, in another terminal:\n"
        f"  relay schedule reminders --in 5s --payload hello --target {listen}"
    )


def show_config(config: Path | None, as_json: bool) -> None:
    """Print the effective settings."""
    import yaml

    from relay.settings import load

    with settings_errors():
        tree = load(config).model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        typer.echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)
