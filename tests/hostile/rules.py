"""Rules of recurrences, and the schedules of others that become them."""

from __future__ import annotations

from itertools import islice
from typing import Any

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.recurring.rule import Rule
from relay.rules import check_pace, compile_rule
from relay.rules.imports import Imported, read_celerybeat, read_crontab

NOW = 1_780_000_000 * SECOND


def _compiled(**fields: Any) -> None:
    """The instants of a rule that is taken ascend, and the first ones come soon."""
    rule = Rule(**fields)
    instants = compile_rule(rule)
    found = [each.instant for each in islice(instants.after(NOW), 5)]
    assert found == sorted(found)
    assert all(NOW < each <= LATEST for each in found)
    check_pace(rule, instants, NOW, SECOND)


def _cron(data: bytes) -> None:
    _compiled(cron=data.decode(errors="replace"))


def _cron_of_a_zone(data: bytes) -> None:
    zone, _, cron = data.decode(errors="replace").partition("|")
    _compiled(cron=cron, zone=zone)


def _rrule(data: bytes) -> None:
    _compiled(rrule=data.decode(errors="replace"))


def _rrule_of_a_zone(data: bytes) -> None:
    _compiled(rrule=data.decode(errors="replace"), zone="Europe/Berlin", anchor=NOW)


def _left_out(data: bytes) -> None:
    _compiled(cron="0 3 * * *", leave_out=tuple(data.decode(errors="replace").split(",")))


def _fit(read: Imported) -> None:
    for each in read.recurrences:
        each["id"].encode()
    assert all("Traceback" not in warning for warning in read.warnings)


def _crontab(data: bytes) -> None:
    text = data.decode(errors="replace")
    _fit(read_crontab(text))
    _fit(read_crontab(text, system=True))


def _celerybeat(data: bytes) -> None:
    _fit(read_celerybeat(data.decode(errors="replace")))


_CRONS = (
    b"0 3 * * *",
    b"*/5 9-17 1,15 JAN-MAR MON-FRI",
    b"30 0 3 LW * *",
    b"0 0 15W * 1#2",
    b"0 0 * * FRIL",
    b"@daily",
    b"@every 1h30m",
    b"@every 1.5 hours",
)
_CRON_WORDS = (
    b"*",
    b"/",
    b"-",
    b",",
    b"L",
    b"W",
    b"#5",
    b"SUN",
    b"@every ",
    b"60",
    b"1s" * 400,
    b"0,1," * 200,
)
_RRULES = (
    b"FREQ=DAILY;BYHOUR=3;BYMINUTE=0",
    b"FREQ=MONTHLY;BYDAY=-1FR;BYSETPOS=1",
    b"DTSTART:20300101T000000\nRRULE:FREQ=HOURLY;INTERVAL=6;COUNT=10",
    b"DTSTART;TZID=Europe/Berlin:20260105T080000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE\nEXDATE:20260107T080000",
    b"DTSTART:20260105T080000Z\nRRULE:FREQ=YEARLY;BYWEEKNO=20;UNTIL=20301231T000000Z",
)
_RRULE_WORDS = (
    *(
        b"FREQ=YEARLY",
        b"FREQ=SECONDLY",
        b"FREQ=MINUTELY",
        b";BYMONTHDAY=31",
        b";BYMONTH=2",
        b";BYYEARDAY=366",
    ),
    *(
        b";INTERVAL=1000000",
        b";COUNT=100000",
        b";BYSECOND=59",
        b";BYSETPOS=-1",
        b";UNTIL=99991231",
        b"\n ",
        b"\n",
    ),
    *(
        b"DTSTART:",
        b"DTSTART:99991231T235959Z",
        b"EXDATE;TZID=",
        b"RRULE:",
        b"0001",
        b";BYDAY=53MO",
        b";WKST=SU",
    ),
)
_BEAT = (
    b"app.conf.beat_schedule = {'a': {'task': 'x', 'schedule': crontab(minute=0, hour='*/3'), 'args': (1,)}}",
    b"{'b': {'task': 'x', 'schedule': timedelta(seconds=30)}, 'c': {'task': 'y', 'schedule': 30.0}}",
    b'{"d": {"task": "z", "schedule": {"minute": 0, "hour": 3}, "kwargs": {"a": null}}}',
    b"{'\\ud800': {'task': 'x', 'schedule': 5}}",
    b"timezone = 'Europe/Berlin'\nbeat_schedule = {'e': {'task': 'x', 'schedule': schedule(run_every=5)}}",
)
_BEAT_WORDS = (
    *(
        b"(" * 500,
        b"-" * 3_000,
        b"[" * 5_000,
        b"1e400",
        b"9**9**9",
        b"None",
        b"True",
        b"'\\ud800'",
        b"\\udc80",
    ),
    *(b"timedelta(days=10**9)", b"crontab(", b"solar('sunset', 1, 2)", b"{**a}", b"NaN", b"*[1]", b"**{}"),
)

TARGETS: dict[str, tuple[Any, ...]] = {
    "cron": (_cron, _CRONS, (InvalidField,), _CRON_WORDS, 1_500, 5.0),
    "cron_of_a_zone": (
        _cron_of_a_zone,
        (b"Europe/Berlin|30 2 * * *", b"America/New_York|*/7 * * * *", b"UTC|@hourly"),
        (InvalidField,),
        (b"|", b"/", b"../", b"Asia/", b"Etc/GMT+5", *_CRON_WORDS),
        300,
        5.0,
    ),
    "rrule": (_rrule, (*_RRULES[:3], *_RRULES[4:]), (InvalidField,), _RRULE_WORDS, 400, 3.0),
    "rrule_of_a_zone": (_rrule_of_a_zone, _RRULES[:4], (InvalidField,), _RRULE_WORDS, 200, 3.0),
    "left_out": (_left_out, (b"2026-12-24,2026-12-25",), (InvalidField,), (b",", b"0000-00-00"), 500),
    "crontab": (
        _crontab,
        (
            b"CRON_TZ=Europe/Berlin\n0 3 * * * /usr/bin/backup --all % x\n@reboot x\n",
            b"*/5 * * * * root run-parts\n",
        ),
        (),
        (b"\n", b"%", b"\\%", b"CRON_TZ=", b"~", b"#"),
        500,
    ),
    "celerybeat": (_celerybeat, _BEAT, (InvalidField,), _BEAT_WORDS, 1_000, 5.0),
}
