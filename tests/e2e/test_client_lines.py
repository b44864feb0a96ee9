"""What a process with handlers says of its connection: by itself, and through the logging it configures."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.client import Unavailable
from relay.client.sync import SyncRelayClient
from tests.docs import pages
from tests.servers import free_port
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "reminders"
PUSH = """
import asyncio, sys
from relay.client import PushHandlers

push = PushHandlers()

@push.on("reminders")
async def remind(delivery): ...

asyncio.run(push.run(sys.argv[1]))
"""


class Said:
    """A process's standard error."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self, word: str) -> list[str]:
        return [line for line in self._file.read_text().splitlines() if word in line]

    def has(self, word: str, count: int = 1) -> None:
        eventually(lambda: len(self.lines(word)) >= count, f"{word!r} is said: {self._file.read_text()}")


@contextmanager
def process(stage: Stage, text: str, *arguments: str, target: str = "") -> Iterator[Said]:
    """A script runs within, and ends in order."""
    said = stage.directory / "script.err"
    with said.open("w") as errors:
        script = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            stderr=errors,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "RELAY_TARGET": target},
        )
    try:
        yield Said(said)
        script.send_signal(signal.SIGTERM)
        assert script.wait(60.0) == 0, said.read_text()
    finally:
        script.kill()
        script.wait()


def tutorial(before: str = "") -> str:
    """The script with handlers that the tutorial shows, after more lines of its own."""
    (block,) = (
        each
        for each in pages.blocks("python")
        if each.page == "docs/tutorial/first-timer.md" and ".run())" in each.text
    )
    return before + block.text


def come_and_go(relay: Relay, said: Said) -> None:
    """The relay is reached, lost for several tries, and reached again."""
    said.has("connected to the relay")
    relay.kill()
    said.has("lost the relay")
    relay.start()
    said.has("again after")


def test_a_script_that_configures_nothing(stage: Stage) -> None:
    """Three lines on standard error, with target, topics, reason and what comes next."""
    relay = stage.relay()
    with process(stage, tutorial(), target=relay.target) as said:
        come_and_go(relay, said)
    connected, again = said.lines("connected to the relay")
    (lost,) = said.lines("lost the relay")
    at = re.escape(relay.target)
    assert re.search(rf"INFO relay\.client: connected to the relay at {at}: topics {TOPIC}$", connected)
    assert re.search(rf"WARNING relay\.client: lost the relay at {at}: UNAVAILABLE.*; trying again in ", lost)
    assert re.search(
        rf"INFO relay\.client: connected to the relay at {at} again after [\d.]+ s: topics ", again
    )
    assert len(said.lines("relay.client")) == 3, "nothing else, and nothing at each try"


def test_a_relay_that_was_never_there(stage: Stage) -> None:
    """It is told once."""
    relay = stage.relay(start=False, listen=f"127.0.0.1:{free_port()}")
    with process(stage, tutorial(), target=relay.target) as said:
        said.has("can't reach the relay")
        relay.start()
        said.has("again after")
    assert len(said.lines("relay.client")) == 2


def test_a_script_that_has_configured_logging(stage: Stage) -> None:
    """The lines come by its handler, in its format, and once."""
    relay = stage.relay()
    before = "import logging\nlogging.basicConfig(level=logging.INFO, format='mine %(message)s')\n"
    with process(stage, tutorial(before), target=relay.target) as said:
        come_and_go(relay, said)
    for word, count in (("connected to the relay", 2), ("lost the relay", 1)):
        lines = said.lines(word)
        assert len(lines) == count
        assert all(line.startswith("mine ") for line in lines)


def test_a_script_that_configures_logging_later(stage: Stage) -> None:
    """From then on its level and its handler decide, and nothing is written twice."""
    relay = stage.relay()
    before = (
        "import logging, threading, pathlib, sys, time\n"
        "def later():\n"
        "    while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "    logging.basicConfig(level=logging.WARNING, format='mine %(message)s')\n"
        "    pathlib.Path(sys.argv[1]).unlink()\n"
        "threading.Thread(target=later, daemon=True).start()\n"
    )
    gate = stage.gate()
    with process(stage, tutorial(before), str(gate), target=relay.target) as said:
        said.has("connected to the relay")
        gate.touch()
        eventually(lambda: not gate.exists(), "logging is configured")
        relay.kill()
        said.has("lost the relay")
        relay.start()
        relay_back(stage, relay)
    (connected,) = said.lines("connected")
    assert "INFO relay.client" in connected
    (lost,) = said.lines("lost the relay")
    assert lost.startswith("mine ")


def relay_back(stage: Stage, relay: Relay) -> None:
    """Until the application has its stream again."""
    eventually(lambda: f'relay_consumers{{topic="{TOPIC}"}} 1' in relay.metrics(), "it is back")


def test_handlers_that_a_relay_dials(stage: Stage) -> None:
    """They say where they are served, which relay has come, that it is lost, and that one is there again."""
    listen = f"127.0.0.1:{free_port()}"
    settings = {
        "RELAY_TOPICS__reminders__DELIVERY__MODE": "push",
        "RELAY_TOPICS__reminders__DELIVERY__TARGET": listen,
    }
    with process(stage, PUSH, listen) as said:
        said.has(f"handlers are served at {listen}: topics {TOPIC}")
        relay = stage.relay(settings=settings)
        said.has("a relay has connected")
        relay.kill()
        said.has("lost the relay")
        relay.start()
        said.has("a relay has connected", 2)
    assert len(said.lines("a relay has connected")) == 2
    assert len(said.lines("lost the relay")) == 1, "the end of the script is no loss"
    assert len(said.lines("relay.client")) == 4


def test_a_blocking_client(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """It speaks of the first call that is answered, the first that is not, and the first that is again."""
    caplog.set_level(logging.INFO, "relay.client")
    relay = stage.relay()
    with SyncRelayClient(relay.target) as client:
        for _ in range(2):
            client.schedule(TOPIC, b"", delay=3600, timer_id="a")
        relay.kill()
        for _ in range(2):
            with pytest.raises(Unavailable):
                client.schedule(TOPIC, b"", delay=3600, timer_id="a", timeout=4.0)
        relay.start()
        for _ in range(2):
            client.schedule(TOPIC, b"", delay=3600, timer_id="a", timeout=60.0)
    connected, lost, again = [each.getMessage() for each in caplog.records if each.name == "relay.client"]
    assert connected == f"connected to the relay at {relay.target}"
    assert lost.startswith(f"lost the relay at {relay.target}: UNAVAILABLE")
    assert lost.endswith("; calls try again until their timeout")
    assert again.startswith(f"connected to the relay at {relay.target} again after ")
