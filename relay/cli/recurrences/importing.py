"""`relay recur import`: schedules of others as a file that `relay recur apply` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.core.errors import InvalidField
from relay.rules.imports import Imported, read_celerybeat, read_crontab
from relay.settings.document import MOST_BYTES


def import_(form: str, file: Path, topic: str, zone: str, system: bool) -> None:
    """Print the recurrences of a file as YAML; what is not carried over goes to standard error."""
    if system and form != "crontab":
        fail("--system: belongs to crontab", BAD_INPUT)
    text = _text(file)
    try:
        read = (
            read_crontab(text, topic=topic, zone=zone, system=system)
            if form == "crontab"
            else read_celerybeat(text, topic=topic, zone=zone)
        )
    except InvalidField as failure:
        fail(f"{file}: {failure.problem}", BAD_INPUT)
    _print(file, read)


def _print(file: Path, read: Imported) -> None:
    import yaml

    for warning in read.warnings:
        typer.echo(f"relay: {file}: {warning}", err=True)
    entries = [_entry(each) for each in read.recurrences]
    typer.echo(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1_000), nl=False)


def _entry(read: Mapping[str, Any]) -> dict[str, Any]:
    """A recurrence in the words of the API."""
    rule = {name: read[name] for name in ("cron", "every", "zone") if name in read}
    entry: dict[str, Any] = {"topic": read["topic"], "recurrence_id": read["id"], "rule": rule}
    if "payload" in read:
        entry["message"] = _message(read["payload"])
    return entry


def _message(payload: str) -> Any:
    """Celery's task and arguments as JSON; a command as text."""
    try:
        found = json.loads(payload)
    except ValueError:
        return payload
    return found if isinstance(found, dict) else payload


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            fail(f"{file}: has more than {MOST_BYTES} bytes", BAD_INPUT)
        return raw.decode()
    except OSError as error:
        fail(f"{file}: can't be read: {error.strerror or error}", BAD_INPUT)
    except UnicodeDecodeError:
        fail(f"{file}: is not UTF-8 text", BAD_INPUT)
