"""A server whose clock a test steps, by libfaketime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.missing import need, skip
from tests.servers import Kind, RunningServer, start_server


class SteppingServer:
    """`server` goes by the machine's clock, and a number of seconds that `step` changes. Its monotonic clock
    goes on."""

    def __init__(self, server: RunningServer, ahead: Path) -> None:
        self.server = server
        self.url = server.url
        self._ahead = ahead

    def step(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead of the machine's; a negative number is behind it."""
        told = self._ahead.with_suffix(".new")
        told.write_text(f"{seconds:+d}\n")
        told.replace(self._ahead)  # the server reads it at each look at its clock


@contextmanager
def stepping_server(
    kind: Kind = "valkey", config: Mapping[str, str] | None = None
) -> Iterator[SteppingServer]:
    """Start one. Skips the test where libfaketime is missing."""
    need("faketime")
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        skip("libfaketime", "apt-get install faketime")
    with tempfile.TemporaryDirectory(prefix="relay-clock-") as directory:
        ahead = Path(directory) / "ahead"
        ahead.write_text("+0\n")
        environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(ahead),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        with start_server(kind, config=config, environment=environment) as server:
            yield SteppingServer(server, ahead)


@pytest.fixture
def stepping() -> Iterator[SteppingServer]:
    """A Valkey server of the test's own."""
    with stepping_server() as server:
        yield server
