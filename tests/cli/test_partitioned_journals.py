"""`relay journal tail`, `relay journal export` and `relay audit` of a topic whose partitions have journals of
their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.store.keys import KeyNames
from tests.cli.journaled import Journaled
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.settlements import end_of

DUE = 1_767_225_600 * SECOND
LATER = 4_000_000_000 * SECOND
IDS = [f"t{n}" for n in range(12)]


class Divided(Journaled):
    """A topic of four partitions, and what the commands say of it."""

    def lives(self) -> None:
        """Each timer is scheduled; then all that are due are claimed and acknowledged, partition by
        partition."""
        self.parts = self.divide(4)
        layout = Layout(self.topic, 1, 4)
        for n, timer_id in enumerate(IDS):
            due = LATER if n == 0 else DUE
            self.do_at(layout.partition(timer_id), ("schedule", ([NewTimer(timer_id, b"", due)],), {}))
        for n, part in enumerate(self.parts):
            nonce = bytes([n + 1]) * 16
            mine = [timer_id for timer_id in IDS[1:] if layout.partition(timer_id) == part]
            self.do_at(
                part,
                ("claim", (ClaimRequest(limit=50, lease=30 * SECOND, nonce=nonce, max_bytes=1 << 20),), {}),
                ("settle", ([end_of(timer_id, nonce, Verb.ACK) for timer_id in mine],), {}),
            )

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "-c", str(self.config)])

    def lines(self, *options: str) -> list[dict[str, Any]]:
        result = self.run("journal", "tail", self.topic, "--json", *options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    def audit(self, *options: str) -> Any:
        result = self.run("audit", self.topic, "--json", *options)
        assert result.exit_code in (0, 1, 2), result.output
        return json.loads(result.stdout)


@pytest.fixture
def divided(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> Divided:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}#*")
    divided = Divided(valkey, topic, tmp_path)
    divided.lives()
    return divided


def place(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.replace("#", "-").split("-")))


def test_a_tail_of_all_partitions(divided: Divided) -> None:
    """By time, each record once, and each entry with the number of its partition."""
    lines = divided.lines()
    assert [line["timer_id"] for line in lines if line["kind"] == "SCHEDULED"] == IDS
    assert len([line for line in lines if line["kind"] == "ACKED"]) == 11
    assert {line["entry"].partition("#")[2] for line in lines} == {"0", "1", "2", "3"}
    assert [place(line["entry"]) for line in lines] == sorted(place(line["entry"]) for line in lines)
    assert not [line for line in lines if "missing" in line], "each partition counts by itself"
    assert divided.lines("-n", "3") == lines[-3:]


def test_a_tail_goes_on_from_any_entry(divided: Divided) -> None:
    """Behind it over all partitions, or behind an instant."""
    lines = divided.lines("--from", "0-0", "-n", "1000")
    assert lines == divided.lines()
    for n in (0, 5, 14):
        rest = [line for line in lines if place(line["entry"]) > place(lines[n]["entry"])]
        assert divided.lines("--from", lines[n]["entry"], "-n", "1000") == rest
    refused = divided.run("journal", "tail", divided.topic, "--from", "5-0#4")
    assert (refused.exit_code, "--from: '5-0#4' is not one" in refused.stderr) == (2, True), refused.output


def test_what_is_missing_in_a_partition(divided: Divided) -> None:
    key = KeyNames().key("journal", divided.parts[2])
    with divided.server.client() as client:
        entries: Any = client.xrange(key)
        client.xdel(key, entries[1][0])
    assert [line for line in divided.lines() if "missing" in line] == [{"missing": 1}]


def test_an_audit_of_all_partitions(divided: Divided) -> None:
    """All timers are judged, and those that live are looked for where they are."""
    report = divided.audit("--exclusive")
    assert report["verdict"] == "proved"
    assert (report["journal"]["kinds"]["SCHEDULED"], report["journal"]["kinds"]["ACKED"]) == (12, 11)
    assert (report["journal"]["gaps"], report["journal"]["missing"], report["open"]) == (0, 0, 1)
    layout = Layout(divided.topic, 1, 4)
    with divided.server.client() as client:
        part = layout.partition(IDS[0])
        client.zrem(KeyNames().key("timeline", part), IDS[0])
    broken = divided.audit("--exclusive")
    assert broken["verdict"] == "refuted"
    assert broken["promises"][1]["examples"][0]["timer_id"] == IDS[0]


def test_an_audit_sees_a_gap_of_one_partition(divided: Divided) -> None:
    key = KeyNames().key("journal", divided.parts[1])
    with divided.server.client() as client:
        entries: Any = client.xrange(key)
        client.xdel(key, entries[0][0])
    report = divided.audit()
    assert (report["verdict"], report["journal"]["gaps"], report["journal"]["missing"]) == (
        "can't be said",
        1,
        1,
    )
    assert report["gaps"][0]["entry"].endswith("#1")


def test_an_export_and_what_follows(divided: Divided, tmp_path: Path) -> None:
    """It goes on in each partition behind what the file has; the file alone is judged as Redis is."""
    file = tmp_path / "journal"
    assert divided.run("journal", "export", divided.topic, str(file)).exit_code == 0
    before = file.stat().st_size
    more = [f"more{n}" for n in range(8)]
    layout = Layout(divided.topic, 1, 4)
    for timer_id in more:
        divided.do_at(layout.partition(timer_id), ("schedule", ([NewTimer(timer_id, b"", LATER)],), {}))
    assert divided.run("journal", "export", divided.topic, str(file)).exit_code == 0
    assert file.stat().st_size > before
    for options in (("--file", str(file)), ("--file", str(file), "--then-redis"), ()):
        report = divided.audit(*options)
        assert report["journal"]["kinds"]["SCHEDULED"] == 20, options
        assert (report["journal"]["gaps"], report["counts"]["committed"]) == (0, 11)
