"""Reads a file of recurrences and calendars, and checks all that needs no Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from relay.api.recurring import calendars, values
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.recurring.recurrence import Recurrence
from relay.rules import compile_rule
from relay.settings.document import read_yaml
from relay.settings.problems import SettingsError
from relay.v1 import recurrence_service_pb2 as pb
from relay.web import forms


@dataclass(frozen=True, slots=True)
class Entry:
    """One recurrence of a file. `place` is how people find it, `given` has the other names by which fields
    were given; see `forms.read`."""

    place: str
    spec: pb.RecurrenceSpec
    given: Mapping[str, str]

    def problem(self, failure: InvalidField) -> str:
        """A sentence about a wrong field, by the name that stands in the file."""
        field = failure.field.removeprefix("recurrence.")
        return f"{self.place}: {self.given.get(field, field)}: {failure.problem}"


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """One calendar of a file: its name, and its dates in their order."""

    place: str
    name: str
    dates: Sequence[str]

    def problem(self, failure: InvalidField) -> str:
        """A sentence about a wrong field, by the name that stands in the file."""
        return f"{self.place}: {_of_calendar(failure)}"


class Declared(NamedTuple):
    """What a file says. Calendars are put first, since rules may name them."""

    recurrences: Sequence[Entry] = ()
    calendars: Sequence[CalendarEntry] = ()


def read_declared(file: Path) -> Declared:
    """Read the entries of a file. Raises `SettingsError`, with a sentence for each entry that is wrong: it
    names the file, the entry and the field."""
    listed = read_yaml(file)
    if listed is None:
        return Declared()
    if not isinstance(listed, list):
        raise SettingsError([f"{file}: must be a list of recurrences"])
    entries: list[Entry | CalendarEntry] = []
    problems: list[str] = []
    places: dict[tuple[str, ...], str] = {}
    for number, each in enumerate(listed, 1):
        place = f"{file}: entry {number}"
        try:
            entry = _read_calendar(place, each) if _is_calendar(each) else _read(place, each)
        except SettingsError as wrong:
            problems += wrong.problems
            continue
        field, *name = _identity(entry)
        if (where := places.get(tuple(name))) is not None:
            problems.append(f"{entry.place}: {field}: is that of {where}, too; give each its own")
        places[tuple(name)] = f"entry {number}"
        entries.append(entry)
    if problems:
        raise SettingsError(problems)
    return Declared(
        [each for each in entries if isinstance(each, Entry)],
        [each for each in entries if isinstance(each, CalendarEntry)],
    )


def _identity(entry: Entry | CalendarEntry) -> tuple[str, ...]:
    """What no two entries have in common, behind the field that says it."""
    if isinstance(entry, CalendarEntry):
        return "calendar", entry.name
    return "recurrence_id", entry.spec.topic, entry.spec.recurrence_id


def _is_calendar(each: Any) -> bool:
    return isinstance(each, Mapping) and "calendar" in each


def _read_calendar(place: str, each: Mapping[str, Any]) -> CalendarEntry:
    called = each["calendar"]
    if isinstance(called, str):
        place = f"{place} ({called})"
    message = pb.Calendar()
    for field in each:
        if field not in ("calendar", "dates"):
            raise SettingsError([f"{place}: {field}: is not known here; there are calendar, dates"])
    if each.get("dates") is None:
        raise SettingsError([f"{place}: dates: is missing; give a list, [] for none"])
    try:
        forms.read(message, {"name": called, "dates": _plain(each["dates"])})
        return CalendarEntry(place, *calendars.checked(message))
    except InvalidField as failure:
        raise SettingsError([f"{place}: {_of_calendar(failure)}"]) from None


def _of_calendar(failure: InvalidField) -> str:
    field = failure.field.removeprefix("calendar.")
    return f"{'calendar' if field == 'name' else field}: {failure.problem}"


def _read(place: str, each: Any) -> Entry:
    spec = pb.RecurrenceSpec()
    entry = Entry(_named(place, each), spec, {})
    try:
        entry = Entry(entry.place, spec, forms.read(spec, _plain(each)))
        with values.fields_of(""):
            validate.topic("topic", spec.topic)
            check(spec)
    except InvalidField as failure:
        raise SettingsError([entry.problem(failure)]) from None
    return entry


def check(spec: pb.RecurrenceSpec) -> Recurrence:
    """Check and translate all but what depends on a topic's policy. Raises `InvalidField`."""
    wanted = values.wanted(spec, validate.MOST_PAYLOAD_BYTES, sealed=True)
    compile_rule(wanted.rule)
    return wanted


def _named(place: str, each: Any) -> str:
    """The place of an entry, with its names as far as it has some."""
    if not isinstance(each, Mapping):
        return place
    names = [name for name in (each.get("topic"), each.get("recurrence_id")) if isinstance(name, str)]
    return f"{place} ({'/'.join(names)})" if names else place


def _plain(value: Any) -> Any:
    """A value of YAML as one of JSON: YAML reads dates and instants that stand without quotes."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date | datetime) else value
