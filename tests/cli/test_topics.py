"""topics, stats, pause, resume: what they send, what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from relay.cli.topics.topic_calls import distance
from relay.v1 import topic_service_pb2 as pb
from tests.cli.conftest import Run
from tests.cli.double import NOW, Double


def standing(double: Double, name: str, **fields: object) -> None:
    double.topics.topics[name] = pb.Topic(topic=name, **fields)  # type: ignore[arg-type]


def test_topics_as_a_table(run: Run, double: Double) -> None:
    """Each topic has a row: timers, due, the first, dead letters, its pause."""
    standing(double, "orders", timers=12, due=3, next_claim_time=Timestamp(seconds=NOW))
    standing(double, "paused", paused=True, paused_until=Timestamp(seconds=NOW + 60))
    standing(double, "[red]for ever", paused=True)
    double.topics.die("orders", "x")
    rows = {
        line.split("  ")[0].strip(): line.split()[1:] for line in run("topics").stdout.splitlines() if line
    }
    assert rows["orders"] == ["12", "3", "2030-01-01T00:00:00.000000Z", "1"]
    assert rows["paused"] == ["0", "0", "0", "until", "2030-01-01T00:01:00.000000Z"]
    assert rows["[red]for ever"][-4:] == ["until", "it", "is", "resumed"]


def test_topics_as_json_lines_and_a_limit(run: Run, double: Double) -> None:
    for number in range(5):
        standing(double, f"t{number}", timers=number)
    found = [json.loads(line) for line in run("topics", "--json").stdout.splitlines()]
    assert [topic["timers"] for topic in found] == [0, 1, 2, 3, 4]
    assert found[0] == {
        "topic": "t0",
        "timers": 0,
        "due": 0,
        "next_claim_time": None,
        "dead": 0,
        "oldest_death_time": None,
        "paused": False,
        "paused_until": None,
        "dispatch": "lease",
    }
    some = run("topics", "--limit", "2")
    assert "t2" not in some.stdout
    assert "there are more: these are the first 2" in some.stderr
    assert run("topics", "--limit", "5").stderr == ""


def test_what_stands_behind_a_timeline(run: Run, double: Double) -> None:
    """A list's backlog, and a stream's groups."""
    standing(double, "jobs", dispatch="list", ready=3, processing=1)
    group = pb.TopicGroup(group="billing", pending=4, waiting=1, consumers=2)
    standing(double, "fan", dispatch="stream", entries=9, groups=[group])
    jobs, fan = (json.loads(run("stats", topic, "--json").stdout) for topic in ("jobs", "fan"))
    assert (jobs["dispatch"], jobs["ready"], jobs["processing"]) == ("list", 3, 1)
    told = {"group": "billing", "pending": 4, "unread": None, "waiting": 1, "consumers": 2}
    assert (fan["dispatch"], fan["entries"], fan["groups"]) == ("stream", 9, [told])
    assert "ready         3" in run("stats", "jobs").stdout
    assert "billing: 4 pending, ? unread, 1 waiting, 2 consumers" in run("stats", "fan").stdout


def test_the_partitions_of_a_topic(run: Run, double: Double) -> None:
    """They are told of a topic that has several, and of no other."""
    standing(double, "many", timers=9, partitions=8)
    standing(double, "one", timers=9)
    assert "partitions    8" in run("stats", "many").stdout
    assert json.loads(run("stats", "many", "--json").stdout)["partitions"] == 8
    assert "partitions" not in run("stats", "one").stdout + run("stats", "one", "--json").stdout


def test_a_topic_that_moves(run: Run, double: Double) -> None:
    standing(double, "many", partitions=4, moving_to=8)
    assert "partitions    4, moving to 8" in run("stats", "many").stdout
    told = json.loads(run("stats", "many", "--json").stdout)
    assert (told["partitions"], told["moving_to"]) == (4, 8)
    standing(double, "first", moving_to=2)
    assert "partitions    1, moving to 2" in run("stats", "first").stdout


def test_topics_of_nothing(run: Run) -> None:
    assert run("topics").stdout == "no topics: nothing has been scheduled yet\n"
    assert run("topics", "--json").stdout == ""


def test_stats(run: Run, double: Double) -> None:
    standing(double, "t", timers=2, due=1, next_claim_time=Timestamp(seconds=1))
    double.topics.die("t", "x")
    lines = dict(line.split("  ", 1) for line in run("stats", "t").stdout.splitlines())
    shown = {label: value.strip() for label, value in lines.items()}
    assert (shown["timers"], shown["due"], shown["dead"], shown["paused"]) == ("2", "1", "1", "no")
    assert shown["oldest due"].startswith("1970-01-01T00:00:01.000000Z (")
    assert shown["oldest due"].endswith("ago)")
    assert json.loads(run("stats", "t", "--json").stdout)["due"] == 1
    standing(double, "idle")
    assert "next" in run("stats", "idle").stdout


def test_pause_for_until_and_for_ever(run: Run, double: Double) -> None:
    assert run("pause", "t").stdout == "paused t until it is resumed\n"
    assert run("pause", "t", "--for", "1m30s").stdout == "paused t until 2030-01-01T00:01:30.000000Z\n"
    until = run("pause", "t", "--until", "2031-01-01T02:00:00+02:00", "--json")
    assert json.loads(until.stdout)["paused_until"] == "2031-01-01T00:00:00.000000Z"
    ever, length, end = double.topics.asked("PauseTopic")
    assert ever.WhichOneof("end") is None
    assert length.duration.seconds == 90
    assert end.until.seconds == 1_924_992_000


def test_resume(run: Run, double: Double) -> None:
    run("pause", "t")
    assert run("resume", "t").stdout == "resumed t: 0 due\n"
    assert json.loads(run("resume", "t", "--json").stdout)["paused"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pause", "t", "--for", "5s", "--until", "2030-01-01T00:00:00Z"], "--until and --for can't both"),
        (["pause", "t", "--for", "soon"], "--for: must be a length of time"),
        (["pause", "t", "--for", "0"], "--for: is 0"),
        (["pause", "t", "--until", "tomorrow"], "--until: must be an ISO 8601 time"),
        (["pause", "a{b"], "topic"),
        (["resume", "a{b"], "topic"),
        (["stats", "a{b"], "topic"),
        (["stats", "t", "--watch", "--interval", "1ms"], "--interval: must be at least 0.1s"),
        (["topics", "--watch", "--interval", "x"], "--interval: must be a length of time"),
    ],
)
def test_bad_input_names_the_option(run: Run, double: Double, arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert double.topics.calls == []


@pytest.mark.parametrize(
    "arguments", [("topics",), ("stats", "t"), ("pause", "t"), ("resume", "t"), ("dead", "list", "t")]
)
def test_without_a_relay_the_code_is_4(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--target", "127.0.0.1:1", "--timeout", "0.3")
    assert result.exit_code == 4
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(seconds=-302), "5m 2s ago"),
        (timedelta(days=2, hours=3, minutes=4), "in 2d 3h"),
        (timedelta(seconds=0.2), "in under 1s"),
        (timedelta(seconds=-60), "1m ago"),
    ],
)
def test_distances(span: timedelta, words: str) -> None:
    assert distance(span) == words


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "people"])
def test_watch_shows_it_again_and_ends_in_order(double: Double, options: tuple[str, ...]) -> None:
    """Into a pipe: each look is written at once; Ctrl-C ends with 0 and without a word."""
    standing(double, "t", timers=7)
    command = [sys.executable, "-W", "error", "-m", "relay.cli", "stats", "t", "--watch"]
    process = subprocess.Popen(
        [*command, "--interval", "100ms", "--target", double.target, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("RELAY_")},
    )
    try:
        assert process.stdout is not None
        seen = ""
        while seen.count("7") < 3:
            line = process.stdout.readline()
            assert line, process.communicate()
            seen += line
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()
    assert len(double.topics.asked("GetTopic")) >= 3
