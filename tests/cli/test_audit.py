"""`relay audit` and `relay journal export`, in this process, on a real server and on forged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.core.instants import SECOND
from relay.core.timers import NewTimer
from tests.audit.files import written
from tests.audit.forge import Forge
from tests.chaos import count
from tests.cli.journaled import Journaled
from tests.keyspace import Keyspace
from tests.servers import RunningServer, free_port

DUE = 4_000_000_000 * SECOND


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


class Topic(Journaled):
    """A topic with a journal on a server."""

    def schedule(self, *timer_ids: str) -> None:
        self.do(("schedule", ([NewTimer(timer_id, b"", DUE) for timer_id in timer_ids],), {}))

    def audit(self, *options: str) -> Result:
        return run("audit", self.topic, "-c", str(self.config), *options)

    def export(self, file: Path) -> Result:
        return run("journal", "export", self.topic, str(file), "-c", str(self.config))


@pytest.fixture
def topic(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> Topic:
    return Topic(valkey, keyspace.topic(), tmp_path)


def history() -> Forge:
    return Forge().scheduled("t").wait(1).claimed("t", 1).acked("t", 1)


def documents(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_proved(tmp_path: Path) -> None:
    """Exit 0, a line for each promise, and the lateness."""
    file = written(tmp_path / "file", "orders", history().batches)
    done = run("audit", "orders", "--file", str(file), "--exclusive")
    assert done.exit_code == 0
    assert done.stdout.startswith("orders: 3 records in 3 entries, 2026-01-01T00:00:00.000000Z to ")
    assert done.stdout.count("proved") == 7
    assert "p50 1000.000 ms" in done.stdout
    assert "committed 1, deliveries 1, intents 1" in done.stdout


def test_refuted(tmp_path: Path) -> None:
    """Exit 1, with the timer, what happened, when and where, and nothing that can steer a terminal."""
    batches = Forge().scheduled("t\x1b[31m", 5.0).claimed("t\x1b[31m", 1, 5.0).acked("t\x1b[31m", 1).batches
    file = written(tmp_path / "file", "orders", batches)
    done = run("audit", "orders", "--file", str(file))
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("1 refuted: "))
    assert line == (
        r"1 refuted: t\x1b[31m was delivered 5000000 µs early, 2026-01-01T00:00:00.000000Z "
        f"(entries {batches[0].entry} and {batches[1].entry})"
    )


def test_a_document(tmp_path: Path) -> None:
    """`--json`: everything, in one."""
    batches = Forge().scheduled("t", 5.0).claimed("t", 1, 5.0).scheduled("open", 9.0).batches
    file = written(tmp_path / "file", "orders", batches)
    (told,) = documents(run("audit", "orders", "--file", str(file), "--json", "--examples", "1"))
    assert (told["topic"], told["verdict"]) == ("orders", "refuted")
    early, once, *_ = told["promises"]
    assert (early["verdict"], early["broken"], early["checked"]) == ("refuted", 1, 1)
    assert early["examples"][0]["occurrence_id"].startswith("t/")
    assert once["verdict"] == "can't be said"
    assert list(once["doubts"].values()) == [2]
    assert told["journal"]["kinds"] == {"SCHEDULED": 2, "CLAIMED": 1}
    assert (told["open"], len(told["oldest_open"])) == (2, 1)
    assert told["lateness"] == {"count": 0}


def test_a_trimmed_journal(tmp_path: Path) -> None:
    """Exit 2, and where records are missing."""
    file = written(tmp_path / "file", "orders", history().batches[1:])
    done = run("audit", "orders", "--file", str(file))
    assert done.exit_code == 2
    assert "1 records are missing" in done.stdout
    assert "1 records before 1767225600000-1: trimmed" in done.stdout


def test_several_files_are_one_journal(tmp_path: Path) -> None:
    """In the order in which they are named."""
    batches = history().batches
    one = written(tmp_path / "one", "orders", batches[:2])
    two = written(tmp_path / "two", "orders", batches[2:])
    assert run("audit", "orders", "-f", str(one), "-f", str(two), "--exclusive").exit_code == 0
    assert run("audit", "orders", "-f", str(two), "-f", str(one), "--exclusive").exit_code != 0


def test_what_waits_is_looked_for(topic: Topic) -> None:
    """A timer that Redis has is no loss; at rest it is one too many; one that is gone is named."""
    topic.schedule("a", "b")
    assert topic.audit("--exclusive").exit_code == 0
    assert topic.audit("--exclusive", "--at-rest").exit_code == 1
    with topic.server.client() as client:
        client.zrem(f"timers_timeline:{topic.topic}", "b")
    lost = topic.audit("--exclusive")
    assert lost.exit_code == 1
    assert "2 refuted: b is gone, and nothing says how it ended" in lost.stdout
    assert topic.audit().exit_code == 2, "a foreign worker may have taken it"


def test_an_export_is_gone_on_with(topic: Topic, tmp_path: Path) -> None:
    """Behind the last whole entry, and the same as in one go."""
    topic.schedule("a")
    topic.schedule("b")
    file, other = tmp_path / "file", tmp_path / "other"
    assert topic.export(file).exit_code == 0
    first = file.read_bytes()
    assert topic.export(file).exit_code == 0
    assert file.read_bytes() == first
    topic.schedule("c")
    assert topic.export(other).exit_code == 0
    for size in {*range(0, len(first), count(11, 1)), len(first) - 1, len(first)}:
        file.write_bytes(first[:size])
        assert topic.export(file).exit_code == 0
        assert file.read_bytes() == other.read_bytes(), size
    (told,) = documents(topic.audit("--file", str(file), "--then-redis", "--json"))
    assert (told["verdict"], told["open"], told["journal"]["missing"]) == ("proved", 3, 0)


def test_files_outlive_the_stream(topic: Topic, tmp_path: Path) -> None:
    """What was trimmed since is in the file."""
    topic.schedule("a")
    topic.schedule("b")
    file = tmp_path / "file"
    topic.export(file)
    topic.schedule("c")
    with topic.server.client() as client:
        client.xtrim(f"timers_journal:{topic.topic}", maxlen=1, approximate=False)
    assert topic.audit().exit_code == 2
    assert topic.audit("--file", str(file), "--then-redis").exit_code == 0


def test_nothing_to_export(topic: Topic, tmp_path: Path) -> None:
    """No empty file is left."""
    done = topic.export(tmp_path / "file")
    assert (done.exit_code, list(tmp_path.glob("file"))) == (3, [])
    assert "is empty" in done.stderr
    assert topic.audit().exit_code == 2


def test_wrong_input(topic: Topic, tmp_path: Path) -> None:
    """Exit 2, and the message names the field."""
    file = written(tmp_path / "file", "orders", history().batches)
    for arguments, words in (
        (("audit", "a{b}"), "topic"),
        (("audit", "mails", "--file", str(file)), "--file: "),
        (("audit", "orders", "--file", str(tmp_path / "none")), "--file: "),
        (("audit", "orders", "--file", str(tmp_path)), "--file: "),
        (("journal", "export", topic.topic, str(file), "-c", str(topic.config)), "name another file"),
    ):
        done = run(*arguments)
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert file.read_bytes() == written(tmp_path / "again", "orders", history().batches).read_bytes()


def test_no_redis(tmp_path: Path) -> None:
    """Exit 4."""
    config = tmp_path / "relay.yaml"
    config.write_text(json.dumps({"redis": {"url": f"redis://127.0.0.1:{free_port()}/0"}}))
    done = run("audit", "orders", "-c", str(config))
    assert done.exit_code == 4
    assert "can't be used" in done.stderr
    kept = tmp_path / "kept"
    assert run("journal", "export", "orders", str(kept), "-c", str(config)).exit_code == 4
    assert not kept.exists()
