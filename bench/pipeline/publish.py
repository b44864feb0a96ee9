"""The page of the pipeline: targets, tables, plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from bench.harness.rows import Key
from bench.pipeline.measures import audit, beside, find, ingest, load, sweep
from bench.pipeline.world import FULL
from bench.report import plots, results, tables
from bench.report.results import Figure, Results

RESULTS, PAGE = "pipeline.json", "pipeline.md"

INTRODUCTION = """# Performance of the pipeline

<!-- Written by `make bench-pipeline`; see bench/pipeline/publish.py. Change nothing here by hand. -->

What Spark moves in and out of Redis in a second, beside one raw client that has its rows in memory and does
nothing but send them. Server, driver and workers share the machine's cores. Each rate has the start of
Spark's tasks in it, so small sizes look worse. Figures are medians over the runs, with the least and the
greatest behind them; trust the ratios. What is done is said in [pipeline.md](../how-to/pipeline.md)."""

HEADLINES = {
    "load": "Timers of 100 bytes, sorted by due time, from two Parquet files into an empty Redis, and back.",
    "ingest": "A topic's journal in Redis, 500 records an entry, stored in an empty lake, a million"
    " in each batch. A new session stores its first million while the JVM compiles.",
    "find": "Cold stores of rows that fall due over 30 days, in writes of 10 million. Ids are random, so the"
    " order of rows says nothing of them. CPU is that of driver, JVM and workers.",
    "audit": "Lakes of journals, 4.3 records a timer, judged by `relay pipeline audit`, with all tables. One"
    " session audits them all, the smallest first, and gives no memory back in between.",
    "sweep": "The same timers by way of the cold store, where they rest in one write, sorted by due time.",
    "beside": "A claim of ten timers every five milliseconds, while a load writes to another topic.",
}
"""What each measure's table shows."""


@dataclass(frozen=True)
class Target:
    """A bound on what `of` makes of one run's figures; None where the run lacks one."""

    name: str
    bound: float
    of: Callable[[dict[Key, float]], float | None]
    unit: str = ""
    at_least: bool = True


def ratio(measure: str, name: str, beneath: Key) -> Callable[[dict[Key, float]], float | None]:
    """One figure of a run by another."""

    def of(found: dict[Key, float]) -> float | None:
        above, below = found.get((measure, name, "")), found.get(beneath)
        return above / below if above is not None and below else None

    return of


def value(measure: str, name: str, stat: str) -> Callable[[dict[Key, float]], float | None]:
    """One figure of a run: its measure, name and statistic."""
    return lambda found: found.get((measure, name, stat))


CEILING = ("load", load.RAW, "")
MOST_INGESTED = FULL.ingested[-1]
_, AUDITED, MOST_AUDITED = FULL.journal_rows
MOST_COLD = FULL.cold_rows[-1]
TARGETS = [
    Target("unguarded write, of raw pipelines", 0.70, ratio("load", load.WRITE, CEILING)),
    Target("guarded load, of raw pipelines", 0.50, ratio("sweep", sweep.LOAD, ("sweep", sweep.RAW, ""))),
    Target("guarded load, of the raw script", 0.80, ratio("sweep", sweep.LOAD, ("sweep", sweep.GUARDED, ""))),
    Target("whole sweep, of raw pipelines", 0.30, ratio("sweep", sweep.WHOLE, ("sweep", sweep.RAW, ""))),
    Target(
        "a loaded sweep, once more, of the load", 1.0, ratio("sweep", sweep.AGAIN, ("sweep", sweep.LOAD, ""))
    ),
    Target(
        "a claim beside a load with a rate, p99",
        10,
        value("beside", beside.PACED, "p99"),
        "ms",
        at_least=False,
    ),
    Target(
        "a claim beside a load without one, p99",
        10,
        value("beside", beside.LOADED, "p99"),
        "ms",
        at_least=False,
    ),
    Target("journal ingest", 100_000, value("ingest", ingest.stored(MOST_INGESTED), ""), "rows/s"),
    Target(
        "a cold timer's row by its id, by deltalake",
        1,
        value("find", find.looked_up(find.RUST, MOST_COLD), "seconds"),
        "s",
        at_least=False,
    ),
    Target(
        "a cold timer's row by its id, by Spark",
        5,
        value("find", find.looked_up(find.SPARK, MOST_COLD), "seconds"),
        "s",
        at_least=False,
    ),
    Target("memory of an audit", 4.0, value("audit", audit.memory_of(AUDITED), ""), "GiB", at_least=False),
    Target(
        "an audit of 32 million rows, of the rate of 8 million",
        0.9,
        ratio("audit", audit.audited(MOST_AUDITED), ("audit", audit.audited(AUDITED), "")),
    ),
]
"""Each measure's file adds its own."""


