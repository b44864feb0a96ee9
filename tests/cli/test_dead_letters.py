"""dead list, get, redrive, purge: what they send, what they print, and their exit codes."""

from __future__ import annotations

import itertools
import json

import pytest

from relay.cli.topics.dead_letters import shown
from tests.cli.conftest import Run
from tests.cli.double import Double


def many(double: Double, count: int, topic: str = "t") -> list[str]:
    """So many dead letters, every third one rejected."""
    return [
        double.topics.die(topic, f"x{number}", reason="attempts" if number % 3 else "rejected")
        for number in range(count)
    ]


def test_list_as_a_table(run: Run, double: Double) -> None:
    dead_id = double.topics.die("t", "[red]x", last_error="e" * 100 + "\x1b[31m")
    result = run("dead", "list", "t")
    assert result.exit_code == 0
    (row,) = (line for line in result.stdout.splitlines() if dead_id in line)
    assert row.split() == [dead_id, "[red]x", "attempts", "25", "2030-01-01T00:00:00.000000Z", "e" * 59 + "…"]
    double.topics.dead["none"] = {}
    assert run("dead", "list", "none").stderr == "no dead letters in none\n"
    assert run("dead", "list", "t", "--reason", "age").stderr == "no dead letters in t that match\n"


def test_list_as_json_with_filters(run: Run, double: Double) -> None:
    ids = many(double, 6)

    def listed(*options: str) -> list[str]:
        result = run("dead", "list", "t", "--json", *options)
        return [json.loads(line)["dead_id"] for line in result.stdout.splitlines()]

    assert listed() == ids
    assert listed("--reason", "rejected") == [ids[0], ids[3]]
    assert listed("--timer-id", "x4") == [ids[4]]
    assert listed("--since", "2030-01-01T00:00:04Z") == ids[4:]
    assert listed("--before", "2030-01-01T00:00:02Z") == ids[:2]
    assert listed("--since", "1h") == ids  # the double's time lies after today
    (one,) = run("dead", "list", "t", "--json", "--timer-id", "x1").stdout.splitlines()
    assert set(json.loads(one)) == {
        *("topic", "dead_id", "timer_id", "reason", "attempts", "last_error"),
        *("due_time", "death_time", "occurrence_id"),
    }


def test_list_stops_at_its_limit(run: Run, double: Double) -> None:
    many(double, 30)
    result = run("dead", "list", "t", "-n", "10", "--json")
    assert len(result.stdout.splitlines()) == 10
    assert "there are more: these are the first 10" in result.stderr
    assert [request.page_size for request in double.topics.asked("ListDeadLetters")] == [11]
    assert "there are more" not in run("dead", "list", "t", "-n", "30", "--json").stderr


def test_list_does_not_read_a_whole_topic_unasked(run: Run, double: Double) -> None:
    """What a filter does not find on the first 20 pages is looked for further only with --all."""
    many(double, 10_600)
    double.topics.die("t", "last", reason="age")
    some = run("dead", "list", "t", "--reason", "age", "--json")
    assert (some.exit_code, some.stdout) == (0, "")
    assert "stopped after 20 pages of at most 500 dead letters; --all looks through all" in some.stderr
    assert len(run("dead", "list", "t", "--reason", "age", "--json", "--all").stdout.splitlines()) == 1


def test_get(run: Run, double: Double) -> None:
    dead_id = double.topics.die("t", "x", payload=b"a\x1b[31mb", headers={"k": "v"}, content_type="text/x")
    text = run("dead", "get", "t", dead_id).stdout
    assert "payload        a\\x1b[31mb" in text
    assert "header k       v" in text
    found = json.loads(run("dead", "get", "t", dead_id, "--json").stdout)
    assert (found["payload"], found["payload_encoding"]) == ("a\x1b[31mb", "utf-8")
    assert (found["headers"], found["content_type"]) == ({"k": "v"}, "text/x")
    missing = run("dead", "get", "t", "9-9")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert missing.stderr == "relay: there is no dead letter t/9-9\n"


@pytest.mark.parametrize(
    ("payload", "most", "words"),
    [
        (b"", 9, ""),
        ("grüße".encode(), 9, "grüße"),
        ("grüße".encode(), 3, "gr … (the first 3 of 7 bytes; --json has all)"),
        (b"abc\xff", 9, "61 62 63 ff (4 bytes, not text)"),
        (b"\xff" * 9, 2, "ff ff … (the first 2 of 9 bytes; --json has all)"),
        (b"abc", 0, " … (the first 0 of 3 bytes; --json has all)"),
    ],
)
def test_payloads_are_shown_safely(payload: bytes, most: int, words: str) -> None:
    assert shown(payload, most) == words


