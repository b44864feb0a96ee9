"""`relay app run`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import typer

from relay.cli.app.supervising import Supervisor
from relay.cli.app.worker_process import WorkerProcess
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail
from relay.core.endpoints import addresses
from relay.worker.logs import set_up

NEEDS_WATCHFILES = "--reload needs watchfiles; install it with: pip install 'relay-timers[worker]'"
NEEDS_PROMETHEUS = "--http needs prometheus-client; install it with: pip install 'relay-timers[worker]'"

_log = logging.getLogger("relay.app")


def run(
    application: str, processes: int, concurrency: int | None, reload: bool, http: str, log_format: str
) -> None:
    """Run the processes and exit with the code that they deserve."""
    if log_format not in ("json", "text", "auto"):
        fail("--log-format: give json, text or auto", BAD_INPUT)
    arguments = [application, "--log-format", log_format]
    if concurrency is not None:
        arguments += ["--concurrency", str(concurrency)]
    address, changes = _address(http), _changes() if reload else None
    set_up(log_format, None)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    workers = [WorkerProcess(number + 1, arguments) for number in range(processes)]
    raise typer.Exit(asyncio.run(_run(workers, changes, address)))


async def _run(
    workers: list[WorkerProcess],
    changes: Callable[[], AsyncIterator[object]] | None,
    address: tuple[str, int] | None,
) -> int:
    supervisor = Supervisor(workers)
    with contextlib.ExitStack() as stack:
        if address is not None:
            try:
                from relay.cli.app.probing import AppProbes, serve
            except ModuleNotFoundError:
                fail(NEEDS_PROMETHEUS, FAILURE)
            try:
                server = serve(AppProbes(supervisor, asyncio.get_running_loop()), *address)
            except OSError as error:
                fail(f"--http: can't listen on {addresses.join(*address)}: {error.strerror}", FAILURE)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            shown = addresses.join(address[0], server.server_port)
            _log.info("probes and metrics are on http://%s", shown)
        return await supervisor.run(changes)


def _changes() -> Callable[[], AsyncIterator[object]]:
    try:
        from watchfiles import PythonFilter, awatch
    except ModuleNotFoundError:
        fail(NEEDS_WATCHFILES, FAILURE)
    return lambda: awatch(Path.cwd(), watch_filter=PythonFilter(), step=50, debounce=400)


def _address(http: str) -> tuple[str, int] | None:
    if not http:
        return None
    try:
        return addresses.split(http)
    except ValueError:
        fail("--http: give HOST:PORT, such as 127.0.0.1:7470", BAD_INPUT)
