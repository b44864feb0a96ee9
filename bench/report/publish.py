"""Writes the results where people look for them."""

from __future__ import annotations

from pathlib import Path

from bench import targets
from bench.report import headline, plots, results, tables
from bench.report.results import Results

RESULTS = "results.json"


def publish(fresh: Results, folder: Path) -> None:
    """Write results.json, the plots and the page; measures that were left out stay as they were."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / RESULTS
    if file.exists():
        fresh.keep(results.read(file))
    outcomes = targets.outcomes(fresh.runs())
    fresh.write(
        file,
        [
            {
                "name": outcome.target.name,
                "bound": outcome.target.bound,
                "at_least": outcome.target.at_least,
                "unit": outcome.target.unit,
                "figures": [float(f"{value:.5g}") for value in outcome.values],
                "reached": outcome.reached,
            }
            for outcome in outcomes
        ],
    )
    drawn = plots.draw(fresh, folder)
    headline.write(fresh, folder)
    (folder / "README.md").write_text(tables.page(fresh, outcomes, drawn), encoding="utf-8")


def say_figures(fresh: Results) -> None:
    """Print the table of each measure, as the page has it."""
    for measure in fresh.measures():
        print(f"\n{measure.capitalize()}:\n\n{tables.table(fresh.of(measure))}")


def say_targets(fresh: Results) -> None:
    """Print each target with its figure."""
    print("\nTargets:")
    for outcome in targets.outcomes(fresh.runs()):
        if outcome.median is None:
            continue
        sign = "≥" if outcome.target.at_least else "≤"
        word = outcome.word.strip("*")
        print(
            f"  {outcome.target.name:<60} {sign} {tables.number(outcome.target.bound):>7}"
            f"  {tables.number(outcome.median):>8} {outcome.target.unit:<10} {word}"
        )
