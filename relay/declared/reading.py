"""Reads a file of recurrences, and checks all that needs no Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from relay.api.recurring import values
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


def read_recurrences(file: Path) -> list[Entry]:
    """Read the entries of a file. Raises `SettingsError`, with a sentence for each entry that is wrong: it
    names the file, the entry and the field."""
    listed = read_yaml(file)
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise SettingsError([f"{file}: must be a list of recurrences"])
    entries: list[Entry] = []
    problems: list[str] = []
    places: dict[tuple[str, str], str] = {}
    for number, each in enumerate(listed, 1):
        try:
            entry = _read(f"{file}: entry {number}", each)
        except SettingsError as wrong:
            problems += wrong.problems
            continue
        name = (entry.spec.topic, entry.spec.recurrence_id)
        if name in places:
            problems.append(
                f"{entry.place}: recurrence_id: is that of {places[name]}, too; give each its own"
            )
        places[name] = f"entry {number}"
        entries.append(entry)
    if problems:
        raise SettingsError(problems)
    return entries


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
    wanted = values.wanted(spec, validate.MOST_PAYLOAD_BYTES)
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
