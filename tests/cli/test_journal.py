"""`relay journal tail` on a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.timers import NewTimer
from tests.cli.journaled import Journaled
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.settlements import end_of

N1 = b"1" * 16
DUE = 1_767_225_600 * SECOND


class Written(Journaled):
    """A topic whose journal is read."""

    def life(self) -> None:
        """A timer is scheduled, claimed and acknowledged; another one only scheduled."""
        timers = [NewTimer("a", b"", DUE), NewTimer("later\n", b"", 2 * DUE)]
        claim = ClaimRequest(limit=5, lease=30 * SECOND, nonce=N1, max_bytes=1)
        self.do(
            ("schedule", (timers,), {}),
            ("claim", (claim,), {}),
            ("settle", ([end_of("a", N1, Verb.ACK)],), {}),
        )

    def tail(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["journal", "tail", self.topic, "-c", str(self.config), *options])

    def lines(self, *options: str) -> list[dict[str, Any]]:
        result = self.tail("--json", *options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def written(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> Written:
    return Written(valkey, keyspace.topic(), tmp_path)


def test_for_people(written: Written) -> None:
    """A line for each record: when, what, which timer, and its facts. No name steers the terminal."""
    written.life()
    result = written.tail()
    lines = [line.split("  ") for line in result.stdout.splitlines()]
    assert result.exit_code == 0, result.output
    assert [[part.strip() for part in line if part][1:] for line in lines] == [
        ["SCHEDULED", "a", "due=2026-01-01T00:00:00.000000Z"],
        ["SCHEDULED", "later\\n", "due=2082-01-01T00:00:00.000000Z"],
        ["CLAIMED", "a", lines[2][-1]],
        ["ACKED", "a", f"nonce={N1.hex()}"],
    ]
    assert "claims=1" in lines[2][-1]
    assert " until=20" in lines[2][-1]


def test_as_json(written: Written) -> None:
    """The fields of docs/reference/journal.md, with the entry from which to go on."""
    written.life()
    lines = written.lines()
    assert [line["number"] for line in lines] == [1, 2, 3, 4]
    assert {name: lines[3][name] for name in lines[3].keys() - {"entry", "time"}} == {
        "number": 4,
        "kind": "ACKED",
        "timer_id": "a",
        "nonce": N1.hex(),
    }
    assert lines[2]["occurrence"] == N1.hex()


def test_pages(written: Written) -> None:
    """The newest ones; those behind an entry, in whole entries, so that nothing is passed over."""
    written.life()
    lines = written.lines()
    assert written.lines("-n", "1") == lines[3:]
    assert written.lines("--from", "0-0", "-n", "1") == lines[:2]
    assert written.lines("--from", lines[1]["entry"], "-n", "1") == lines[2:3]


def test_what_is_missing(written: Written) -> None:
    """A gap has a line of its own, and so has a journal that begins anew."""
    written.life()
    with written.server.client() as client:
        entries: Any = client.xrange(f"timers_journal:{written.topic}")
        client.xdel(f"timers_journal:{written.topic}", entries[1][0])
    assert written.lines()[2] == {"missing": 1}
    assert "-- 1 records are missing --" in written.tail().stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 3, "is empty, or the topic has no journal"),
        (("--from", "x"), 2, "--from: is not an entry of a journal"),
        (("--follow", "--interval", "x"), 2, "--interval"),
    ],
)
def test_refused(written: Written, options: tuple[str, ...], code: int, words: str) -> None:
    result = written.tail(*options)
    assert (result.exit_code, words in result.stderr) == (code, True), result.output


def test_no_redis(written: Written) -> None:
    written.config.write_text(json.dumps({"redis": {"url": "redis://:hunter2@127.0.0.1:1/0"}}))
    result = written.tail()
    assert (result.exit_code, "hunter2" in result.output) == (4, False), result.output


@pytest.mark.slow
def test_follow(written: Written) -> None:
    """What comes later is printed as it comes, until Ctrl-C."""
    written.life()
    command = [sys.executable, "-m", "relay.cli", "journal", "tail", written.topic, "-c", str(written.config)]
    options = ["--follow", "--interval", "10ms", "-n", "1", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        try:
            assert json.loads(tail.stdout.readline())["kind"] == "ACKED"
            written.do(("cancel", (["later\n"],), {}))
            assert json.loads(tail.stdout.readline())["kind"] == "CANCELLED"
        finally:
            tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 0


def test_help_speaks_of_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """--interval goes with --follow here."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    told = CliRunner().invoke(app, ["journal", "tail", "--help"]).stdout
    assert "With --follow: the time between two looks for more" in told
    assert "--watch" not in told
