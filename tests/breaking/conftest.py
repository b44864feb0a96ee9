"""Servers with a disk under them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from chaos.under.disk import Disk
from tests import missing
from tests.servers import Kind, RunningServer, start_server

OnDisk = Callable[..., tuple[RunningServer, Disk]]


@pytest.fixture
def on_disk() -> Iterator[OnDisk]:
    """A server of the test's own, by its kind and `appendfsync`, and the disk under it."""
    missing.need("cc")
    with ExitStack() as stack:

        def start(kind: Kind = "valkey", appendfsync: str = "always") -> tuple[RunningServer, Disk]:
            config = {"appendonly": "yes", "appendfsync": appendfsync}
            server = stack.enter_context(start_server(kind, config=config))
            disk = Disk.under(server)
            stack.callback(disk.close)
            return server, disk

        yield start
