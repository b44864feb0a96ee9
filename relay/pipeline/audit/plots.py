"""Plots as SVG within their page: the colours are the page's, and follow its light or dark mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1080, 76, 20, 14, 34
SHADES = 9
PERCENTILES = ("p50", "p99", "p99.9", "most")

_TICKS = (
    1,
    5,
    15,
    60,
    300,
    900,
    1800,
    3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    86400,
    2 * 86400,
    7 * 86400,
    28 * 86400,
)
_LENGTHS = ((86400e6, "d"), (3600e6, "h"), (60e6, "min"), (1e6, "s"), (1e3, "ms"), (1.0, "µs"))
"""The units of lengths of time; minutes, hours and days are used from two of them on."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Map a value to a place: `low` lies at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def length(micros: float) -> str:
    """Write a length of time in a few characters."""
    if micros < 0:
        return f"−{length(-micros)}"
    for size, unit in _LENGTHS:
        if micros >= size * (2 if size > 1e6 else 1):
            value = micros / size
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
    return "0"


def short(number: float) -> str:
    """Write a count in a few characters: 12.3k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def heat_map(cells: Mapping[tuple[int, int], int], per_decade: int, hour: int) -> str:
    """Draw counts by (hour number, bucket). There are `per_decade` buckets for each power of ten of
    microseconds; a negative bucket is early. `hour` is the number of seconds that one column spans."""
    columns, buckets = {at for at, _ in cells}, {bucket for _, bucket in cells}
    first, last = min(columns), max(columns)
    low, high = min(*buckets, 6), max(*buckets, 12)
    height = 15.0 * (high - low + 1) + TOP + BOTTOM
    across = Axis(first, last + 1, LEFT, WIDTH - RIGHT)
    up = Axis(low, high + 1, height - BOTTOM, TOP)
    most = math.log1p(max(cells.values()))
    wide, tall = max(across(first + 1) - across(first) - 1, 0.6), up(low) - up(low + 1) - 1
    parts = []
    for (at, bucket), count in sorted(cells.items()):
        shade = min(int(math.log1p(count) / most * SHADES), SHADES - 1)
        moment = datetime.fromtimestamp(at * hour, UTC)
        told = f"{moment:%Y-%m-%d %H:%M}, {_bucket(bucket, per_decade)}: {count:,}"
        kind = "early" if bucket < 0 else f"h{shade}"
        parts.append(
            f'<rect class="{kind}" x="{across(at):.1f}" y="{up(bucket + 1):.1f}" width="{wide:.1f}" '
            f'height="{tall:.1f}" rx="1.5"><title>{escape(told)}</title></rect>'
        )
    decades = [bucket for bucket in range(max(low, 0), high + 2) if bucket % per_decade == 0]
    parts += [_level(up(bucket), length(10 ** (bucket / per_decade))) for bucket in decades]
    if low < 0:
        parts.append(_text(LEFT - 8, up(low + 0.5) + 4, "early", "end"))
    parts += _moments(across, first * hour, (last + 1) * hour, hour, height)
    return _svg(height, "Lateness of first deliveries by hour", parts)


def _bucket(bucket: int, per_decade: int) -> str:
    if bucket < 0:
        return "before it was due"
    return f"{length(10 ** (bucket / per_decade))} to {length(10 ** ((bucket + 1) / per_decade))} late"


def areas(points: Sequence[tuple[int, int, int]], names: tuple[str, str]) -> str:
    """Draw two counts over time: (unix seconds, first, second). The second is a part of the first."""
    height = 300.0
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    top = max(max(point[1:]) for point in points) or 1
    levels = _round_levels(top)
    across, up = Axis(first, last, LEFT, WIDTH - RIGHT), Axis(0, levels[-1], height - BOTTOM, TOP)
    parts = [_level(up(level), short(level)) for level in levels]
    for nth, name in enumerate(names, 1):
        line = _steps(points, nth, across, up)
        ground = f"L{across(last):.1f},{up(0):.1f}L{across(first):.1f},{up(0):.1f}Z"
        parts.append(f'<path class="area a{nth}" d="{line}{ground}"/><path class="line a{nth}" d="{line}"/>')
        told = max(point[nth] for point in points)
        place = LEFT + 14 + (nth - 1) * 220
        parts.append(
            f'<rect class="key a{nth}" x="{place}" y="{TOP + 2}" width="11" height="11" rx="2"/>'
            f'<text class="tick" x="{place + 17}" y="{TOP + 12}">{escape(name)}, most {told:,}</text>'
        )
    parts += _moments(across, first, last, 1, height)
    return _svg(height, f"{names[0]} and {names[1]} over time", parts)


def _steps(points: Sequence[tuple[int, int, int]], nth: int, across: Axis, up: Axis) -> str:
    line = f"M{across(points[0][0]):.1f},{up(points[0][nth]):.1f}"
    for point in points[1:]:
        line += f"H{across(point[0]):.1f}V{up(point[nth]):.1f}"
    return line


def ranges(rows: Sequence[tuple[str, Sequence[int], str]]) -> str:
    """Draw a line for each row, on a logarithmic scale: name, p50, p99, p99.9 and max (µs), and a remark."""
    step, left = 27.0, 250.0
    height = step * len(rows) + TOP + BOTTOM
    values = [max(value, 1) for _, figures, _ in rows for value in figures]
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    across = Axis(low, high, left, WIDTH - RIGHT - 120)
    parts = []
    for power in range(low, high + 1):
        parts.append(_line("grid", across(power), TOP, across(power), height - BOTTOM))
        parts.append(_text(across(power), height - BOTTOM + 20, length(10.0**power)))
    for nth, (name, figures, remark) in enumerate(rows):
        middle = TOP + step * (nth + 0.5)
        places = [across(math.log10(max(value, 1))) for value in figures]
        shown = name if len(name) <= 30 else f"{name[:29]}…"
        told = (f"{what} {length(value)}" for what, value in zip(PERCENTILES, figures, strict=True))
        dots = (
            f'<circle class="p{n}" cx="{x:.1f}" cy="{middle:.1f}" r="4.5"/>' for n, x in enumerate(places)
        )
        parts += [
            f"<g><title>{escape(name)}: {escape(', '.join(told))}</title>",
            _text(left - 14, middle + 4, shown, "end", "name"),
            _line("range", places[0], middle, places[3], middle),
            *dots,
            _text(WIDTH - RIGHT, middle + 4, remark, "end"),
            "</g>",
        ]
    return _svg(height, "Lateness by topic", parts)


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _level(y: float, label: str) -> str:
    return _line("grid", LEFT, y, WIDTH - RIGHT, y) + _text(LEFT - 8, y + 4, label, "end")


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _moments(across: Axis, first: int, last: int, unit: int, height: float) -> list[str]:
    """Draw the time below a plot whose axis counts in steps of `unit` seconds."""
    step = next((each for each in _TICKS if (last - first) / each <= 8), _TICKS[-1])
    parts, day = [], ""
    for at in range(-(-first // step) * step, last + 1, step):
        moment = datetime.fromtimestamp(at, UTC)
        if step >= 86400:
            label = f"{moment:%d %b}"
        else:
            label = f"{moment:%H:%M}" if step >= 60 else f"{moment:%H:%M:%S}"
            if f"{moment:%d %b}" != day:
                day = f"{moment:%d %b}"
                label = f"{day}, {label}"
        x = across(at / unit)
        parts.append(_line("notch", x, height - BOTTOM, x, height - BOTTOM + 5))
        inside = x < WIDTH - RIGHT - 40
        parts.append(_text(x, height - BOTTOM + 20, label, "middle" if inside else "end"))
    return parts


def _round_levels(top: int) -> list[int]:
    """Return about four round numbers, from 0 to at least `top`."""
    size = 10 ** max(math.floor(math.log10(top / 4)), 0) if top > 4 else 1
    step = next(factor * size for factor in (1, 2, 5, 10, 20) if factor * size * 5 >= top)
    return [int(step * n) for n in range(math.ceil(top / step) + 1)]
