"""A real relay with a Valkey of its own, for the tests that must not trust a double."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import Relay
from tests.servers import start_server


@contextmanager
def running_relay(settings: Mapping[str, str] | None = None) -> Iterator[Relay]:
    """`relay serve`, SERVING; it may be killed and started again."""
    server = start_server("valkey")
    directory = Path(tempfile.mkdtemp(prefix="relay-client-"))
    relay = Relay(directory, "relay", server.url, None, settings or {})
    try:
        relay.start()
        yield relay
    finally:
        relay.kill()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