def test_redrive_by_name(run: Run, double: Double) -> None:
    """In the order given, each once; what is gone is told and exits with 3."""
    first, second, third = many(double, 3)
    result = run("dead", "redrive", "t", second, first, second)
    assert (result.exit_code, result.stdout) == (0, "redrove 2 dead letters of t\n")
    assert list(double.topics.asked("RedriveDeadLetters")[0].dead_ids) == [second, first]
    assert list(double.topics.dead["t"]) == [third]
    again = run("dead", "redrive", "t", first)
    assert again.exit_code == 3
    assert "1 was not there (any more)" in again.stderr


@pytest.mark.parametrize(
    ("options", "left"), [(("--all",), 0), (("--reason", "rejected"), 800), (("--timer-id", "x7"), 1199)]
)
def test_redrive_many(run: Run, double: Double, options: tuple[str, ...], left: int) -> None:
    """All that match go, in calls of at most 500, the oldest first."""
    many(double, 1200)
    result = run("dead", "redrive", "t", *options)
    assert result.stdout == f"redrove {1200 - left} dead letter{'' if left == 1199 else 's'} of t\n"
    assert (result.exit_code, len(double.topics.dead["t"])) == (0, left)
    assert all(len(call.dead_ids) <= 500 for call in double.topics.asked("RedriveDeadLetters"))


@pytest.mark.parametrize("options", [("--all",), ("--reason", "attempts")])
def test_pages_may_be_shorter_than_asked(run: Run, double: Double, options: tuple[str, ...]) -> None:
    """Big payloads end a page early: what follows is not left out, nor by `dead list`."""
    many(double, 90)
    double.topics.shortest = 2
    assert len(run("dead", "list", "t", "--json").stdout.splitlines()) == 90
    assert run("dead", "redrive", "t", *options).exit_code == 0
    assert len(double.topics.dead["t"]) == (0 if options == ("--all",) else 30)