def outcomes(fresh: Results) -> list[tuple[Target, Figure]]:
    """Each target with its figure in every run."""
    found = []
    for target in TARGETS:
        runs = [target.of(run) for run in fresh.runs()]
        found.append((target, Figure("targets", target.name, "", target.unit, "", runs)))
    return found


def say(fresh: Results) -> None:
    """Print each target with its figure."""
    print("\nTargets:")
    for target, figure in outcomes(fresh):
        if figure.median is not None:
            print(f"  {_line(target, figure, '  ')}")


def publish(fresh: Results, folder: Path) -> None:
    """Write the figures, the plots and the page; measures that were left out stay as they were."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / RESULTS
    if file.exists():
        fresh.keep(results.read(file))
    reached = outcomes(fresh)
    fresh.write(file, [{"name": t.name, "bound": t.bound, "figures": figure.runs} for t, figure in reached])
    parts = [INTRODUCTION, tables.conditions(fresh), "## Targets", _targets(reached)]
    for measure in fresh.measures():
        parts += [f"## {measure.capitalize()}", HEADLINES.get(measure, "")]
        parts += [f"![{measure}]({name})" for name in _draw(measure, fresh.of(measure), folder)]
        parts += tables.section(fresh, measure)
    (folder / PAGE).write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _targets(reached: Sequence[tuple[Target, Figure]]) -> str:
    lines = ["| target | | figure | least to greatest | |", "|---|--:|--:|--:|---|"]
    lines += [
        f"| {_line(target, figure, ' | ')} |" for target, figure in reached if figure.median is not None
    ]
    return "\n".join(lines)


def _line(target: Target, figure: Figure, between: str) -> str:
    median = figure.median
    good = median is not None and (median >= target.bound if target.at_least else median <= target.bound)
    bound = f"{'≥' if target.at_least else '≤'} {tables.number(target.bound)} {target.unit}".rstrip()
    word = "reached" if good else "**missed**"
    return between.join((target.name, bound, tables.number(median), tables.spread(figure.values), word))


def _draw(measure: str, figures: Sequence[Figure], folder: Path) -> list[str]:
    """Draw rates as bars, or seconds where a measure has those, and other times by quantile."""
    shown = [figure for figure in figures if figure.median is not None]
    plot: Callable[[Axes, Sequence[Figure]], None] = plots.bars
    if seconds := [figure for figure in shown if figure.stat == "seconds"]:
        shown, plot = seconds, partial(plots.bars, unit="seconds")
    elif any(figure.stat for figure in shown):
        plot = plots.quantiles
    else:
        shown = [figure for figure in shown if figure.unit.endswith("/s")]
    if not shown:
        return []
    with mpl.rc_context(plots.STYLE):
        height = 0.9 + 0.3 * len({figure.name for figure in shown})
        canvas = Canvas(figsize=(plots.WIDTH, height), layout="constrained")
        plot(canvas.subplots(), shown)
        canvas.savefig(folder / f"pipeline-{measure}.svg", metadata={"Date": None, "Creator": None})
    return [f"pipeline-{measure}.svg"]
