"""How values look on a page."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from urllib.parse import urlencode

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from markupsafe import Markup, escape

from relay.core.instants import LATEST, SECOND
from relay.core.recurring.rule import EPOCH

UNSEEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Kinds of characters that show nothing, or turn round what stands beside them."""

_HIDDEN = re.compile(r"[^ -~\u00a1-\u02ff\u0370-\u0588\u4e00-\u9fff]")
"""What may be one of those: all but the usual letters."""

WIDTH, HEIGHT = 96, 20
"""The size of a line over time, in its own units."""


def visible(text: str, *, lines: bool = False) -> str:
    """The text with its unseen characters as ⟨U+202E⟩; with `lines`, line ends and tabs stay as they are."""

    def show(found: re.Match[str]) -> str:
        each = found[0]
        if lines and each in "\n\t":
            return each
        return f"⟨U+{ord(each):04X}⟩" if unicodedata.category(each) in UNSEEN else each

    return _HIDDEN.sub(show, text)


def microseconds(moment: Timestamp | int | None) -> int | None:
    """An instant of a message or of core; None if it is unset."""
    if moment is None or isinstance(moment, int):
        return moment
    return moment.seconds * SECOND + moment.nanos // 1000 if moment.ByteSize() else None


def utc(instant: int) -> str:
    """An instant in ISO 8601, in UTC: to the second, or finer where it is."""
    text = (EPOCH + timedelta(microseconds=min(max(instant, 0), LATEST))).isoformat()
    return f"{text.rstrip('0')}Z" if "." in text else f"{text}Z"


def when(moment: Timestamp | int | None, *, otherwise: str = "–") -> Markup:
    """An instant, which the browser shows in its zone, in UTC or relative to now, as people choose."""
    instant = microseconds(moment)
    if instant is None:
        return Markup(f"<span class='none'>{escape(otherwise)}</span>")
    text = utc(instant)
    # No Markup.format: it reads its text again each time, which took a third of a long page's CPU.
    return Markup(f"<time datetime='{text}' data-ms='{instant // 1000}'>{text}</time>")


def name(text: str) -> Markup:
    """A name that somebody else chose: it changes the direction of nothing around it."""
    return Markup(f"<bdi class='name'>{escape(visible(text) or '(empty)')}</bdi>")


def count(number: int) -> str:
    """A number of things, its digits in groups of three by narrow spaces."""
    return f"{number:,}".replace(",", "\u202f")


def rate(number: float | None) -> str:
    """Timers a second; a dash where none is known."""
    if number is None:
        return "–"
    return count(round(number)) if number >= 100 else f"{number:.1f}"


def seconds(number: float | None) -> str:
    """A length of time, with two or three digits that matter."""
    if number is None:
        return "–"
    if number < 1:
        return f"{number * 1000:.3g} ms"
    if number < 120:
        return f"{number:.3g} s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if number >= size * 2 or unit == "min":
            return f"{number / size:.3g} {unit}"
    return ""


def length(message: Duration) -> str:
    """A length of time of a message."""
    return seconds(message.seconds + message.nanos / 1e9)


def size(number: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


@lru_cache(1_024, typed=True)
def address(path: str, **parameters: object) -> str:
    """The address of a page, with its parameters; those that are empty are left out. The rows of a page have
    the same few, and so have all overviews."""
    said = {key.rstrip("_"): value for key, value in parameters.items() if value not in ("", None)}
    return f"{path}?{urlencode(said, errors='surrogatepass')}" if said else path


def line(values: Sequence[float]) -> Markup:
    """The points of a line over time, for an SVG of `WIDTH` × `HEIGHT`."""
    if len(values) < 2:
        return Markup("")
    low, step = min(values), WIDTH / (len(values) - 1)
    slope = (HEIGHT - 4) / ((max(values) - low) or 1)
    bottom = HEIGHT - 2 + low * slope
    return Markup(" ".join([f"{n * step:.1f},{bottom - each * slope:.1f}" for n, each in enumerate(values)]))


def numbers(values: Sequence[int]) -> Markup:
    """Whole numbers, with commas between them."""
    return Markup(",".join(map(str, values)))


FILTERS = {
    "when": when,
    "name": name,
    "visible": visible,
    "number": count,
    "rate": rate,
    "seconds": seconds,
    "duration": length,
    "size": size,
    "line": line,
    "numbers": numbers,
}
