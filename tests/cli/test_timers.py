"""schedule, cancel, get, list: what they send, what they print, and their exit codes."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from relay.core.validate import MOST_PAYLOAD_BYTES
from relay.settings.describe import fields
from relay.v1 import timer_pb2
from tests.cli.conftest import Run
from tests.cli.double import NOW, Double, running_double
from tests.servers import free_port


def test_schedule_sends_all_that_was_given(run: Run, double: Double) -> None:
    result = run(
        *(
            "schedule",
            "t",
            "--id",
            "x",
            "--in",
            "1h30m",
            "--payload",
            "grüße",
            "--content-type",
            "text/plain",
        ),
        *("-H", "a=1=2", "-H", "b=", "--json"),
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "topic": "t",
        "timer_id": "x",
        "state": "pending",
        "due_time": "2030-01-01T01:30:00.000000Z",
        "next_claim_time": "2030-01-01T01:30:00.000000Z",
        "attempts": 0,
        "replaced": False,
        "delivery_under_way": False,
        "durability": "stored",
        "result": "created",
    }
    timer = double.timers["t", "x"]
    assert timer.payload == "grüße".encode()
    assert dict(timer.headers) == {"a": "1=2", "b": ""}
    assert timer.content_type == "text/plain"


def test_schedule_speaks_to_people(run: Run) -> None:
    arguments = ("schedule", "t", "--id", "x", "--at", "2031-05-01T02:00:00.5+02:00")
    assert run(*arguments).stdout == "scheduled t/x for 2031-05-01T00:00:00.500000Z\n"
    assert run(*arguments).stdout == "rescheduled t/x for 2031-05-01T00:00:00.500000Z\n"


def test_schedule_makes_an_id_where_none_is_given(run: Run, double: Double) -> None:
    assert run("schedule", "t", "--in", "0").exit_code == 0
    assert run("schedule", "t", "--in", "0").exit_code == 0
    assert len(double.timers) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("1.5", 1.5), ("2m", 120), ("1h", 3600), ("1d12h", 129_600), ("250ms", 0.25), (".5s", 0.5)],
)
def test_lengths_of_time(run: Run, double: Double, text: str, seconds: float) -> None:
    assert run("schedule", "t", "--id", "x", "--in", text).exit_code == 0
    due = double.timers["t", "x"].due_time
    assert due.seconds + due.nanos / 1e9 == NOW + seconds


def test_a_payload_from_a_file_and_from_standard_input(run: Run, double: Double, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    assert run("schedule", "t", "--id", "f", "--in", "1", "--payload-file", str(file)).exit_code == 0
    assert run("schedule", "t", "--id", "s", "--in", "1", "--payload-file", "-", stdin=b"\xfe").exit_code == 0
    assert double.timers["t", "f"].payload == b"\x00\xff"
    assert double.timers["t", "s"].payload == b"\xfe"


@pytest.mark.parametrize("source", ["/dev/zero", "-"])
def test_a_payload_is_not_read_beyond_what_a_relay_can_take(
    run: Run, double: Double, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Exit 2, the option and the limit; and no more is read than that takes."""
    monkeypatch.setattr("relay.cli.terminal.parse.MOST_PAYLOAD_BYTES", 1000)
    fits = run("schedule", "t", "--in", "1", "--payload-file", "-", stdin=bytes(1000))
    assert (fits.exit_code, len(double.specs)) == (0, 1)
    result = run("schedule", "t", "--in", "1", "--payload-file", source, stdin=bytes(1001))
    assert (result.exit_code, len(double.specs)) == (2, 1)
    assert result.stderr.startswith(
        f"relay: --payload-file: {source} has more than 1000 bytes, the most that"
    )


def test_the_payload_s_bound_is_that_of_the_setting() -> None:
    (field,) = (field for field in fields() if field.path == ("defaults", "max_payload_bytes"))
    assert field.highest == MOST_PAYLOAD_BYTES


