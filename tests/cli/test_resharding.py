"""topics reshard: the steps that it begins, what it says of them, and its exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from relay.cli.topics import resharding
from relay.v1 import topic_service_pb2 as pb
from tests.cli.conftest import Run
from tests.cli.double import Double
from tests.worlds.relay.processes import environment


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "LOOK", 0.0)


def standing(double: Double, **fields: Any) -> None:
    double.topics.topics["orders"] = pb.Topic(topic="orders", **fields)


def asked(double: Double) -> list[tuple[int, int]]:
    """The numbers of partitions and the rates of all calls that begin a move."""
    return [(call.partitions, call.max_rate) for call in double.topics.asked("ReshardTopic")]


def test_step_after_step(run: Run, double: Double) -> None:
    """Each step is printed on standard error, and begun at the same rate."""
    standing(double, partitions=4)
    result = run("topics", "reshard", "orders", "--partitions", "16", "--max-rate", "500/s")
    assert (result.exit_code, result.stdout) == (0, "orders has 16 partitions\n")
    assert result.stderr.splitlines() == [
        "relay: orders moves from 4 to 8 partitions",
        "relay: orders moves from 8 to 16 partitions",
    ]
    assert set(asked(double)) == {(16, 500)}


def test_down_to_one_as_json(run: Run, double: Double) -> None:
    """One document at the end, without the number of partitions, as of any topic that has one."""
    standing(double, partitions=2, timers=7)
    result = run("topics", "reshard", "orders", "--partitions", "1", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["topic"], told["timers"]) == ("orders", 7)
    assert told.get("moving_to") is None
    assert result.stderr == "relay: orders moves from 2 to 1 partition\n"


def test_a_topic_that_has_as_many(run: Run, double: Double) -> None:
    standing(double, partitions=8)
    result = run("topics", "reshard", "orders", "--partitions", "8")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "orders has 8 partitions\n", "")


def test_a_move_the_other_way_ends_first(run: Run, double: Double) -> None:
    standing(double, partitions=8, moving_to=4)
    result = run("topics", "reshard", "orders", "--partitions", "8")
    assert (result.exit_code, result.stdout) == (0, "orders has 8 partitions\n")
    assert result.stderr.splitlines() == [
        "relay: orders moves from 8 to 4 partitions; that has to end before it can move to 8",
        "relay: orders moves from 4 to 8 partitions",
    ]


def test_without_waiting(run: Run, double: Double) -> None:
    """It begins one step, and says how to go on where that is not all."""
    standing(double, partitions=4)
    double.topics.moves_end = False
    result = run("topics", "reshard", "orders", "--partitions", "16", "--no-wait")
    assert (result.exit_code, result.stdout) == (0, "orders moves from 4 to 8 partitions\n")
    assert "16 are further steps away: run the same command again" in result.stderr
    same = run("topics", "reshard", "orders", "--partitions", "8", "--no-wait", "--json")
    assert (same.exit_code, json.loads(same.stdout)["moving_to"], same.stderr) == (0, 8, "")
    other = run("topics", "reshard", "orders", "--partitions", "2", "--no-wait")
    assert (other.exit_code, other.stdout) == (1, "")
    assert "orders moves from 4 to 8 partitions; nothing was begun" in other.stderr
    assert double.topics.topics["orders"].moving_to == 8


def test_less_than_one_a_second_is_no_lack_of_a_bound(run: Run, double: Double) -> None:
    standing(double)
    run("topics", "reshard", "orders", "--partitions", "2", "--max-rate", "6/m", "--no-wait")
    assert asked(double) == [(2, 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders", "--partitions", "3"], "--partitions: must be a power of two from 1 to 1,024, got 3"),
        (["orders", "--partitions", "0"], "--partitions: must be a power of two"),
        (["orders", "--partitions", "2048"], "--partitions: must be a power of two"),
        (["orders"], "--partitions"),
        (["orders", "--partitions", "2", "--max-rate", "0"], "--max-rate: must be a rate above 0"),
        (["a{b", "--partitions", "2"], "topic"),
    ],
)
def test_bad_input_names_the_option(run: Run, double: Double, arguments: list[str], words: str) -> None:
    result = run("topics", "reshard", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert double.topics.calls == []


@pytest.mark.parametrize("options", [("--target", "127.0.0.1:1"), ("--json",)], ids=lambda each: each[0])
def test_options_of_topics_are_none_of_reshard(run: Run, double: Double, options: tuple[str, ...]) -> None:
    """Whoever names another relay too early must not change a topic of this one."""
    standing(double)
    result = run("topics", *options, "reshard", "orders", "--partitions", "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"relay: {options[0]}: give it after reshard\n"
    assert double.topics.calls == []


def test_a_relay_that_goes_away(run: Run, double: Double) -> None:
    """The move goes on, and the command says so."""
    standing(double, partitions=4)
    double.topics.fail_after = 3
    result = run("topics", "reshard", "orders", "--partitions", "8", "--timeout", "60")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "cut off: a move that has begun goes on in the relays" in result.stderr
    double.topics.fail_after = 0
    result = run("topics", "reshard", "orders", "--partitions", "8", "--timeout", "60")
    assert (result.exit_code, "cut off" in result.stderr) == (4, False)


def test_ctrl_c_ends_only_the_waiting(double: Double) -> None:
    standing(double, partitions=4)
    double.topics.moves_end = False  # however late the signal comes
    command = [sys.executable, "-W", "error", "-m", "relay.cli", "topics", "reshard", "orders"]
    process = subprocess.Popen(
        [*command, "--partitions", "1024", "--target", double.target],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({}),
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "relay: orders moves from 4 to 8 partitions\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, out) == (1, "")
        assert err.splitlines()[-1].startswith("relay: cut off: a move that has begun goes on")
    finally:
        process.kill()
        process.communicate()
