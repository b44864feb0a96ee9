"""The audit's report: one self-contained page of HTML. All text that comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from relay.core.audit.report import Promise, PromiseVerdict
from relay.pipeline.audit import plots

CLASSES = {
    PromiseVerdict.PROVED.value: "proved",
    PromiseVerdict.REFUTED.value: "refuted",
    PromiseVerdict.UNSAID.value: "unsaid",
}
MOST_TOPICS = 40


@dataclass(slots=True)
class ReportPage:
    """What the report shows: totals, and the worst or first rows of each table. Lengths are in
    microseconds."""

    verdict: str
    counts: Mapping[str, int]
    lateness: Mapping[str, int | None]
    began: int
    ended: int
    verdicts: Sequence[Mapping[str, Any]]
    """Rows of `topic` with the verdict, breaks and doubts of each promise, by its number; the worst come
    first."""
    heat: Mapping[tuple[int, int], int]
    backlog: Sequence[tuple[int, int, int]]
    topics: Sequence[tuple[str, Sequence[int], str]]
    hours: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    gaps: Sequence[Mapping[str, Any]]
    lost: Sequence[Mapping[str, Any]]
    oldest: Sequence[Mapping[str, Any]]
    unknown: Sequence[Mapping[str, Any]]
    people: Sequence[Mapping[str, Any]] = ()
    """What people did, the latest first."""
    people_unread: str = ""
    """Why that is not known."""
    notes: Sequence[str] = field(default=())


def template() -> Template:
    """Return the template that `render` fills in. A driver may have it in an archive."""
    return Template((files("relay.pipeline.audit") / "page.html").read_text(encoding="utf-8"))


def render(page: ReportPage, per_decade: int) -> str:
    """Return the whole page."""
    sections = [
        _head(page),
        _tiles(page),
        _verdicts(page),
        _plots(page, per_decade),
        _hours(page),
        _findings(page),
        _timers(
            "Lost",
            page.lost,
            "They live according to the journal, and neither Redis nor the cold store has them.",
        ),
        _timers(
            "Unknown",
            page.unknown,
            "Redis has them, and no journal knows that they live: another writer's, or older than the "
            "journal.",
        ),
        _timers("Open for longest", page.oldest, "They live, and their last record is the oldest."),
        _gaps(page),
        _people(page),
    ]
    foot = (
        "Made by relay pipeline audit. Times are UTC, by the clock of Redis. "
        "See docs/how-to/pipeline-audit.md."
    )
    return template().substitute(title="Journal audit", body="\n".join(sections), footer=escape(foot))


def _head(page: ReportPage) -> str:
    span = f"{_moment(page.began)} to {_moment(page.ended)}" if page.ended else "an empty journal"
    topics = _many(page.counts["topics"], "topic")
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in page.notes)
    return (
        f"<header><h1>Journal audit</h1>{_chip(page.verdict, 'big')}</header>"
        f'<p class="soft">{page.counts["records"]:,} records of {topics}, {span}</p>{notes}'
    )


def _tiles(page: ReportPage) -> str:
    figures = [
        (name, f"{page.counts.get(name, 0):,}")
        for name in ("accepted", "delivered", "committed", "dead", "open")
    ]
    bad = [(name, f"{page.counts.get(name, 0):,}") for name in ("lost", "missing")]
    late = [(f"lateness, {title}", _length(page.lateness.get(name))) for name, title in LATENESS.items()]
    tiles = [_tile(*each) for each in figures]
    tiles += [
        _tile("records missing" if name == "missing" else name, text, bad=text != "0") for name, text in bad
    ]
    lateness = [_tile(*each) for each in late]
    return "".join(f'<div class="tiles">{"".join(row)}</div>' for row in (tiles, lateness))


LATENESS = {"p50_us": "p50", "p99_us": "p99", "p99_9_us": "p99.9", "max_us": "most"}


def _tile(name: str, value: str, *, bad: bool = False) -> str:
    return f'<div class="tile{" bad" if bad else ""}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _verdicts(page: ReportPage) -> str:
    titles = ["topic", *(f"{int(promise)} {promise.title}" for promise in Promise), "reasons for doubt"]
    rows = []
    for row in page.verdicts[:MOST_TOPICS]:
        reasons = {reason for promise in Promise for reason in row[str(int(promise))]["doubts"]}
        chips = [
            _chip(row[str(int(promise))]["verdict"], count=row[str(int(promise))]["refuted"])
            for promise in Promise
        ]
        rows.append([_id(row["topic"]), *chips, escape("; ".join(sorted(reasons)))])
    rest = len(page.verdicts) - len(rows)
    more = f" {_many(rest, 'topic')} more in the table verdicts." if rest > 0 else ""
    note = (
        f"Proved: the journal is whole, and no record breaks the promise. The worst topics come first.{more}"
    )
    return _card("Promises", note, _table(titles, rows))


def _plots(page: ReportPage, per_decade: int) -> str:
    made = []
    if page.heat:
        note = (
            "First deliveries by the hour in which they were due, and by their lateness. A stronger "
            "colour means "
            "more deliveries, on a logarithmic scale; red deliveries were early."
        )
        made.append(_card("Lateness", note, plots.heat_map(page.heat, per_decade, 3600)))
    if page.backlog:
        note = (
            "Timers that were stored and had not ended. Overdue timers are those whose due time had passed."
        )
        made.append(_card("Backlog", note, plots.areas(page.backlog, ("open", "overdue"))))
    if page.topics:
        note = "The lateness of first deliveries; topics with the highest p99.9 come first."
        legend = "".join(
            f'<span><i style="background:{colour}"></i>{name}</span>'
            for colour, name in (
                ("var(--h3)", "p50"),
                ("var(--one)", "p99"),
                ("var(--two)", "p99.9"),
                ("var(--bad)", "most"),
            )
        )
        made.append(
            _card("Worst topics", note, f'<div class="legend">{legend}</div>{plots.ranges(page.topics)}')
        )
    return "\n".join(made)


def _hours(page: ReportPage) -> str:
    if not page.hours:
        return ""
    names = (
        "accepted",
        "delivered",
        "committed",
        "dead",
        "retries",
        "duplicates",
        "stale",
        "early",
        "breaks",
        "open",
    )
    titles = ["hour", "topic", *(f"{name}>" for name in names), "p99>", "most>"]
    rows = [
        [
            escape(_moment(row["at"])[:16]),
            _id(row["topic"]),
            *(f"{row[name]:,}" for name in names),
            escape(_length(row["p99_us"])),
            escape(_length(row["max_us"])),
        ]
        for row in page.hours
    ]
    note = "The hours with breaks, then those with the latest deliveries. The table hours has all hours."
    return _card("Worst hours", note, _table(titles, rows))


def _findings(page: ReportPage) -> str:
    if not page.findings:
        return ""
    rows = [
        [
            _chip(PromiseVerdict.UNSAID.value if row["reason"] else PromiseVerdict.REFUTED.value),
            escape(Promise(row["promise"]).title),
            _id(f"{row['topic']} / {row['timer_id'] or ''}"),
            escape(row["what"] or row["reason"]),
            escape(_moment(row["at"])) if row["at"] else "",
            _id(" and ".join(filter(None, (row["earlier_entry"], row["entry"])))),
        ]
        for row in page.findings
    ]
    note = "A few examples for each promise. The table findings has all of them."
    titles = ["", "promise", "topic / timer", "what", "when", "entries"]
    return _card("What speaks against the promises", note, _table(titles, rows))


def _timers(title: str, timers: Sequence[Mapping[str, Any]], note: str) -> str:
    if not timers:
        return ""
    rows = [
        [
            _id(f"{row['topic']} / {row['timer_id']}"),
            escape(str(row.get("state") or "")),
            escape(_moment(row["due"])) if row["due"] is not None else "",
            escape(_moment(row["heard"])) if row.get("heard") is not None else "",
            _id(row.get("entry") or ""),
        ]
        for row in timers
    ]
    return _card(title, note, _table(["topic / timer", "state", "due", "last heard of", "entry"], rows))


def _gaps(page: ReportPage) -> str:
    if not page.gaps:
        return ""
    rows = [
        [_id(row["topic"]), _id(row["entry"]), f"{row['missing']:,}", escape(row["why"])] for row in page.gaps
    ]
    note = "Nothing is proved across a gap. The table gaps has all gaps."
    return _card("Gaps", note, _table(["topic", "before entry", "records missing>", "why"], rows))


def _people(page: ReportPage) -> str:
    title = "What people did"
    if page.people_unread:
        return _card(title, page.people_unread, "")
    if not page.people:
        return _card(title, "Nobody did anything to these topics in this time, as far as is recorded.", "")
    rows = [
        [
            escape(f"{row['time']:%Y-%m-%d %H:%M:%S}"),
            _id(row["principal"]),
            escape(row["method"]),
            _id(f"{row['topic']} / {row['thing']}" if row["thing"] else row["topic"]),
            escape(row["before"]),
            escape(row["after"]),
            escape(row["note"]),
            escape(row["outcome"]),
        ]
        for row in page.people
    ]
    note = "Calls that changed these topics, or all, by a person's hand. The table people has all of them."
    titles = ["when", "who", "what", "topic / thing", "before", "after", "note", "outcome"]
    return _card(title, note, _table(titles, rows))


def _card(title: str, note: str, content: str) -> str:
    return (
        f'<section class="card"><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{content}</section>'
    )


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table. A title that ends with > stands above numbers. Cells are HTML; one that begins with <td
    is taken as it is."""
    right = [title.endswith(">") for title in titles]
    heads = "".join(
        f"<th{' class=n' if number else ''}>{escape(title.rstrip('>'))}</th>"
        for title, number in zip(titles, right, strict=True)
    )
    lines = []
    for row in rows:
        cells = (
            cell if cell.startswith("<td") else f"<td{' class=n' if number else ''}>{cell}</td>"
            for cell, number in zip(row, right, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _id(text: str) -> str:
    return f'<td class="id">{escape(text)}</td>'


def _chip(verdict: str, size: str = "", count: int = 0) -> str:
    kind = CLASSES.get(verdict, "unsaid")
    told = f"{verdict}, {count:,}" if count else verdict
    return f'<span class="chip {kind} {size}">{escape(told)}</span>'


def _moment(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1000:03d}"


def _length(micros: int | None) -> str:
    return "–" if micros is None else plots.length(micros)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