def test_a_message_that_is_too_large_for_the_relay_is_bad_input(run: Run, double: Double) -> None:
    double.refusal = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "SERVER: Received message larger than max (20971574 vs. 16777216)",
        "",
    )
    result = run("schedule", "t", "--in", "1", "--payload", "x")
    assert result.exit_code == 2
    assert (
        "payload: the relay takes messages of at most 16777216 bytes (grpc.max_message_bytes)"
        in result.stderr
    )


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1:7451", "https://h:1", "redis://:hunter2@h:6379/0", "127.0.0.1", "h:grpc", "h:0", ":1"],
)
@pytest.mark.parametrize("arguments", [("list", "t"), ("stats", "t"), ("healthcheck",)])
def test_what_is_no_target_is_told_before_anything_is_dialled(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], target: str
) -> None:
    """By the option or by the variable; a password in it is not repeated."""
    monkeypatch.setenv("RELAY_TARGET", target)
    result = run(*arguments)
    assert result.exit_code == (1 if arguments == ("healthcheck",) else 2)
    assert result.stderr.startswith("relay: --target: target ")
    assert "as host:port or unix:/path, such as 127.0.0.1:7451" in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/none/relay.sock"])
def test_a_dead_port_of_this_machine_is_given_up_after_a_second(run: Run, target: str) -> None:
    """Exit 4; it says how long it looked, and what to do. --timeout is kept to where it is given."""
    result = run("get", "t", "x", "--target", target)
    assert result.exit_code == 4
    told = f"relay: the relay at {target} is not available: no connection within 1 s ("
    assert result.stderr.startswith(told)
    assert "start one (relay dev, relay serve), or name another by --target or RELAY_TARGET" in result.stderr
    assert "within 0.2 s (" in run("get", "t", "x", "--target", target, "--timeout", "0.2").stderr


