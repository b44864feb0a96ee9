"""The tutorial "A shop with timers", each command as its reader types it, on a real Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs import pages
from tests.docs.console import Terminal
from tests.missing import need
from tests.postgres import postgres
from tests.servers import free_port
from tests.worlds.relay.processes import free_address

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_example_is_what_the_page_shows() -> None:
    shown = {block.said: block.text for block in pages.run_by(__file__) if block.mark == "file"}
    assert shown.keys() == {"shop.py", "test_shop.py"}
    for name, text in shown.items():
        assert text == (pages.ROOT / "examples" / "shop" / name).read_text(encoding="utf-8"), name


def test_the_shop_goes_as_the_page_shows(tmp_path: Path) -> None:
    need("curl")
    grpc, web = free_address(), str(free_port())
    with postgres() as database:
        settings = {
            "RELAY_TARGET": grpc,
            "RELAY_GRPC__LISTEN": grpc,
            "RELAY_HTTP__LISTEN": free_address(),
            "RELAY_API__ENABLED": "false",
            "SHOP_DATABASE": database.url(),
            "RELAY_OUTBOX_DATABASE": database.url(),
        }
        terminal = Terminal(tmp_path, settings, {"8000": web, "postgresql:///shop_test": database.url()})
        terminal.patience = 400.0  # its suite starts a relay
        try:
            terminal.replay(pages.run_by(__file__), pages.SHOP)
        finally:
            terminal.close()
