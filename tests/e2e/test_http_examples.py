"""The scripts in examples/http, with a real relay."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.missing import need
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.checkout

HERE = Path(__file__).parents[2] / "examples" / "http"
TOPIC = "reminders"


class Consumer:
    """A running consume.sh."""

    def __init__(self, relay: Relay, output: Path) -> None:
        self._output = output
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                [HERE / "consume.sh", TOPIC],
                stdout=file,
                stderr=file,
                env=environ(relay),
                start_new_session=True,
            )

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def kill(self) -> None:
        """With its curl, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait(60)


def environ(relay: Relay) -> dict[str, str]:
    return {**os.environ, "API": f"http://{relay.api}", "no_proxy": "127.0.0.1"}


def produce(relay: Relay, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(HERE / "produce.sh"), TOPIC, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env=environ(relay)
    )


@pytest.fixture
def consumers() -> Iterator[list[Consumer]]:
    need("curl")
    started: list[Consumer] = []
    yield started
    for consumer in started:
        consumer.kill()


@pytest.mark.slow
def test_messages_are_printed_on_time(stage: Stage, consumers: list[Consumer]) -> None:
    """Each once, in the order of their due times, and none early."""
    relay = stage.relay()
    consumer = Consumer(relay, stage.directory / "consumer.txt")
    consumers.append(consumer)
    began = time.monotonic()
    made = produce(relay, "2", "second: it's 2 s", "0.5", "first")
    assert made.returncode == 0, made.stderr
    eventually(lambda: "first" in consumer.lines(), "the first is printed")
    assert time.monotonic() - began >= 0.5
    eventually(lambda: len(consumer.lines()) == 2, "both are printed")
    assert time.monotonic() - began >= 2.0
    assert consumer.lines() == ["first", "second: it's 2 s"]
    stage.wait_empty(TOPIC)


def test_a_consumer_is_killed_and_another_goes_on(stage: Stage, consumers: list[Consumer]) -> None:
    """Killed while it waits: whatever falls due goes to the next one, as the first attempt."""
    relay = stage.relay()
    first = Consumer(relay, stage.directory / "first.txt")
    consumers.append(first)
    eventually(lambda: 'relay_consumers{topic="reminders"} 1' in relay.metrics(), "it waits")
    first.kill()
    eventually(lambda: 'relay_consumers{topic="reminders"} 1' not in relay.metrics(), "the relay has seen it")
    assert produce(relay, "0", "hello").returncode == 0
    second = Consumer(relay, stage.directory / "second.txt")
    consumers.append(second)
    eventually(lambda: second.lines() == ["hello"], "it is printed")
    stage.wait_empty(TOPIC)


def test_a_refusal_is_told(stage: Stage, consumers: list[Consumer]) -> None:
    made = produce(stage.relay(), "-1", "hello")
    assert made.returncode != 0
    assert "delay_sec" in made.stdout
