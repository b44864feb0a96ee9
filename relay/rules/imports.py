"""Schedules of others as recurrences: crontabs, and Celery's beat_schedule. Pure: text in, recurrences out.

A recurrence is a dict in the shape of recurrences.yaml: `id`, `topic`, `cron` or `every`, `zone`, and
`payload` where the source has one. What can't be carried over is a warning, never left out silently. Celery's
files are read as syntax trees, and nothing in them is run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relay.core.errors import InvalidField
from relay.core.recurring.rule import Rule
from relay.rules.compiling import compile_rule


@dataclass(slots=True)
class Imported:
    """What was read."""

    recurrences: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What was not carried over, with the line or the name that it stands at."""
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)
    """The last number behind each id that is taken: a thousand lines may run one command."""

    def add(self, place: str, recurrence: dict[str, Any]) -> None:
        """Take a recurrence whose rule is right, under an id of its own; otherwise warn."""
        rule = {name: recurrence[name] for name in ("cron", "zone") if name in recurrence}
        try:
            compile_rule(Rule(**rule, every=1 if "every" in recurrence else None))
        except InvalidField as error:
            self.warnings.append(f"{place}: left out: {error}")
            return
        try:
            json.dumps(recurrence, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            self.warnings.append(f"{place}: left out: it has half a character; give valid Unicode text")
            return
        wanted = recurrence["id"]
        while recurrence["id"] in self._numbers:
            self._numbers[wanted] += 1
            recurrence["id"] = f"{wanted}-{self._numbers[wanted]}"
        self._numbers[recurrence["id"]] = 1
        self.recurrences.append(recurrence)


# ----------------------------------------------------------------- crontab

# Nothing here may try a place twice: a line may be as long as who sent it likes.
_SETTING = re.compile(r"\s*(\w+)\s*=(.*)", re.DOTALL)


def read_crontab(text: str, *, topic: str = "", zone: str = "", system: bool = False) -> Imported:
    """The lines of a crontab; with `system` a user stands before each command, as in /etc/crontab.

    The command becomes the payload, and the id is made of its first words. `CRON_TZ` sets the zone of the
    lines behind it; `zone` is that of the lines before.
    """
    read = Imported()
    for number, line in enumerate(text.splitlines(), 1):
        place = f"line {number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (found := _SETTING.fullmatch(line)) and not line.lstrip().startswith(("*", "@")):
            name, value = found[1], found[2].strip().strip("\"'")
            if name == "CRON_TZ":
                zone = value
            else:
                read.warnings.append(f"{place}: {name} is not carried over: set it where the handler runs")
            continue
        _read_line(read, place, line, topic, zone, system=system)
    return read


def _read_line(read: Imported, place: str, line: str, topic: str, zone: str, *, system: bool) -> None:
    number = 1 if line.lstrip().startswith("@") else 5
    fields = line.split(None, number + system)
    if len(fields) <= number + system:
        read.warnings.append(
            f"{place}: left out: {line.strip()!r} has no command behind its {number + system} fields"
        )
        return
    cron, command = " ".join(fields[:number]), fields[-1].rstrip()
    if cron.lower() == "@reboot":
        read.warnings.append(
            f"{place}: left out: @reboot is not an instant; schedule a timer where it starts"
        )
        return
    if "~" in cron:
        read.warnings.append(
            f"{place}: left out: {cron!r} draws a time at random; write one, and give it jitter"
        )
        return
    if system:
        read.warnings.append(f"{place}: the user {fields[number]!r} is not carried over")
    if "%" in command.replace("\\%", ""):
        command, _, _ = re.sub(r"(?<!\\)%.*", "", command), "", ""
        read.warnings.append(
            f"{place}: what stands behind % in the command is its input, and is not carried over"
        )
    recurrence = {"id": _name(command), "topic": topic, "cron": cron}
    if zone:
        recurrence["zone"] = zone
    recurrence["payload"] = command.replace("\\%", "%").rstrip()
    read.add(place, recurrence)


def _name(command: str) -> str:
    """An id of a command: its program's name, and the first word behind it that is not an option."""
    words = [
        word.rsplit("/", 1)[-1] for word in command.split() if not word.startswith("-") and "=" not in word
    ]
    plain = [re.sub(r"[^\w.-]", "", word) for word in words[:2]]
    return "-".join(word for word in plain if word)[:100] or "command"


# -------------------------------------------------------------- celerybeat


def read_celerybeat(text: str, *, topic: str = "", zone: str = "") -> Imported:
    """Celery's `beat_schedule`: a Python file that assigns it, such as `app.conf.beat_schedule = {…}`, or its
    dict alone, or the same as JSON. `timezone` in the file, if it is a plain text, is the zone.

    Schedules are read where they are numbers of seconds, `timedelta(…)`, `schedule(…)` or `crontab(…)` of
    plain values. Raises `InvalidField` where there is nothing of the kind.
    """
    read = Imported()
    if isinstance(entries := _as_json(text), dict):
        for name, entry in entries.items():
            _read_entry(read, name, entry if isinstance(entry, dict) else {}, topic, zone)
        return read
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f", by its line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InvalidField("file", f"is neither JSON nor Python{where}") from None
    found = _assigned(tree, ("timezone", "CELERY_TIMEZONE"))
    if isinstance(found, ast.Constant) and isinstance(found.value, str):
        zone = found.value
    elif found is not None:
        read.warnings.append("timezone is not a plain text: give the zone yourself")
    _read_schedule(read, tree, topic, zone)
    return read


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_schedule(read: Imported, tree: ast.Module, topic: str, zone: str) -> None:
    schedule = _assigned(tree, ("beat_schedule", "CELERYBEAT_SCHEDULE", "CELERY_BEAT_SCHEDULE"))
    if schedule is None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        schedule = tree.body[0].value
    if not isinstance(schedule, ast.Dict):
        raise InvalidField("file", "has no beat_schedule that is a dict")
    for key, value in zip(schedule.keys, schedule.values, strict=True):
        name = _plain(key)
        if not isinstance(name, str) or not isinstance(value, ast.Dict):
            read.warnings.append(
                f"line {value.lineno}: left out: not a name with a dict that stands in the file"
            )
            continue
        entry = {_plain(each): of for each, of in zip(value.keys, value.values, strict=True)}
        _read_entry(read, name, entry, topic, zone)


def _assigned(tree: ast.Module, names: tuple[str, ...]) -> ast.expr | None:
    """The last value that is assigned to one of the names, or to an attribute of that name, or given as an
    argument of that name."""
    found: ast.expr | None = None
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.keyword) and node.arg in names:
            found = node.value
        for target in targets:
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            if name in names:
                found = node.value  # type: ignore[attr-defined]
    return found


