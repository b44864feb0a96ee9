"""The fixtures in a user's own suite: with plain tests, pytest-asyncio and anyio, warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.relay.processes import environment

pytestmark = pytest.mark.slow

APPLICATION = """
from relay.client import Delivery, RelayClient, SyncRelayClient

client = RelayClient("127.0.0.1:1")
timers = SyncRelayClient("127.0.0.1:1")
reminded = []

@client.on("reminders")
def remind(delivery: Delivery) -> None:
    reminded.append(delivery.timer_id)
"""

IN_MEMORY = """
import app

async def scheduled_and_delivered(relay_timers):
    relay = relay_timers(app.client, app.timers)
    await app.client.schedule("reminders", b"", delay=3600, timer_id="a")
    assert await relay.advance(minutes=59) == []
    (delivered,) = await relay.advance(minutes=1)
    assert delivered.timer_id == "a"
"""

PLAIN = (
    IN_MEMORY
    + """
import asyncio

def test_on_a_loop_of_its_own(relay_timers):
    asyncio.run(scheduled_and_delivered(relay_timers))
    assert app.client.double is not None

def test_the_clients_are_let_go():
    assert (app.client.double, app.timers.double) == (None, None)

def test_without_a_loop(relay_timers):
    relay = relay_timers.blocking(app.timers, app.client, max_waiting=1)
    app.timers.schedule("reminders", b"", delay=60, timer_id="b")
    relay.advance(hours=1)
    assert app.reminded[-1] == "b"
"""
)

ASYNCIO = (
    IN_MEMORY
    + """
import pytest

@pytest.mark.asyncio
async def test_it(relay_timers):
    await scheduled_and_delivered(relay_timers)
"""
)

ANYIO = (
    IN_MEMORY
    + """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_it(relay_timers):
    await scheduled_and_delivered(relay_timers)
"""
)

UNUSED = """
import sys

def test_nothing_is_loaded():
    assert {"grpc", "google.protobuf", "relay.client"} & set(sys.modules) == set()
"""

REAL = """
import asyncio, os
import app
import pytest
from relay.client import UsageError

async def handled(relay_server):
    done = asyncio.Event()
    relay_server.join(app.client, app.timers)
    before = len(app.reminded)
    async with app.client:
        with pytest.raises(UsageError):
            relay_server.join(app.client)
        await app.client.schedule("reminders", b"", delay=0, timer_id="real")
        async with asyncio.timeout(60):
            while len(app.reminded) == before:
                await asyncio.sleep(0.01)

def test_a_handler_runs(relay_server):
    assert os.environ["RELAY_TARGET"] == relay_server.target
    asyncio.run(handled(relay_server))

@pytest.mark.parametrize("turn", range(2))
def test_it_is_empty_for_each_test(relay_server, turn):
    relay_server.join(app.timers)
    assert list(app.timers.list("left")) == []
    assert app.timers.calendars.list() == []
    assert not [info for info in app.timers.topics.list() if info.timers or info.dead or info.paused]
    assert not list(app.timers.recurrences.list("left"))
    app.timers.schedule("left", b"", delay=3600)
    app.timers.recur("every", topic="left", every=3600)
    app.timers.recur("alone", topic="only-recurring", every=3600)
    app.timers.topics.pause("left")
    app.timers.calendars.put("holidays", ["2030-01-01"])

def test_the_clients_are_let_go():
    assert app.client.target == app.timers.target == "127.0.0.1:1"
    assert "RELAY_TARGET" not in os.environ
"""


def suite(folder: Path, text: str, *options: str) -> str:
    """What a run of these tests prints; it must pass."""
    (folder / "app.py").write_text(APPLICATION, encoding="utf-8")
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment({}), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


NO_ASYNC = ("-p", "no:asyncio", "-p", "no:anyio")


@pytest.mark.parametrize(
    ("text", "options", "passed"),
    [
        pytest.param(PLAIN, NO_ASYNC, 3, id="plain"),
        pytest.param(ASYNCIO, ("-p", "no:anyio"), 1, id="pytest-asyncio"),
        pytest.param(ANYIO, ("-p", "no:asyncio"), 1, id="anyio"),
        pytest.param(UNUSED, NO_ASYNC, 1, id="unused"),
    ],
)
def test_a_relay_in_memory(tmp_path: Path, text: str, options: tuple[str, ...], passed: int) -> None:
    assert f"{passed} passed" in suite(tmp_path, text, *options)


def test_a_real_relay(tmp_path: Path) -> None:
    """One process for the session, and nothing of one test is there in the next."""
    assert "4 passed" in suite(tmp_path, REAL, *NO_ASYNC)