def test_a_relay_that_is_just_starting_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens after the first refusal."""
    port = free_port()
    with ExitStack() as stack:

        def start(_: float) -> None:
            stack.enter_context(running_double(port))

        monkeypatch.setattr("relay.cli.terminal.relay_connection.sleep", start)
        monkeypatch.setattr("relay.cli.terminal.relay_connection.PATIENCE", 60.0)
        result = run("schedule", "t", "--in", "1", "--target", f"127.0.0.1:{port}")
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["t"], "give one of --in, --at and --debounce"),
        (["t", "--in", "1", "--at", "2030-01-01T00:00:00Z"], "give one of --in, --at and --debounce"),
        (["t", "--in", "soon"], "--in: must be a length of time"),
        (["t", "--in", "5 s"], "--in: must be a length of time"),
        (["t", "--in", ""], "--in: must be a length of time"),
        (["t", "--in", "nan"], "--in: must be a length of time"),
        (["t", "--in=-5s"], "--in: is negative"),
        (["t", "--in", "99999999999d"], "--in: is too long"),
        (["t", "--at", "tomorrow"], "--at: must be an ISO 8601 time"),
        (["t", "--at", "2030-01-01T00:00:00"], "--at: has no offset from UTC"),
        (["t", "--in", "1", "--header", "a"], "--header: must be NAME=VALUE"),
        (["t", "--in", "1", "-H", "a=1", "-H", "a=2"], "--header: 'a' is given twice"),
        (["t", "--in", "1", "--payload", "x", "--payload-file", "y"], "can't both be given"),
        (["t", "--in", "1", "--payload-file", "/none"], "--payload-file: /none can't be read"),
        (["a{b", "--in", "1"], "topic"),
        (["t", "--in", "1", "--id", ""], "timer_id"),
    ],
)
def test_bad_input_names_the_field_and_exits_with_2(run: Run, arguments: list[str], words: str) -> None:
    result = run("schedule", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("code", "field", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "payload", 2),
        (grpc.StatusCode.NOT_FOUND, "", 3),
        (grpc.StatusCode.UNAVAILABLE, "", 4),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", 4),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", 1),
        (grpc.StatusCode.INTERNAL, "", 1),
    ],
)
def test_what_the_relay_refuses(
    run: Run, double: Double, code: grpc.StatusCode, field: str, exit_code: int
) -> None:
    double.refusal = code, "payload: the reason", field
    silent = code is grpc.StatusCode.DEADLINE_EXCEEDED  # it is tried for as long as the caller waits
    result = run("schedule", "t", "--in", "1", "--timeout", "0.5" if silent else "60")
    assert result.exit_code == exit_code
    assert result.stderr.startswith("relay: ")
    if not silent:
        assert "payload: the reason" in result.stderr


@pytest.mark.parametrize("arguments", [("get", "t", "x"), ("list", "t"), ("schedule", "t", "--in", "1")])
def test_without_a_relay_the_code_is_4(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--target", "127.0.0.1:1", "--timeout", "0.3")
    assert result.exit_code == 4
    assert "127.0.0.1:1" in result.stderr


def test_cancel(run: Run) -> None:
    run("schedule", "t", "--id", "x", "--in", "1")
    assert run("cancel", "t", "x").stdout == "cancelled t/x\n"
    result = run("cancel", "t", "x", "--json")
    assert result.exit_code == 3
    told = {"topic": "t", "timer_id": "x", "cancelled": False, "delivery_under_way": False}
    told |= {"durability": "stored"}
    assert json.loads(result.stdout) == told
    assert result.stderr == "relay: there is no timer t/x\n"


def test_durability(run: Run, double: Double) -> None:
    """People see it where it is more than usual, and programs always do. A relay that is too old to know it
    is not taken for one that waited."""
    told = run("schedule", "t", "--id", "x", "--in", "1", "--durability", "fsync+replicas:1")
    assert told.stdout == "scheduled t/x for 2030-01-01T00:00:01.000000Z (fsync+replicas:1)\n"
    told = run("schedule", "t", "--id", "x", "--in", "1", "--durability", "fsync", "--json")
    assert json.loads(told.stdout)["durability"] == "fsync"
    assert run("cancel", "t", "x", "--durability", "replicas:2").stdout == "cancelled t/x (replicas:2)\n"
    double.knows_durability = False
    old = run("schedule", "t", "--in", "1", "--durability", "fsync")
    assert old.exit_code == 1
    assert "durability: the relay does not know it, and the change is stored: update the relay" in old.stderr


def test_get_for_people(run: Run) -> None:
    run("schedule", "t", "--id", "x", "--in", "1", "--payload", "a\x1b[31mb", "-H", "trace=1")
    assert run("get", "t", "x").stdout.splitlines() == [
        "topic            t",
        "timer id         x",
        "state            pending",
        "due time         2030-01-01T00:00:01.000000Z",
        "next claim time  2030-01-01T00:00:01.000000Z",
        "attempts         0",
        "content type",
        "header trace     1",
        "payload          a\\x1b[31mb",
    ]


@pytest.mark.parametrize(
    ("payload", "shown", "encoding"),
    [("grüße".encode(), "grüße", "utf-8"), (b"\xff\x00", "/wA=", "base64"), (b"", "", "utf-8")],
)
def test_get_as_json(run: Run, double: Double, payload: bytes, shown: str, encoding: str) -> None:
    run("schedule", "t", "--id", "x", "--in", "1", "-H", "k=v", "--payload-file", "-", stdin=payload)
    found = json.loads(run("get", "t", "x", "--json").stdout)
    assert (found["payload"], found["payload_encoding"]) == (shown, encoding)
    assert found["headers"] == {"k": "v"}
    assert set(found) == {
        *("topic", "timer_id", "state", "due_time", "next_claim_time", "attempts"),
        *("payload", "payload_encoding", "headers", "content_type"),
    }


def test_get_what_is_not_there(run: Run) -> None:
    result = run("get", "t", "x", "--json")
    assert (result.exit_code, result.stdout) == (3, "")


def test_list_as_json_lines(run: Run, double: Double) -> None:
    for number in range(5):
        run("schedule", "t", "--id", f"x{number}", "--in", str(number))
    double.timers["t", "x3"].state = timer_pb2.TIMER_STATE_LEASED
    found = [json.loads(line) for line in run("list", "t", "--json").stdout.splitlines()]
    assert [timer["timer_id"] for timer in found] == ["x0", "x1", "x2", "x3", "x4"]
    assert set(found[0]) == {"topic", "timer_id", "state", "due_time", "next_claim_time", "attempts"}
    (leased,) = run("list", "t", "--json", "--state", "leased").stdout.splitlines()
    assert json.loads(leased)["timer_id"] == "x3"


def test_list_for_people_never_cuts_a_name(run: Run) -> None:
    long = "n" * 256
    for name in (long, "[red]markup", "y"):
        run("schedule", "t", "--id", name, "--in", "1")
    result = run("list", "t", "--limit", "2")
    assert long in result.stdout
    assert "[red]markup" in result.stdout
    assert " y " not in result.stdout
    assert "there are more: these are the first 2" in result.stderr
    assert "there are more" not in run("list", "t", "--limit", "3").stderr


def test_list_of_nothing(run: Run, double: Double) -> None:
    double.topics.dead["t"] = {}
    result = run("list", "t")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no timers in t\n")
    assert run("list", "t", "--json").stdout == ""


def test_list_of_an_unknown_state(run: Run) -> None:
    assert run("list", "t", "--state", "dead").exit_code == 2


def test_create_only_leaves_what_lives(run: Run, double: Double) -> None:
    """Exit 0 and the due time that stands: repeating the command changes nothing."""
    run("schedule", "t", "--id", "x", "--in", "5s")
    result = run("schedule", "t", "--id", "x", "--in", "9s", "--create-only")
    assert (result.exit_code, result.stdout) == (
        0,
        "left t/x as it is: it exists, due 2030-01-01T00:00:05.000000Z\n",
    )
    told = json.loads(run("schedule", "t", "--id", "x", "--in", "9s", "--create-only", "--json").stdout)
    assert (told["result"], told["replaced"]) == ("unchanged", False)
    assert run("schedule", "t", "--id", "y", "--in", "9s", "--create-only").stdout.startswith("scheduled t/y")


def test_expire_after_is_sent(run: Run, double: Double) -> None:
    assert run("schedule", "t", "--in", "5s", "--expire-after", "1h30m").exit_code == 0
    assert double.specs[-1].expire_after.seconds == 5400
    result = run("schedule", "t", "--in", "5s", "--expire-after", "soon")
    assert result.exit_code == 2
    assert "--expire-after: must be a length of time" in result.stderr


@pytest.mark.parametrize(
    ("word", "mode", "on_conflict"),
    [("replace", 1, 0), ("keep-earliest", 0, 2), ("keep-latest", 0, 3), ("keep-existing", 2, 0)],
)
def test_which_timer_stands_is_sent(run: Run, double: Double, word: str, mode: int, on_conflict: int) -> None:
    """What relays of before know by another name, by that name."""
    assert run("schedule", "t", "--id", "x", "--in", "5s", "--on-conflict", word).exit_code == 0
    (asked,) = double.asked
    assert (asked.mode, asked.on_conflict) == (mode, on_conflict)


def test_debounce_and_spread_are_sent(run: Run, double: Double) -> None:
    """As lengths of any form; the relay checks the rest."""
    assert run("schedule", "t", "--id", "x", "--debounce", "30s", "--at-most", "5m").exit_code == 0
    assert run("schedule", "t", "--in", "1", "--spread", "10m").exit_code == 0
    debounced, spread = double.specs
    assert (debounced.debounce.seconds, debounced.at_most.seconds) == (30, 300)
    assert not debounced.HasField("delay")
    assert (spread.spread.seconds, spread.HasField("debounce")) == (600, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--debounce", "30s"), "timer_id"),
        (("--id", "x", "--debounce", "30s", "--in", "1"), "give one of --in, --at and --debounce"),
        (("--id", "x", "--debounce", "soon"), "--debounce: must be a length of time"),
        (("--id", "x", "--debounce", "30s", "--at-most", "20s"), "at_most"),
        (("--id", "x", "--in", "30s", "--at-most", "40s"), "at_most"),
        (("--id", "x", "--debounce", "30s", "--on-conflict", "keep-latest"), "debounce"),
        (("--id", "x", "--debounce", "30s", "--spread", "1s"), "debounce"),
        (("--id", "x", "--in", "1", "--on-conflict", "newest"), "keep-earliest"),
        (("--id", "x", "--in", "1", "--on-conflict", "replace", "--create-only"), "on_conflict"),
    ],
)
def test_what_does_not_go_together(run: Run, double: Double, arguments: tuple[str, ...], said: str) -> None:
    result = run("schedule", "t", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert double.specs == []


def test_run_on_a_paused_topic_says_so(run: Run, double: Double) -> None:
    """The timer is due, and the pause holds it: exit 0, a line on standard error, a field in JSON."""
    run("schedule", "t", "--id", "x", "--in", "1h")
    assert json.loads(run("run", "t", "x", "--json").stdout)["paused"] is False
    run("pause", "t", "--for", "1h")
    result = run("run", "t", "x")
    assert (result.exit_code, result.stdout) == (0, "t/x is due now\n")
    until = "until 2030-01-01T01:00:00.000000Z"
    assert result.stderr == f"relay: t is paused {until}, and delivers nothing; relay resume t ends that\n"
    assert json.loads(run("run", "t", "x", "--json").stdout) == {
        "topic": "t",
        "timer_id": "x",
        "result": "run",
        "delivery_under_way": False,
        "durability": "stored",
        "paused": True,
    }


def test_run_makes_a_timer_due(run: Run, double: Double) -> None:
    run("schedule", "t", "--id", "x", "--in", "1h")
    assert run("run", "t", "x").stdout == "t/x is due now\n"
    double.timers["t", "x"].state = timer_pb2.TIMER_STATE_LEASED
    assert "is being delivered right now" in run("run", "t", "x").stdout
    assert json.loads(run("run", "t", "x", "--json").stdout)["result"] == "in_flight"
    missing = run("run", "t", "y", "--json")
    assert missing.exit_code == 3
    told = {"topic": "t", "timer_id": "y", "result": "not_found", "delivery_under_way": False}
    assert json.loads(missing.stdout) == told


UNDER_WAY = "; a delivery was under way, and its handler may still be running"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("schedule", "t", "--id", "x", "--in", "9s"), "rescheduled t/x for 2030-01-01T00:00:09.000000Z"),
        (
            ("schedule", "t", "--id", "x", "--in", "9s", "--create-only"),
            "left t/x as it is: it exists, due 2030-01-01T00:00:05.000000Z",
        ),
        (("cancel", "t", "x"), "cancelled t/x"),
    ],
)
def test_a_delivery_under_way_is_told(run: Run, double: Double, command: tuple[str, ...], text: str) -> None:
    """To people in words, in JSON by a field."""

    def is_delivered() -> None:
        run("schedule", "t", "--id", "x", "--in", "5s")
        double.timers["t", "x"].state = timer_pb2.TIMER_STATE_LEASED

    is_delivered()
    assert run(*command).stdout == f"{text}{UNDER_WAY}\n"
    is_delivered()
    assert json.loads(run(*command, "--json").stdout)["delivery_under_way"]


def test_run_tells_of_a_delivery_under_way(run: Run, double: Double) -> None:
    run("schedule", "t", "--id", "x", "--in", "5s")
    double.timers["t", "x"].state = timer_pb2.TIMER_STATE_LEASED
    assert json.loads(run("run", "t", "x", "--json").stdout)["delivery_under_way"]
