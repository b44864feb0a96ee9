"""The picture on the front page, from docs/performance/results.json; `python -m bench --headline` redraws it.

Two panels: how many due timers a second are drained, and how late timers are at a load. The SVG follows the
reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from bench.measures import drain, lateness, peers
from bench.report.results import Results
from bench.report.tables import number

PICTURE = "headline.svg"
DRAINED = {
    "Relay, stream": ("drain", drain.STREAM),
    "Relay, push": ("drain", drain.PUSH),
    "BullMQ": ("peers", peers.best("bullmq")),
    "asynq": ("peers", peers.best("asynq")),
    "faststream-redis-timers": ("peers", peers.best("faststream-redis-timers")),
    "arq": ("peers", peers.best("arq")),
    "rq": ("peers", peers.best("rq")),
}
LATE = {
    "idle": lateness.IDLE,
    "100 timers/s": lateness.steady(100),
    "1,000 timers/s": lateness.steady(1_000),
    "5,000 timers/s": lateness.steady(5_000),
    "20,000 timers/s": lateness.steady(20_000),
}
LEFT, RIGHT = 0, 460
"""Where the two panels begin (px)."""
TOP, ROW = 58, 24
"""Where the first row begins, and the height of a row (px)."""
BARS, DOTS = (176, 200), (115, 175)
"""Of each panel: where its bars begin, from the panel's left edge, and how long the longest is (px)."""
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px } .note { fill: #57606a; font-size: 12px }
  .ours { fill: #2563a8; stroke: #2563a8 } .peer { fill: #8a8f98 } .label { text-anchor: end }
  .zero { stroke: #8a8f98 }
  .range { stroke: #2563a8; stroke-width: 3 } .tail { fill: #fff; stroke: #2563a8; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9da7b3 } .peer { fill: #6e7681 }
    .ours { fill: #6cb0f5; stroke: #6cb0f5 } .range { stroke: #6cb0f5 }
    .tail { fill: #0d1117; stroke: #6cb0f5 }
  }
"""


class Late(NamedTuple):
    """How late timers come at a load: median and 99th percentile (ms)."""

    load: str
    p50: float
    p99: float


def picture(results: Results) -> str:
    """The SVG; rows that were not measured are left out."""
    rates = list(_rates(results))
    late = list(_late(results))
    height = TOP + ROW * max(len(rates), len(late)) + 34
    said = f"{results.conditions.get('machine', '')}; {results.conditions.get('server', '')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" role="img"',
        f'width="860" height="{height}" aria-label="Throughput and lateness, measured">',
        f"<style>{STYLE}</style>",
        *_panel(LEFT, "Due timers drained, timers a second", "longer is better; peers at their best tuning"),
        *_bars(rates),
        *_panel(RIGHT, "Lateness after the due time, ms", "shorter is better; ● median, ○ 99th percentile"),
        *_dots(late),
        f'<text class="note" x="0" y="{height - 8}">{escape(said)}; medians of the runs</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write(results: Results, folder: Path) -> None:
    """Draw it into the folder of the figures."""
    (folder / PICTURE).write_text(picture(results), encoding="utf-8")


def _rates(results: Results) -> Iterator[tuple[str, float]]:
    for words, (measure, name) in DRAINED.items():
        rate = results.median(measure, name, "")
        if rate is not None:
            yield words, rate


def _late(results: Results) -> Iterator[Late]:
    for load, name in LATE.items():
        middle, tail = (results.median("lateness", name, stat) for stat in ("p50", "p99"))
        if middle is not None and tail is not None:
            yield Late(load, middle, tail)


def _panel(x: int, title: str, note: str) -> Iterable[str]:
    return (
        f'<text class="title" x="{x}" y="16">{escape(title)}</text>',
        f'<text class="note" x="{x}" y="36">{escape(note)}</text>',
    )


def _bars(rates: list[tuple[str, float]]) -> Iterator[str]:
    begin, length = LEFT + BARS[0], BARS[1]
    most = max((rate for _, rate in rates), default=1.0)
    for row, (words, rate) in enumerate(rates):
        y, width = TOP + row * ROW, max(rate / most * length, 1)
        kind = "ours" if words.startswith("Relay") else "peer"
        yield f'<text class="label" x="{begin - 8}" y="{y + 13}">{escape(words)}</text>'
        yield f'<rect class="{kind}" x="{begin}" y="{y}" width="{width:.1f}" height="16" rx="2"/>'
        yield f'<text x="{begin + width + 6:.1f}" y="{y + 13}">{number(rate)}</text>'


def _dots(late: list[Late]) -> Iterator[str]:
    begin, length = RIGHT + DOTS[0], DOTS[1]
    most = max((each.p99 for each in late), default=1.0)
    yield f'<line class="zero" x1="{begin}" y1="{TOP - 4}" x2="{begin}" y2="{TOP + len(late) * ROW - 4}"/>'
    for row, (load, p50, p99) in enumerate(late):
        y = TOP + row * ROW + 8
        left, right = begin + p50 / most * length, begin + p99 / most * length
        yield f'<text class="label" x="{begin - 8}" y="{y + 5}">{escape(load)}</text>'
        yield f'<line class="range" x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}"/>'
        yield f'<circle class="ours" cx="{left:.1f}" cy="{y}" r="5"/>'
        yield f'<circle class="tail" cx="{right:.1f}" cy="{y}" r="5"/>'
        yield f'<text x="{right + 12:.1f}" y="{y + 5}">{number(p50)} to {number(p99)}</text>'
