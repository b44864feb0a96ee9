"""Files of recurrences: `relay recur apply`, and `relay recur import`, against a real relay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from relay.client import SyncRelayClient
from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import PATIENCE

FILE = """\
- topic: files
  recurrence_id: nightly
  rule: {cron: 0 3 * * *, zone: Europe/Berlin, leave_out: [2026-12-24], start_time: 2026-01-01T00:00:00Z}
  message: {report: all}
- topic: files
  recurrence_id: often
  rule: {every_sec: 90}
  overlap: allow
  jitter_sec: 5
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay({"RELAY_DEFAULTS__MAX_PAYLOAD_BYTES": "1000"}) as relay:
        yield relay


@pytest.fixture
def client(daemon: Relay) -> Iterator[SyncRelayClient]:
    with SyncRelayClient(daemon.target, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "recurrences.yaml"
    file.write_text(FILE, encoding="utf-8")
    return file


def apply(relay: Relay, file: Path, *options: str) -> Ran:
    return command("recur", "apply", "-f", str(file), *options, "--target", relay.target)


def ids(client: SyncRelayClient, topic: str = "files") -> dict[str, int]:
    return {each.recurrence_id: each.version for each in client.recurrences.list(topic)}


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
def test_redis_becomes_as_the_file_says(daemon: Relay, client: SyncRelayClient, file: Path) -> None:
    """The difference is printed first; what is like this already is left alone, and so is what the file does
    not name, unless it is pruned."""
    client.recur("by hand", topic="files", cron="@daily")
    shown = apply(daemon, file, "--dry-run", "--prune")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines() == [
        "+ files/nightly",
        "    rule.cron: 0 3 * * *",
        "    rule.zone: Europe/Berlin",
        "    rule.start_time: 2026-01-01T00:00:00.000000Z",
        '    rule.leave_out: ["2026-12-24"]',
        '    message: {"report": "all"}',
        "    content_type: application/json",
        "+ files/often",
        "    rule.every: 90s",
        "    overlap: allow",
        "    jitter: 5s",
        "- files/by hand",
    ]
    assert shown.err == "nothing is changed with --dry-run: 2 created, 1 deleted\n"
    assert ids(client) == {"by hand": 1}
    assert apply(daemon, file).err == "2 created\n"
    assert ids(client) == {"by hand": 1, "nightly": 1, "often": 1}
    found = client.recurrences.get("files", "nightly")
    assert found is not None
    assert (json.loads(found.payload), found.leave_out) == ({"report": "all"}, ("2026-12-24",))
    again = apply(daemon, file)
    assert (again.out, again.err) == ("", "2 unchanged\n")

    client.recurrences.pause("files", "often", "why")
    file.write_text(FILE.replace("90", "60").replace("  jitter_sec: 5\n", ""), encoding="utf-8")
    changed = apply(daemon, file, "--json")
    assert changed.documents == [
        {
            "change": "replace",
            "topic": "files",
            "recurrence_id": "often",
            "fields": {"rule.every": ["90s", "60s"], "jitter": ["5s", None]},
        }
    ]
    assert ids(client) == {"by hand": 1, "nightly": 1, "often": 3}
    assert [each.recurrence_id for each in client.recurrences.list("files", paused=True)] == ["often"]

    file.write_text("[]\n", encoding="utf-8")
    assert apply(daemon, file).err == "the file names no recurrences\n"
    assert apply(daemon, file, "--prune", "--topic", "files").err == "3 deleted\n"
    assert ids(client) == {}


@pytest.mark.slow
def test_what_a_caller_may_not_see_is_compared_by_the_relay(tmp_path: Path, file: Path) -> None:
    """Without the verb payload nothing is said to be replaced that is as the file says; and what differs is
    put."""
    policy = tmp_path / "policy.yaml"
    rule = "rules: [{principals: [anonymous], topics: ['*'], verbs: [schedule, read%s]}]\n"
    policy.write_text(rule % "")
    with one_relay({"RELAY_POLICY_FILE": str(policy)}) as relay:
        assert apply(relay, file).err == "2 created\n"
        asked = apply(relay, file, "--dry-run")
        said = "its content is withheld, so the relay compares it"
        assert asked.out.splitlines() == [f"? files/nightly: {said}", f"? files/often: {said}"]
        assert asked.err == "nothing is changed with --dry-run: 2 compared\n"
        assert apply(relay, file).err == "2 unchanged\n"
        with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
            assert ids(client) == {"nightly": 1, "often": 1}
            file.write_text(FILE.replace("report: all", "report: none"), encoding="utf-8")
            assert apply(relay, file).err == "1 replaced, 1 unchanged\n"
            assert ids(client) == {"nightly": 2, "often": 1}
            file.write_text(FILE.replace("jitter_sec: 5", "jitter_sec: 6"), encoding="utf-8")
            changed = apply(relay, file)
            assert changed.out.splitlines()[1:] == ["~ files/often", "    jitter: 5s -> 6s"]
            assert changed.err == "2 replaced\n"


@pytest.mark.usefixtures("one_try")
def test_calendars_of_a_file(daemon: Relay, client: SyncRelayClient, file: Path) -> None:
    """They are put first; what differs is printed; none is deleted, since others may name it."""
    rule = "- {topic: closed, recurrence_id: r, rule: {cron: '@daily', calendars: [c]}}\n"
    file.write_text(rule + "- {calendar: c, dates: [2026-12-25, 2026-12-24]}\n", encoding="utf-8")
    shown = apply(daemon, file)
    assert (shown.code, shown.err) == (0, "2 created\n")
    assert shown.out.splitlines() == [
        *("+ calendar c", "    + 2026-12-24", "    + 2026-12-25"),
        *("+ closed/r", "    rule.cron: @daily", '    rule.calendars: ["c"]'),
    ]
    assert apply(daemon, file).err == "2 unchanged\n"
    file.write_text(rule + "- {calendar: c, dates: [2026-12-25, 2026-12-26]}\n", encoding="utf-8")
    shown = apply(daemon, file, "--dry-run")
    assert shown.out.splitlines() == ["~ calendar c", "    - 2026-12-24", "    + 2026-12-26"]
    assert apply(daemon, file, "--json").documents == [
        {
            "change": "replace",
            "calendar": "c",
            "fields": {"dates": [["2026-12-24", "2026-12-25"], ["2026-12-25", "2026-12-26"]]},
        }
    ]
    file.write_text("[]", encoding="utf-8")
    assert apply(daemon, file, "--prune", "--topic", "closed").err == "1 deleted\n"
    assert client.calendars.get("c") is not None
    assert client.calendars.delete("c")


WRONG: list[tuple[str, str]] = [
    ("- {calendar: c}", "entry 1 (c): dates: is missing; give a list, [] for none"),
    ("- {calendar: c, dates: null}", "entry 1 (c): dates: is missing"),
    (
        "- {calendar: c, dates: []}\n- {calendar: c, dates: []}",
        "entry 2 (c): calendar: is that of entry 1, too; give each its own",
    ),
    (
        "- {calendar: c d, dates: []}",
        "entry 1 (c d): calendar: 'c d' is not the name of a calendar: 1 to 100 letters",
    ),
    ("- {calendar: 5, dates: []}", "entry 1: calendar: must be text"),
    ("- {calendar: c, topic: t}", "entry 1 (c): topic: is not known here"),
    ("- {calendar: c, name: d}", "entry 1 (c): name: is not known here"),
    ("- {calendar: c, dates: [24.12.2026]}", "entry 1 (c): dates[0]: '24.12.2026' is not a date such as"),
    ("topic: a", "must be a list of recurrences"),
    ("- [", "line 2, column 1: is not valid YAML"),
    ("- 5", "entry 1: body: must be an object: {…}"),
    ("- topic: a\n  topic: b", "line 2: the key 'topic' comes twice"),
    (
        "- {topic: a, recurrence_id: b, rule: {cron: '@daily'}, colour: red}",
        "entry 1 (a/b): colour: is not known here",
    ),
    ("- {topic: a, recurrence_id: b}", "entry 1 (a/b): rule: has neither cron nor rrule nor every"),
    (
        "- {topic: a, recurrence_id: b, rule: {cron: 61 * * * *}}",
        'entry 1 (a/b): rule.cron: minute 61 in "61 * * * *": 0 to 59',
    ),
    (
        "- {topic: a, recurrence_id: b, rule: {every_sec: -1}}",
        "entry 1 (a/b): rule.every_sec: is negative",
    ),
    (
        "- {topic: a, recurrence_id: b, rule: {every_sec: 0}}",
        "entry 1 (a/b): rule.every_sec: is 0; give a length of time",
    ),
    (
        "- {topic: a, recurrence_id: b, rule: {every: 10 minutes}}",
        'entry 1 (a/b): rule.every: must be a duration such as "1.5s"; or give every_sec, a number',
    ),
    (
        "- {topic: a, recurrence_id: b, rule: {cron: '@daily'}, jitter_sec: 90000}",
        "entry 1 (a/b): jitter_sec: is longer than a day",
    ),
    (
        "- {topic: a, recurrence_id: b, rule: {cron: '@daily'}, overlap: never}",
        "entry 1 (a/b): overlap: 'never' is not known here; give skip or buffer or allow or cancel",
    ),
    ("- {recurrence_id: b, rule: {cron: '@daily'}}", "entry 1 (b): topic: is empty"),
    (
        "- &one {topic: a, recurrence_id: b, rule: {cron: '@daily'}}\n- *one",
        "entry 2 (a/b): recurrence_id: is that of entry 1, too; give each its own",
    ),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_what_is_wrong_in_a_file(
    daemon: Relay, client: SyncRelayClient, file: Path, text: str, problem: str
) -> None:
    """The message names the file, the entry and the field; nothing of the file is put."""
    file.write_text(f"{text}\n", encoding="utf-8")
    done = apply(daemon, file)
    assert done.code == 2
    assert done.err.startswith(f"relay: {file}")
    assert problem in done.err
    assert not ids(client, "a")


def test_all_that_is_wrong_is_told_at_once(daemon: Relay, client: SyncRelayClient, file: Path) -> None:
    wrong = FILE.replace("0 3 * * *", "0 25 * * *").replace("allow", "maybe")
    file.write_text(wrong, encoding="utf-8")
    lines = apply(daemon, file).err.splitlines()
    assert [line.partition(": entry ")[2][:29] for line in lines] == [
        "1 (files/nightly): rule.cron:",
        "2 (files/often): overlap: 'ma",
    ]
    assert not ids(client)


def test_what_only_the_relay_knows_to_be_wrong(daemon: Relay, file: Path) -> None:
    """It is told with the entry, too."""
    big = {"topic": "a", "recurrence_id": "b", "rule": {"cron": "@daily"}, "message": "x" * 1_001}
    often = {"topic": "a", "recurrence_id": "b", "rule": {"every": "0.5s"}}
    for entry, problem in ((big, "payload: is 1001 bytes long"), (often, "rule.every: fires at ")):
        file.write_text(yaml.safe_dump([entry]), encoding="utf-8")
        done = apply(daemon, file)
        assert (done.code, done.err.startswith(f"relay: {file}: entry 1 (a/b): {problem}")) == (2, True), (
            done.err
        )


def test_a_file_that_is_not_there(daemon: Relay, tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    done = apply(daemon, absent)
    assert (done.code, done.err) == (2, f"relay: {absent}: can't be read: No such file or directory\n")


# ----------------------------------------------------------------------------- import

CRONTAB = """\
MAILTO=ops@example.org
CRON_TZ=Europe/Berlin
0 3 * * * /usr/local/bin/report --all
@reboot /usr/local/bin/start
"""

BEAT = """\
from celery.schedules import crontab
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "add": {"task": "tasks.add", "schedule": 30.0, "args": (16, 16)},
    "mondays": {"task": "tasks.report", "schedule": crontab(hour=7, minute=30, day_of_week=1)},
}
"""


def test_a_crontab_becomes_a_file(daemon: Relay, client: SyncRelayClient, tmp_path: Path) -> None:
    """What is printed can be applied; what is not carried over goes to standard error."""
    crontab = tmp_path / "crontab"
    crontab.write_text(CRONTAB, encoding="utf-8")
    done = command("recur", "import", "crontab", str(crontab), "--topic", "commands")
    assert done.code == 0, done.err
    assert [line.partition(f"{crontab}: ")[2][:7] for line in done.err.splitlines()] == ["line 1:", "line 4:"]
    (entry,) = yaml.safe_load(done.out)
    assert entry == {
        "topic": "commands",
        "recurrence_id": "report",
        "rule": {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
        "message": "/usr/local/bin/report --all",
    }
    file = tmp_path / "recurrences.yaml"
    file.write_text(done.out, encoding="utf-8")
    assert apply(daemon, file).err == "1 created\n"
    found = client.recurrences.get("commands", "report")
    assert found is not None
    assert found.payload == b"/usr/local/bin/report --all"


def test_a_beat_schedule_becomes_a_file(daemon: Relay, tmp_path: Path) -> None:
    beat = tmp_path / "celeryconfig.py"
    beat.write_text(BEAT, encoding="utf-8")
    done = command("recur", "import", "celerybeat", str(beat), "--topic", "tasks")
    assert (done.code, done.err) == (0, "")
    entries: list[Any] = yaml.safe_load(done.out)
    assert entries == [
        {
            "topic": "tasks",
            "recurrence_id": "add",
            "rule": {"every": "30s"},
            "message": {"task": "tasks.add", "args": [16, 16]},
        },
        {
            "topic": "tasks",
            "recurrence_id": "mondays",
            "rule": {"cron": "30 7 * * 1", "zone": "Europe/Berlin"},
            "message": {"task": "tasks.report"},
        },
    ]
    file = tmp_path / "recurrences.yaml"
    file.write_text(done.out, encoding="utf-8")
    assert apply(daemon, file).err == "2 created\n"


def test_what_is_no_schedule(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("x = 1\n", encoding="utf-8")
    done = command("recur", "import", "celerybeat", str(wrong))
    assert (done.code, done.err) == (2, f"relay: {wrong}: has no beat_schedule that is a dict\n")
    assert command("recur", "import", "celerybeat", str(wrong), "--system").code == 2
