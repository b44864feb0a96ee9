"""The page: a table for each measure, and one of the targets."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measures import headline
from bench.report.results import Figure, Results
from bench.targets import Outcome


def page(results: Results, outcomes: Sequence[Outcome], plots: Sequence[str]) -> str:
    """The whole page in Markdown."""
    parts = ["# Performance", INTRODUCTION, conditions(results), "## Targets", targets(outcomes)]
    for measure in results.measures():
        parts += [f"## {measure.capitalize()}", headline(measure)]
        parts += [f"![{measure}]({plot})" for plot in plots if plot == f"{measure}.svg"]
        parts += section(results, measure)
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """<!-- Written by `make bench`; see bench/report/tables.py. Change nothing here by hand. -->

What a relay does in a second, how late its timers come, and what it costs, beside the limit of its own
server, beside bare gRPC and beside its peers, in one run. `make bench` writes this page, its plots and
[results.json](results.json); [how it measures](method.md) says what the figures mean and what they leave
out. Figures are medians over the runs, with the least and the greatest behind them. Trust the ratios: server,
relay and application share the machine."""


def conditions(results: Results) -> str:
    """What it was measured on."""
    lines = (f"| {name} | {value} |" for name, value in results.conditions.items())
    return "\n".join(("| | |", "|---|---|", *lines))


def section(results: Results, measure: str) -> list[str]:
    """A measure's table, what is to be said of it, and what it was measured on if it ran without the rest."""
    figures, said = results.of(measure), results.apart.get(measure, {})
    words = "; ".join(f"{name} {value}" for name, value in said.items())
    return [table(figures), *notes(figures), *([f"Measured apart: {words}."] if words else [])]


def table(figures: Sequence[Figure]) -> str:
    """One measure: by quantile where it has those, else median and spread."""
    if any(figure.stat for figure in figures):
        return _by_stat(figures)
    lines = ["| | median | least to greatest | |", "|---|--:|--:|---|"]
    lines += (
        f"| {figure.name} | {number(figure.median)} | {spread(figure.values)} | {figure.unit} |"
        for figure in figures
    )
    return "\n".join(lines)


def notes(figures: Sequence[Figure]) -> list[str]:
    """What is to be said of single rows."""
    said = dict.fromkeys((figure.name, figure.note) for figure in figures if figure.note)
    return ["\n".join(f"- {name}: {note}." for name, note in said)] if said else []


def targets(outcomes: Sequence[Outcome]) -> str:
    """Reached or missed, each with its figure."""
    lines = ["| target | | figure | least to greatest | |", "|---|--:|--:|--:|---|"]
    for outcome in outcomes:
        bound = f"{'≥' if outcome.target.at_least else '≤'} {number(outcome.target.bound)}"
        unit = f" {outcome.target.unit}".rstrip()
        lines.append(
            f"| {outcome.target.name} | {bound}{unit} | {number(outcome.median)} | "
            f"{spread(outcome.values)} | {outcome.word} |"
        )
    return "\n".join(lines)


def number(value: float | None) -> str:
    """With three digits that count, and thousands apart."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The least and the greatest."""
    return f"{number(min(values))} to {number(max(values))}" if values else "not measured"


def _by_stat(figures: Sequence[Figure]) -> str:
    stats = list(dict.fromkeys(figure.stat for figure in figures))
    units = {figure.stat: figure.unit for figure in figures}
    cells: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        cells.setdefault(figure.name, {})[figure.stat] = figure
    lines = [
        f"| | {' | '.join(f'{stat} ({units[stat]})' for stat in stats)} |",
        "|---|" + "--:|" * len(stats),
    ]
    for name, row in cells.items():
        lines.append(f"| {name} | {' | '.join(_cell(row.get(stat)) for stat in stats)} |")
    return "\n".join(lines)


def _cell(figure: Figure | None) -> str:
    if figure is None or not figure.values:
        return "–"
    low, high = min(figure.values), max(figure.values)
    return (
        number(figure.median) if low == high else f"{number(figure.median)} ({number(low)} to {number(high)})"
    )