def _plain(node: Any) -> Any:
    """The value of a literal; None for anything else. JSON's values are plain already."""
    if not isinstance(node, ast.expr):
        return node
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _read_entry(read: Imported, name: str, entry: dict[Any, Any], topic: str, zone: str) -> None:
    try:
        rule = _rule(entry.get("schedule"))
    except ValueError as error:
        read.warnings.append(f"{name!r}: left out: {error}")
        return
    recurrence: dict[str, Any] = {"id": name, "topic": topic, **rule}
    if zone and "cron" in rule:
        recurrence["zone"] = zone
    payload = {}
    for part in ("task", "args", "kwargs"):
        if part in entry:
            payload[part] = _plain(entry[part])
            if payload[part] is None:
                read.warnings.append(f"{name!r}: {part} is not a plain value, and is not carried over")
    recurrence["payload"] = json.dumps({part: value for part, value in payload.items() if value is not None})
    if "options" in entry:
        read.warnings.append(
            f"{name!r}: options are not carried over: see retry and expiry of topics and timers"
        )
    read.add(repr(name), recurrence)


def _rule(schedule: Any) -> dict[str, str]:
    """`cron` or `every` of a schedule. Raises `ValueError` with what can be read."""
    plain = _plain(schedule)
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return {"every": _seconds(plain)}
    if isinstance(plain, dict):  # JSON: {"crontab": {"minute": 0}} or {"minute": 0, "hour": 3}
        given = plain.get("crontab", plain)
        if isinstance(given, dict) and given.keys() <= set(_CRONTAB):
            return {"cron": _crontab(given)}
    if isinstance(schedule, ast.Call):
        called = schedule.func
        kind = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        arguments = [_plain(each) for each in schedule.args]
        named = {each.arg: _plain(each.value) for each in schedule.keywords if each.arg != "app"}
        if kind == "schedule" and (
            inner := [*schedule.args, *(k.value for k in schedule.keywords if k.arg == "run_every")]
        ):
            return _rule(inner[0])
        if kind in _READERS and None not in named and None not in (*arguments, *named.values()):
            return _READERS[kind](arguments, named)
        if kind == "solar":
            raise ValueError("solar events have no rule")
    raise ValueError("its schedule is not a number, timedelta(…) or crontab(…) of plain values")


_CRONTAB = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_DURATION = ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")
_LENGTHS = {
    "weeks": 604_800,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
    "milliseconds": 0.001,
    "microseconds": 0.000_001,
}


def _given(names: tuple[str, ...], arguments: list[Any], named: dict[Any, Any]) -> dict[str, Any]:
    given = dict(zip(names, arguments, strict=False)) | named
    if unknown := given.keys() - set(names):
        raise ValueError(f"{min(unknown)} is not known")
    return given


def _crontab_call(arguments: list[Any], named: dict[Any, Any]) -> dict[str, str]:
    return {"cron": _crontab(_given(_CRONTAB, arguments, named))}


def _crontab(given: dict[str, Any]) -> str:
    """The fields in cron's order. Celery names a weekday in full, and lists numbers."""
    fields = [
        _celery_field(given.get(name, "*")) for name in ("minute", "hour", "day_of_month", "month_of_year")
    ]
    weekday = _celery_field(given.get("day_of_week", "*"))
    weekday = re.sub(r"[A-Za-z]+", lambda found: found[0][:3].upper(), weekday)
    if not fields[2].startswith("*") and not weekday.startswith("*"):
        raise ValueError(
            "it asks for day_of_month and day_of_week at once, and cron for either: write an RRULE with "
            "BYMONTHDAY and BYDAY"
        )
    return " ".join([*fields, weekday])


def _celery_field(value: Any) -> str:
    if isinstance(value, (list, tuple, set)):
        return ",".join(str(each) for each in sorted(value))
    return str(value).replace(" ", "")


def _timedelta(arguments: list[Any], named: dict[Any, Any]) -> dict[str, str]:
    given = _given(_DURATION, arguments, named)
    if not all(isinstance(value, (int, float)) for value in given.values()):
        raise ValueError("timedelta(…) of something other than numbers")
    return {"every": _seconds(sum(_LENGTHS[name] * value for name, value in given.items()))}


def _seconds(number: float) -> str:
    if not number > 0:
        raise ValueError(f"{number} is not a length of time")
    return f"{round(number, 6):.6f}".rstrip("0").rstrip(".") + "s"


_READERS: dict[str, Callable[[list[Any], dict[Any, Any]], dict[str, str]]] = {
    "crontab": _crontab_call,
    "timedelta": _timedelta,
}
