"""What `relay audit` prints: text for people, or JSON with stable field names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from relay.cli.journal import people
from relay.cli.terminal import tables
from relay.cli.terminal.output import iso, safe
from relay.core.audit import Example, Judgement, PromiseVerdict, Report
from relay.core.instants import SECOND
from relay.core.trust.actions import Action

TITLES = ("promise", "verdict", "checked>", "broken>", "why it can't be said")
COLOURS = {PromiseVerdict.PROVED: "green", PromiseVerdict.REFUTED: "red", PromiseVerdict.UNSAID: "yellow"}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def document(topic: str, report: Report, did: Sequence[Action] | None) -> dict[str, Any]:
    """The whole report, with what people `did`, if that was read. Instants are in ISO 8601, lengths in
    seconds, occurrences as the API has them."""
    return {
        "topic": topic,
        "verdict": report.verdict.value,
        "promises": [_promise(each) for each in report.judgements],
        "journal": {
            "batches": report.batches,
            "records": report.records,
            "missing": report.missing,
            "gaps": report.gap_count,
            "first_entry": report.first_entry,
            "last_entry": report.last_entry,
            "first_time": _moment(report.first_time),
            "last_time": _moment(report.last_time),
            "kinds": dict(report.kinds),
        },
        "gaps": [{"entry": gap.entry, "missing": gap.missing, "why": gap.why} for gap in report.gaps],
        "lateness": {
            "count": report.lateness_count,
            **{name: value / SECOND for name, value in report.lateness.items()},
        },
        "counts": dict(report.counts),
        "open": report.open_count,
        "oldest_open": [
            {
                "timer_id": each.timer_id,
                "state": each.state,
                "due_time": _moment(each.due),
                "age": each.age / SECOND,
                "entry": each.entry,
            }
            for each in report.open
        ],
        "people": None if did is None else [people.fields(each) for each in did],
    }


def _promise(judgement: Judgement) -> dict[str, Any]:
    return {
        "promise": int(judgement.promise),
        "title": judgement.promise.title,
        "verdict": judgement.verdict.value,
        "checked": judgement.checked,
        "broken": judgement.refuted,
        "doubts": dict(judgement.doubts),
        "examples": [
            {
                "timer_id": each.timer_id,
                "occurrence_id": _occurrence(each),
                "what": each.what,
                "time": _moment(each.time),
                "entries": list(each.entries),
            }
            for each in judgement.examples
        ],
    }


def show(topic: str, report: Report, did: Sequence[Action] | None) -> None:
    """The same report for people."""
    span = f", {_moment(report.first_time)} to {_moment(report.last_time)}" if report.batches else ""
    typer.echo(f"{safe(topic)}: {report.records} records in {report.batches} entries{span}")
    rows = [
        (f"{each.promise:d} {each.promise.title}", each.verdict.value, str(each.checked), str(each.refuted),
         "; ".join(each.doubts))
        for each in report.judgements
    ]  # fmt: skip
    tables.show(tables.table(TITLES, rows))
    for line in _lines(report):
        typer.echo(line)
    if did:
        typer.echo("what people did in this time:")
    for each in did or ():
        typer.echo(f"  {people.line(each)}")
    typer.echo(typer.style(report.verdict.value, fg=COLOURS[report.verdict], bold=True))


def _lines(report: Report) -> Iterator[str]:
    for judgement in report.judgements:
        for example in judgement.examples:
            where = " and ".join(example.entries)
            told = f"{safe(example.timer_id)} {example.what}, {_moment(example.time)} (entries {where})"
            yield f"{judgement.promise:d} {judgement.verdict.value}: {told}"
    for gap in report.gaps:
        count = f"{gap.missing} records before {gap.entry}: " if gap.missing else f"at {gap.entry}: "
        yield f"gap: {count}{gap.why}"
    if report.gap_count > len(report.gaps):
        yield f"gap: and {report.gap_count - len(report.gaps)} more"
    if report.lateness:
        figures = ", ".join(f"{name} {value / 1000:.3f} ms" for name, value in report.lateness.items())
        yield f"lateness of {report.lateness_count} first deliveries: {figures}"
    if report.counts:
        yield "counts: " + ", ".join(f"{name} {count}" for name, count in report.counts.items())
    if report.open_count:
        yield f"{report.open_count} timers live; the journal has not heard for longest of"
    for each in report.open:
        due, age = _moment(each.due), timedelta(microseconds=each.age)
        told = f"{each.state}, due {due}, last heard of {age} before the end (entry {each.entry})"
        yield f"  {safe(each.timer_id)}: {told}"


def _occurrence(example: Example) -> str:
    return f"{example.timer_id}/{example.occurrence.hex()}" if example.occurrence else ""


def _moment(instant: int) -> str:
    return iso(EPOCH + timedelta(microseconds=instant))
