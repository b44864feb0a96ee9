"""The walk "From one team to many", each command as its reader types it."""

from __future__ import annotations

import pytest

from tests.docs import pages
from tests.docs.console import Terminal
from tests.docs.test_console import in_wheel
from tests.missing import need
from tests.servers import start_server
from tests.worlds.relay.processes import free_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]  # some thirty processes, one by one


def test_the_walk_goes_as_the_page_shows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its exports hold from the beginning on: until it makes the CA it calls no relay."""
    need("openssl")
    directory = tmp_path_factory.mktemp("walk")
    with start_server("valkey") as server:
        grpc = free_address()
        port = grpc.rpartition(":")[2]
        settings = {
            "RELAY_TARGET": grpc,
            "RELAY_HTTP__LISTEN": free_address(),
            "RELAY_API__ENABLED": "false",
            "RELAY_LOG__LEVEL": "error",
            "RELAY_CA": "ca.crt",
        }
        instead = {
            "127.0.0.1:7451": grpc,
            "0.0.0.0:7451": f"0.0.0.0:{port}",
            "127.0.0.1:6379": f"127.0.0.1:{server.port}",
            "redis-cli": f"{in_wheel() or need('redis-cli')} -p {server.port}",
        }
        terminal = Terminal(directory, settings, instead)
        try:
            terminal.replay(pages.run_by(__file__), pages.WALK)
        finally:
            terminal.close()
