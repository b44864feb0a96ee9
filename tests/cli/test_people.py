"""`relay journal tail --people` on a real server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.core.trust.actions import Action
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from tests.cli.journaled import PATIENT
from tests.docs import pages
from tests.keyspace import Keyspace
from tests.servers import RunningServer

PAUSE = Action(
    "token:alice", "operate", "PauseTopic", "orders", note="OPS-7", before="not paused", relay="pod-1"
)
RUN = Action("spiffe://shop.example/ops", "operate", "RunTimer", "bills", "t\n1")


class Record:
    """A record of its own, and a configuration that leads to it."""

    def __init__(self, server: RunningServer, topics: str, folder: Path) -> None:
        self.server, self.keys = server, KeyNames(topics=topics)
        self.config = folder / "relay.yaml"
        self.config.write_text(json.dumps({"redis": {"url": server.url, "topics_key": topics, **PATIENT}}))

    def add(self, *actions: Action) -> list[str]:
        async def run() -> list[str]:
            async with Server(self.server.url, self.keys, connections=1, timeout=60.0) as server:
                return [await RedisActions(server).append(each) for each in actions]

        return asyncio.run(run())

    def done(self, action: Action, after: str) -> str:
        """Add an action that has begun and ended; the entry that says how."""
        (began,) = self.add(action)
        return self.add(replace(action, began=began, outcome="OK", after=after))[0]

    def tail(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["journal", "tail", "--people", "-c", str(self.config), *options])

    def lines(self, *options: str) -> list[dict[str, Any]]:
        result = self.tail("--json", *options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def record(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> Record:
    topic = keyspace.topic()
    return Record(valkey, f"timers_topics:{topic}", tmp_path)


def test_for_people(record: Record) -> None:
    """A line for each action. No name steers the terminal."""
    record.done(PAUSE, "paused")
    record.done(RUN, "due now")
    result = record.tail()
    assert result.exit_code == 0, result.output
    assert [line.split("  ")[1:] for line in result.stdout.splitlines()] == [
        [
            "token:alice",
            "PauseTopic",
            "orders",
            "OK",
            'before="not paused"',
            'after="paused"',
            'note="OPS-7"',
        ],
        ["spiffe://shop.example/ops", "RunTimer", "bills/t\\n1", "OK", 'after="due now"'],
    ]


def test_as_json(record: Record) -> None:
    """All that is known of one."""
    entry = record.done(PAUSE, "paused")
    (line,) = record.lines()
    assert line.pop("time").startswith("20")
    assert line.pop("began") < line["entry"]
    assert line == {
        "entry": entry,
        "principal": "token:alice",
        "kind": "token",
        "verb": "operate",
        "method": "PauseTopic",
        "topic": "orders",
        "thing": "",
        "note": "OPS-7",
        "before": "not paused",
        "after": "paused",
        "outcome": "OK",
        "relay": "pod-1",
    }


def test_an_action_without_an_end(record: Record) -> None:
    """Its relay has died, or its caller has gone: nobody knows whether it had its effect."""
    record.add(PAUSE)
    record.done(RUN, "due now")
    assert [(line["method"], line["outcome"]) for line in record.lines()] == [
        ("PauseTopic", "open"),
        ("RunTimer", "OK"),
    ]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        (("orders",), ["orders", "orders"]),
        (("--principal", "spiffe://shop.example/*"), ["bills"]),
        (("orders", "--principal", "spiffe://*"), None),
        (("-n", "2"), ["bills", "orders"]),
        (("-n", "1", "orders"), ["orders"]),
        (("--from", "0-0", "-n", "2"), ["orders", "bills"]),
        (("--from", "9999999999999-0"), None),
    ],
)
def test_chosen(record: Record, options: tuple[str, ...], topics: list[str] | None) -> None:
    """By topic, by principal, and by how many; exit 3 if there is none."""
    for each in (PAUSE, RUN, PAUSE):
        record.done(each, "x")
    if topics is None:
        result = record.tail(*options)
        assert (result.exit_code, "nobody did anything" in result.stderr) == (3, True), result.output
    else:
        assert [line["topic"] for line in record.lines(*options)] == topics


def test_a_user_who_may_only_read_it(record: Record) -> None:
    """The rights that the page lists suffice, and none of them is there for nothing."""
    (block,) = pages.run_by(__file__)
    _, _, name, *rules = block.text.replace("timers_topics", record.keys.topics).split()
    record.done(PAUSE, "paused")
    host = record.server.url.rpartition("/")[0].rpartition("@")[2].removeprefix("redis://")
    said = {"url": f"redis://{name}:a-long-password@{host}", "topics_key": record.keys.topics}
    record.config.write_text(json.dumps({"redis": said}))
    with record.server.client() as client:
        for left_out in (
            None,
            *(each for each in rules if each.startswith(("+xrev", "+time", "+info", "~"))),
        ):
            client.execute_command("ACL", "DELUSER", name)
            client.execute_command("ACL", "SETUSER", name, *(each for each in rules if each != left_out))
            assert (record.tail().exit_code == 0) is (left_out is None), left_out
        client.execute_command("ACL", "DELUSER", name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("journal", "tail"), "TOPIC: is missing"),
        (("journal", "tail", "orders", "--principal", "token:a"), "--principal: says whose actions"),
        (("journal", "tail", "--people", "--from", "x"), "--from: is not an entry"),
    ],
)
def test_refused(record: Record, arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, [*arguments, "-c", str(record.config)])
    assert (result.exit_code, words in result.stderr) == (2, True), result.output


@pytest.mark.slow
def test_follow(record: Record) -> None:
    """An action is printed as it ends; one that has begun, at the second look if it has not ended by then."""
    record.done(PAUSE, "paused")
    command = [sys.executable, "-m", "relay.cli", "journal", "tail", "--people", "-c", str(record.config)]
    options = ["--follow", "--interval", "10ms", "--json", "--principal", "*"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        lines = tail.stdout

        def printed() -> tuple[str, str]:
            line = json.loads(lines.readline())
            return line["method"], line["outcome"]

        try:
            assert printed() == ("PauseTopic", "OK")
            (began,) = record.add(RUN)
            assert printed() == ("RunTimer", "open")
            record.add(replace(RUN, began=began, outcome="NOT_FOUND"))
            assert printed() == ("RunTimer", "NOT_FOUND")
        finally:
            tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 0


def test_an_action_that_has_ended_is_no_open_one_at_the_end_of_a_page(record: Record) -> None:
    """The entry that says how it ended is the next one."""
    first, second = record.done(PAUSE, "paused"), record.done(RUN, "due now")
    (line,) = record.lines("--from", "0-0", "--limit", "1")
    assert (line["entry"], line["outcome"]) == (first, "OK")
    (line,) = record.lines("--from", first, "--limit", "1")
    assert (line["entry"], line["outcome"]) == (second, "OK")
