"""The figures of all runs, and the file they are kept in."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.rows import Key, Row


@dataclass
class Figure:
    """One thing that was measured, in all runs; a run that could not has None."""

    measure: str
    name: str
    stat: str
    unit: str
    note: str
    runs: list[float | None] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """As that of its rows."""
        return self.measure, self.name, self.stat

    @property
    def values(self) -> list[float]:
        """Of the runs that have one."""
        return [value for value in self.runs if value is not None]

    @property
    def median(self) -> float | None:
        """The middle one."""
        return statistics.median(self.values) if self.values else None


class Results:
    """All figures, in the order in which they first came.

    `conditions` is what they were measured on; `apart`, what single measures were that ran without the rest.
    """

    def __init__(self, conditions: Mapping[str, Any]) -> None:
        self.conditions = dict(conditions)
        self.apart: dict[str, dict[str, Any]] = {}
        self._figures: dict[Key, Figure] = {}

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures.values())

    def add(self, run: int, row: Row) -> None:
        """Take in a row of a run (from 0)."""
        figure = self._figures.setdefault(
            row.key, Figure(row.measure, row.name, row.stat, row.unit, row.note)
        )
        figure.note = row.note or figure.note
        figure.runs += [None] * (run + 1 - len(figure.runs))
        figure.runs[run] = row.value

    def of(self, measure: str) -> list[Figure]:
        """The figures of one measure."""
        return [figure for figure in self if figure.measure == measure]

    def measures(self) -> list[str]:
        """Their names, each once."""
        return list(dict.fromkeys(figure.measure for figure in self))

    def runs(self) -> list[dict[Key, float]]:
        """The other way round: for each run what it found."""
        count = max((len(figure.runs) for figure in self), default=0)
        found: list[dict[Key, float]] = [{} for _ in range(count)]
        for figure in self:
            for run, value in enumerate(figure.runs):
                if value is not None:
                    found[run][figure.key] = value
        return found

    def median(self, measure: str, name: str, stat: str = "") -> float | None:
        """Of one figure; None if it was not measured."""
        figure = self.figure(measure, name, stat)
        return None if figure is None else figure.median

    def figure(self, measure: str, name: str, stat: str = "") -> Figure | None:
        """One; None if nobody tried to measure it."""
        return self._figures.get((measure, name, stat))

    def keep(self, earlier: Results) -> None:
        """Take over the measures of an earlier file that were left out this time, each in its place and with
        what it was measured on; then these were measured apart."""
        fresh = self.measures()
        if set(earlier.measures()) <= set(fresh):
            return
        own = [*self]
        self._figures = {}
        for measure in dict.fromkeys((*earlier.measures(), *fresh)):
            self.take(
                figure for figure in (own if measure in fresh else earlier) if figure.measure == measure
            )
        kept = {measure: said for measure, said in earlier.apart.items() if measure not in fresh}
        self.apart = kept | dict.fromkeys(fresh, self.conditions)
        self.conditions = earlier.conditions

    def take(self, figures: Iterable[Figure]) -> None:
        """Add whole figures."""
        self._figures |= {figure.key: figure for figure in figures}

    def write(self, path: Path, targets: list[dict[str, Any]]) -> None:
        """As JSON."""
        document = {
            "conditions": self.conditions,
            "apart": self.apart,
            "targets": targets,
            "figures": [
                {**vars(figure), "runs": [_rounded(value) for value in figure.runs]} for figure in self
            ],
        }
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Results:
    """What `write` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    results = Results(document["conditions"])
    results.apart = document.get("apart", {})
    results.take(Figure(**figure) for figure in document["figures"])
    return results


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
