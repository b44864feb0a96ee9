"""Crontabs and Celery's beat_schedule become recurrences, and nothing is left out silently."""

from __future__ import annotations

import json

import pytest

from relay.core.errors import InvalidField
from relay.core.recurring.rule import Rule
from relay.rules import compile_rule
from relay.rules.imports import read_celerybeat, read_crontab

CRONTAB = """\
# m h dom mon dow command
MAILTO=ops@example.com
0 3 * * * /usr/local/bin/backup --full /srv
CRON_TZ=Europe/Berlin
*/15 9-17 * * 1-5   cd /app && ./sync.sh
@daily /usr/local/bin/backup --full /srv
@reboot /usr/bin/start
61 * * * * /bin/never
0 0 * * *
30 4 1 * * mail -s 100\\% boss%Dear boss,%all is well
0~59 * * * * /bin/random
"""


def test_a_crontab() -> None:
    read = read_crontab(CRONTAB, topic="jobs")
    assert read.recurrences == [
        {
            "id": "backup-srv",
            "topic": "jobs",
            "cron": "0 3 * * *",
            "payload": "/usr/local/bin/backup --full /srv",
        },
        {
            "id": "cd-app",
            "topic": "jobs",
            "cron": "*/15 9-17 * * 1-5",
            "zone": "Europe/Berlin",
            "payload": "cd /app && ./sync.sh",
        },
        {
            "id": "backup-srv-2",
            "topic": "jobs",
            "cron": "@daily",
            "zone": "Europe/Berlin",
            "payload": "/usr/local/bin/backup --full /srv",
        },
        {
            "id": "mail-100",
            "topic": "jobs",
            "cron": "30 4 1 * *",
            "zone": "Europe/Berlin",
            "payload": "mail -s 100% boss",
        },
    ]
    assert read.warnings == [
        "line 2: MAILTO is not carried over: set it where the handler runs",
        "line 7: left out: @reboot is not an instant; schedule a timer where it starts",
        'line 8: left out: rule.cron: minute 61 in "61 * * * *": 0 to 59',
        "line 9: left out: '0 0 * * *' has no command behind its 5 fields",
        "line 10: what stands behind % in the command is its input, and is not carried over",
        "line 11: left out: '0~59 * * * *' draws a time at random; write one, and give it jitter",
    ]


def test_a_crontab_of_the_system() -> None:
    read = read_crontab(
        "17 * * * * root run-parts /etc/cron.hourly\n@weekly www /bin/tidy\n5 5 * * * root", system=True
    )
    assert [(each["id"], each["cron"], each["payload"]) for each in read.recurrences] == [
        ("run-parts-cron.hourly", "17 * * * *", "run-parts /etc/cron.hourly"),
        ("tidy", "@weekly", "/bin/tidy"),
    ]
    assert read.warnings == [
        "line 1: the user 'root' is not carried over",
        "line 2: the user 'www' is not carried over",
        "line 3: left out: '5 5 * * * root' has no command behind its 6 fields",
    ]


BEAT = """
import os
from datetime import timedelta
from celery.schedules import crontab, solar
os.remove("/")                       # nothing here is run
app.conf.timezone = "Europe/London"
app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": "tasks.add", "schedule": 30.0, "args": (16, 16)},
    "nightly": {"task": "tasks.nightly", "schedule": crontab(hour=7, minute=30, day_of_week="monday"),
                "kwargs": {"full": True}, "options": {"queue": "slow"}},
    "often": {"task": "tasks.often", "schedule": timedelta(minutes=1, seconds=30)},
    "wrapped": {"task": "tasks.wrapped", "schedule": schedule(run_every=timedelta(hours=2))},
    "listed": {"task": "t", "schedule": crontab(minute=[30, 0], hour="*/3", day_of_month="1-7")},
    "sunset": {"task": "t", "schedule": solar("sunset", -37.8, 144.9)},
    "computed": {"task": "t", "schedule": crontab(minute=os.environ["M"])},
    "both": {"task": "t", "schedule": crontab(0, 0, day_of_week="fri", day_of_month="13")},
    "object": {"task": "t", "schedule": 60, "args": (CONFIG,)},
    NAME: {"task": "t", "schedule": 60},
    "wrong": {"task": "t", "schedule": crontab(minute=61)},
    "backwards": {"task": "t", "schedule": timedelta(seconds=-1)},
}
"""


def test_a_beat_schedule() -> None:
    read = read_celerybeat(BEAT, topic="jobs")
    rules = {each["id"]: (each.get("cron"), each.get("every"), each.get("zone")) for each in read.recurrences}
    assert rules == {
        "add-every-30-seconds": (None, "30s", None),
        "nightly": ("30 7 * * MON", None, "Europe/London"),
        "often": (None, "90s", None),
        "wrapped": (None, "7200s", None),
        "listed": ("0,30 */3 1-7 * *", None, "Europe/London"),
        "object": (None, "60s", None),
    }
    assert json.loads(read.recurrences[0]["payload"]) == {"task": "tasks.add", "args": [16, 16]}
    assert json.loads(read.recurrences[1]["payload"]) == {"task": "tasks.nightly", "kwargs": {"full": True}}
    plain = "its schedule is not a number, timedelta(…) or crontab(…) of plain values"
    both = (
        "it asks for day_of_month and day_of_week at once, and cron for either: write an RRULE with "
        "BYMONTHDAY and BYDAY"
    )
    assert read.warnings == [
        "'nightly': options are not carried over: see retry and expiry of topics and timers",
        "'sunset': left out: solar events have no rule",
        f"'computed': left out: {plain}",
        f"'both': left out: {both}",
        "'object': args is not a plain value, and is not carried over",
        "line 18: left out: not a name with a dict that stands in the file",
        "'wrong': left out: rule.cron: minute 61 in \"61 * * * *\": 0 to 59",
        "'backwards': left out: -1 is not a length of time",
    ]


def test_a_beat_schedule_as_json() -> None:
    text = '{"a": {"task": "t", "schedule": {"minute": 5, "hour": "3"}}, "b": {"schedule": 2.5}, "c": 1}'
    read = read_celerybeat(text, zone="Asia/Tokyo")
    assert read.recurrences == [
        {"id": "a", "topic": "", "cron": "5 3 * * *", "zone": "Asia/Tokyo", "payload": '{"task": "t"}'},
        {"id": "b", "topic": "", "every": "2.5s", "payload": "{}"},
    ]
    assert len(read.warnings) == 1


@pytest.mark.parametrize("text", ["x = 1", "beat_schedule = make()", "def f(:", "", "[1]"])
def test_a_file_without_a_schedule(text: str) -> None:
    with pytest.raises(
        InvalidField, match=r"^file: (has no beat_schedule that is a dict|is neither JSON nor Python)"
    ):
        read_celerybeat(text)


def test_what_is_imported_can_be_compiled() -> None:
    for each in [*read_crontab(CRONTAB).recurrences, *read_celerybeat(BEAT).recurrences]:
        text = each.get("cron") or f"@every {each['every']}"
        compile_rule(Rule(cron=text, zone=each.get("zone", "")))
