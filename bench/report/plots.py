"""Pictures of the results, as SVG, which a repository can hold and compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from bench.measures import drain, lateness, schedule
from bench.report.results import Figure, Results

OURS, OTHERS, LIMITS = "#2563a8", "#b3632b", "#8a8f98"
"""The colours of relay, of its peers, and of what is only to compare with."""
WIDTH = 9.0
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "relay", "font.size": 9}


@dataclass(frozen=True)
class Picture:
    """Which figures go into it, how, and how high it is (inches)."""

    figures: Callable[[Results], list[Figure]]
    plot: Callable[[Axes, Sequence[Figure]], None]
    height: Callable[[Sequence[Figure]], float]


def draw(results: Results, folder: Path) -> list[str]:
    """Draw what there are figures for; answers the names of the files."""
    drawn = []
    for name, picture in PICTURES.items():
        figures = [figure for figure in picture.figures(results) if figure.median is not None]
        if figures:
            with mpl.rc_context(STYLE):
                canvas = Canvas(figsize=(WIDTH, picture.height(figures)), layout="constrained")
                picture.plot(canvas.subplots(), figures)
                canvas.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
            drawn.append(f"{name}.svg")
    return drawn


def bars(axes: Axes, figures: Sequence[Figure], unit: str = "a second") -> None:
    """Draw a bar for each figure, in one unit, with its spread over the runs."""
    middles = [_middle(figure) for figure in figures]
    below = [middle - min(figure.values) for middle, figure in zip(middles, figures, strict=True)]
    above = [max(figure.values) - middle for middle, figure in zip(middles, figures, strict=True)]
    axes.barh(
        [figure.name for figure in figures],
        middles,
        xerr=(below, above),
        color=[_colour(figure) for figure in figures],
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.xaxis.set_major_formatter(_thousands())
    _clean(axes)


def quantiles(axes: Axes, figures: Sequence[Figure]) -> None:
    """From the median to the maximum, on a logarithmic scale."""
    names = list(dict.fromkeys(figure.name for figure in figures))
    by_key = {(figure.name, figure.stat): _middle(figure) for figure in figures}
    for place, name in enumerate(names):
        found = [
            (stat, by_key[name, stat]) for stat in ("p50", "p99", "max") if by_key.get((name, stat), 0) > 0
        ]
        if not found:
            continue
        values = [value for _, value in found]
        colour = next(_colour(figure) for figure in figures if figure.name == name)
        axes.plot(values, [place] * len(values), color=colour, linewidth=2, alpha=0.5)
        for stat, value in found:
            marker = {"p50": "o", "p99": "D", "max": "|"}[stat]
            axes.plot([value], [place], marker, color=colour, label=stat if place == 0 else None)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds late: ● median, ◆ p99, | the latest")
    axes.xaxis.set_major_formatter(_thousands())
    _clean(axes)


def line(axes: Axes, figures: Sequence[Figure]) -> None:
    """A rate by the number in the figure's name."""
    places = [_number(figure.name) for figure in figures]
    figures = [figure for _, figure in sorted(zip(places, figures, strict=True), key=lambda pair: pair[0])]
    places = sorted(places)
    axes.plot(places, [_middle(figure) for figure in figures], "o-", color=OURS)
    axes.fill_between(
        places,
        [min(figure.values) for figure in figures],
        [max(figure.values) for figure in figures],
        color=OURS,
        alpha=0.15,
        linewidth=0,
    )
    if places[-1] > 100 * max(places[0], 1):
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * max(max(figure.values) for figure in figures))
    axes.set_xlabel(re.sub(r"[\d,]+ ?", "", figures[-1].name))
    axes.set_ylabel(figures[0].unit)
    axes.yaxis.set_major_formatter(_thousands())
    _clean(axes)


def _rates(measure: str, results: Results) -> list[Figure]:
    return [figure for figure in results.of(measure) if figure.unit.endswith("/s") and not figure.stat]


def _unary(results: Results) -> list[Figure]:
    """Without batches, which are twenty times as fast and more."""
    batches = schedule.COLUMNS, schedule.BATCH, schedule.CEILING
    return [figure for figure in _rates("schedule", results) if figure.name not in batches]


def _beside_relay(results: Results) -> list[Figure]:
    """The peers, below relay's drain."""
    return [
        *(figure for figure in results.of("drain") if figure.name == drain.STREAM),
        *_rates("peers", results),
    ]


def _late(results: Results) -> list[Figure]:
    return [figure for figure in results.of("lateness") if figure.unit == "ms"]


def _tall(figures: Sequence[Figure]) -> float:
    return 0.9 + 0.3 * len({figure.name for figure in figures})


def _flat(_: Sequence[Figure]) -> float:
    return 3.0


PICTURES = {
    "drain": Picture(partial(_rates, "drain"), bars, _tall),
    "schedule": Picture(_unary, bars, _tall),
    "peers": Picture(_beside_relay, bars, _tall),
    "lateness": Picture(_late, quantiles, _tall),
    "relays": Picture(partial(_rates, "relays"), line, _flat),
    "waiting": Picture(partial(_rates, "waiting"), line, _flat),
}


def _middle(figure: Figure) -> float:
    assert figure.median is not None
    return figure.median


def _number(name: str) -> int:
    found = re.search(r"[\d,]+", name)
    assert found is not None, name
    return int(found[0].replace(",", ""))


def _colour(figure: Figure) -> str:
    if figure.measure == "peers" or figure.name.endswith(lateness.OF_PEERS):
        return OTHERS
    return LIMITS if figure.name.startswith(("bare", "ceiling", "asyncio")) else OURS


def _thousands() -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
