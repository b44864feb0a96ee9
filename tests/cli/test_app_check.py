"""`relay app check`: what it shows, and what it warns of; and what `relay app run` refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app

WELL = """
import asyncio, time
from relay.client import AckPolicy, Backoff, Delivery, RelayClient

client = RelayClient()

def fetch() -> bytes:
    time.sleep(1)
    return b""

@client.on("invoices", max_attempts=3, timeout=5, backoff=Backoff(), reject=(ValueError,))
async def remind(invoice: dict, delivery: Delivery) -> None:
    await asyncio.to_thread(time.sleep, 1)
    await asyncio.to_thread(lambda: time.sleep(1))
    await asyncio.sleep(1)

@client.on("reports", ack_policy=AckPolicy.REJECT_ON_ERROR)
def build(text: str) -> None:
    time.sleep(1)

@client.every("10 minutes")
async def sweep(delivery): ...
"""

BLOCKS = """
import os, psycopg, subprocess as processes, time
from time import sleep
from relay.client import RelayClient

client = RelayClient()

@client.on("a")
async def a(delivery):
    time.sleep(1)
    sleep(1)
    processes.run(["true"])
    with open("x"):
        pass
    os.system("true")
    psycopg.connect("")
"""

PROXIES = """
from relay.client import RelayClient

class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("working outside of application context")
    @property
    def __class__(self):
        raise RuntimeError("not configured")

client, current_app, db = RelayClient(), Proxy(), Proxy()

@client.on("a")
async def a(delivery):
    current_app.logger.info("working")
    db()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A working directory whose modules are nobody else's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def check(name: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["app", "check", name, *options], prog_name="relay")


def test_all_that_is_registered_is_shown(here: Path) -> None:
    (here / "checked_well.py").write_text(WELL, encoding="utf-8")
    done = check("checked_well:client", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["recurrences"] == [{"topic": "sweep", "recurrence_id": "sweep"}]
    invoices, reports, sweep = told["handlers"]
    assert invoices == {
        "topic": "invoices",
        "handler": "checked_well.remind",
        "runs": "on the event loop",
        "payload": {"type": "dict", "version": 1, "schema": {"type": "object"}},
        "concurrency": 100,
        "ack_policy": "nack_on_error",
        "max_attempts": 3,
        "backoff": {"initial": 1.0, "multiplier": 2.0, "max": 600.0},
        "timeout": 5,
        "reject": ["ValueError"],
        "warnings": [],
    }
    assert (reports["runs"], reports["payload"]["schema"]) == ("in a thread", {"type": "string"})
    assert sweep["payload"] is None


def test_an_async_handler_that_blocks_is_warned_of(here: Path) -> None:
    (here / "checked_blocks.py").write_text(BLOCKS, encoding="utf-8")
    done = check("checked_blocks")
    assert done.exit_code == 1
    said = [line.partition(" blocks")[0] for line in done.stderr.splitlines()]
    assert said == [
        "relay: checked_blocks.a: line 10: time.sleep",
        "relay: checked_blocks.a: line 11: time.sleep",
        "relay: checked_blocks.a: line 12: subprocess.run",
        "relay: checked_blocks.a: line 13: open",
        "relay: checked_blocks.a: line 15: os.system",
        "relay: checked_blocks.a: line 16: psycopg.connection.Connection.connect",
    ]


def test_what_a_handler_names_is_not_touched(here: Path) -> None:
    """Proxies such as Flask's `current_app` and Django's `settings` raise where no application is."""
    (here / "checked_proxies.py").write_text(PROXIES, encoding="utf-8")
    assert (check("checked_proxies").exit_code, check("checked_proxies").stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("checked_raises", "import nothing_like_it\n", "checked_raises can't be imported"),
        ("checked_number", "client = 3\n", "'checked_number' is a int; name a RelayClient"),
        ("checked_empty", "from relay.client import RelayClient\nclient = RelayClient()\n", "has no handler"),
    ],
)
def test_what_can_t_be_checked_is_bad_input(here: Path, name: str, module: str, words: str) -> None:
    """Each module has a name of its own: Python imports a name once."""
    (here / f"{name}.py").write_text(module, encoding="utf-8")
    done = check(name)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--log-format", "xml", "--log-format: give json, text or auto"),
        ("--http", "7470", "--http: give HOST:PORT"),
        ("--http", "localhost:70000", "--http: give HOST:PORT"),
        ("--processes", "0", "--processes"),
    ],
)
def test_nothing_is_run_with_an_option_that_is_wrong(option: str, value: str, words: str) -> None:
    done = CliRunner().invoke(app, ["app", "run", "nowhere", option, value], prog_name="relay")
    assert done.exit_code == 2
    assert words in done.stderr