def test_redrive_takes_up_nothing_that_dies_meanwhile(
    run: Run, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that dies again at once must not make the command run for ever."""
    many(double, 700)
    redrive, numbers = double.topics._redrive, itertools.count(1_900_000_000_000)

    def dies_again(_: object, topic: str, dead_id: str) -> object:
        letter = double.topics.dead[topic][dead_id]
        result = redrive(topic, dead_id)
        double.topics.dead[topic][f"{next(numbers)}-0"] = letter
        return result

    monkeypatch.setattr(type(double.topics), "_redrive", dies_again)
    assert run("dead", "redrive", "t", "--all").stdout == "redrove 700 dead letters of t\n"
    assert sum(len(call.dead_ids) for call in double.topics.asked("RedriveDeadLetters")) == 700


def test_redrive_tells_conflicts(run: Run, double: Double) -> None:
    """They are left alone, counted, the first ten named; exit 1, and the rest is done."""
    many(double, 20)
    double.topics.alive = {f"x{number}" for number in range(12)}
    result = run("dead", "redrive", "t", "--all")
    assert (result.exit_code, result.stdout) == (1, "redrove 8 dead letters of t\n")
    told = result.stderr.splitlines()
    assert len(told) == 11
    assert "timer t/x0 exists again; cancel that first, or purge this" in told[0]
    assert told[-1] == "relay: and 2 more conflicts; --json names all"
    results = [
        json.loads(line) for line in run("dead", "redrive", "t", "--all", "--json").stdout.splitlines()
    ]
    assert len(results) == 12
    assert {line["result"] for line in results} == {"conflict"}
    assert set(results[0]) == {"topic", "dead_id", "timer_id", "result"}


def test_redrive_goes_on_where_it_was_cut_off(run: Run, double: Double) -> None:
    """Exit 4, and how far it came; the same command again does the rest."""
    many(double, 1200)
    double.topics.fail_after = 4  # a look at the topic, a page, a call, a page; the second call fails
    result = run("dead", "redrive", "t", "--all", "--timeout", "60")
    assert result.exit_code == 4
    done = "cut off: redrove 500 dead letters of t so far"
    assert f"{done}; run the same command again to go on" in result.stderr
    double.topics.fail_after = None
    assert run("dead", "redrive", "t", "--all").stdout == "redrove 700 dead letters of t\n"
    assert double.topics.dead["t"] == {}


def test_redrive_at_a_rate(run: Run, double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls have a fifth of a second's worth, and each waits for the time of those before it."""
    now = [100.0]
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(round(seconds, 6))
        now[0] += seconds

    monkeypatch.setattr("relay.cli.topics.redrive_and_purge.asyncio.sleep", sleep)
    monkeypatch.setattr("relay.cli.topics.redrive_and_purge.time.monotonic", lambda: now[0])
    many(double, 100)
    assert run("dead", "redrive", "t", "--all", "--rate", "100/s").exit_code == 0
    assert [len(call.dead_ids) for call in double.topics.asked("RedriveDeadLetters")] == [20] * 5
    assert [nap for nap in naps if nap] == [0.2] * 4


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_a_dry_run_changes_nothing(run: Run, double: Double, verb: str) -> None:
    ids = many(double, 6)
    result = run("dead", verb, "t", "--reason", "rejected", "--dry-run")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [ids[0], ids[3]]
    # Both streams in one pipe keep their order.
    assert result.output == f"{result.stdout}2 dead letters of t match; nothing was changed\n"
    as_json = run("dead", verb, "t", "--all", "--dry-run", "--json").stdout.splitlines()
    assert [json.loads(line)["dead_id"] for line in as_json] == ids
    assert len(double.topics.dead["t"]) == 6


def test_redrive_on_a_paused_topic_says_so(run: Run, double: Double) -> None:
    """The timers are due, and the pause holds them; a dry run has made none due."""
    first, second = many(double, 2)
    run("pause", "t", "--for", "1h")
    assert "is paused" not in run("dead", "redrive", "t", first, "--dry-run").stderr
    result = run("dead", "redrive", "t", first)
    assert (result.exit_code, result.stdout) == (0, "redrove 1 dead letter of t\n")
    until = "until 2030-01-01T01:00:00.000000Z"
    assert result.stderr == f"relay: t is paused {until}, and delivers nothing; relay resume t ends that\n"
    run("resume", "t")
    assert run("dead", "redrive", "t", second).stderr == ""


def test_purge(run: Run, double: Double) -> None:
    first, *_ = many(double, 1200)
    assert run("dead", "purge", "t", first, "--yes").stdout == "purged 1 dead letter of t\n"
    assert run("dead", "purge", "t", first, "--yes").exit_code == 3
    result = run("dead", "purge", "t", "--reason", "rejected", "--yes", "--json")
    assert json.loads(result.stdout) == {"topic": "t", "purged": 399, "not_found": 0}
    assert run("dead", "purge", "t", "--all", "-y").exit_code == 0
    assert double.topics.dead["t"] == {}


def test_purge_asks_first(run: Run, double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --yes and without anybody to ask, nothing is removed; nor where the answer is no."""
    many(double, 3)
    unasked = run("dead", "purge", "t", "--all")
    assert unasked.exit_code == 2
    assert "--yes: is needed" in unasked.stderr
    monkeypatch.setattr("relay.cli.terminal.confirming.can_ask", lambda: True)
    refused = run("dead", "purge", "t", "--all", stdin=b"n\n")
    assert refused.exit_code == 1
    assert "Remove all dead letters of t (it has 3 in all) for good?" in refused.stderr
    assert "nothing was removed" in refused.stderr
    assert len(double.topics.dead["t"]) == 3
    assert run("dead", "purge", "t", "--all", stdin=b"y\n").exit_code == 0
    assert double.topics.dead["t"] == {}


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say which dead letters"),
        (("1-1", "--all"), "only one of these"),
        (("1-1", "--reason", "age"), "only one of these"),
        (("--all", "--since", "1h"), "only one of these"),
        (("--reason", ""), "--reason: is empty"),
        (("--since", "yesterday"), "--since: must be an ISO 8601 time"),
        (("--before", "2030-01-01T00:00:00"), "--before: has no offset from UTC"),
        (("--all", "--rate", "fast"), "--rate: must be a rate above 0"),
        (("--all", "--rate", "0"), "--rate: must be a rate above 0"),
    ],
)
def test_bad_input(run: Run, double: Double, verb: str, options: tuple[str, ...], words: str) -> None:
    result = run("dead", verb, "t", *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert double.topics.calls == []


def test_nothing_to_redrive(run: Run, double: Double) -> None:
    double.topics.dead["t"] = {}
    result = run("dead", "redrive", "t", "--all")
    assert (result.exit_code, result.stdout) == (0, "redrove 0 dead letters of t\n")


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_what_is_no_dead_id_is_not_worth_repeating(run: Run, double: Double, verb: str) -> None:
    """Exit 2 with the relay's words, and no promise that the same command would go on."""
    names = many(double, 501)
    double.topics.malformed = "nope"
    sure = ("--yes",) if verb == "purge" else ()
    result = run("dead", verb, "t", "nope", *sure)
    assert (result.exit_code, result.stderr) == (2, "relay: dead_id: 'nope' is none\n")
    result = run("dead", verb, "t", *names[:500], "nope", *sure)
    done = "redrove" if verb == "redrive" else "purged"
    assert (result.exit_code, result.stderr.splitlines()) == (
        2,
        ["relay: dead_id: 'nope' is none", f"relay: {done} 500 dead letters of t before that"],
    )
