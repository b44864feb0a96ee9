"""What both benches have on their command lines, and how they say a row."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from bench.harness.rows import Row


def names_of(measures: Iterable[str]) -> Callable[[str], list[str]]:
    """Reads names of measures, with commas between them."""
    known = list(measures)

    def names(text: str) -> list[str]:
        wanted = text.split(",")
        for name in wanted:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}; there are {', '.join(known)}")
        return wanted

    return names


def say(row: Row) -> None:
    """Print a figure."""
    value = "–" if row.value is None else f"{row.value:,.2f}"
    print(f"  {f'{row.name} {row.stat}':<72} {value:>14} {row.unit}", flush=True)
