"""Writes the list of metrics in docs/how-to/runbook.md from the catalogue; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from relay.telemetry.metrics.catalogue import (
    COUNTERS,
    HISTOGRAMS,
    OF_HTTP,
    OF_RELAY,
    OF_TOPICS,
    InstrumentKind,
    InstrumentSpec,
)

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "runbook.md"
BEGIN, END = "<!-- metrics: written by tools/metrics_docs.py -->", "<!-- end of metrics -->"
TITLES = {
    "Counters": COUNTERS,
    "Histograms": HISTOGRAMS,
    "The JSON API": OF_HTTP,
    "How topics stand, the same from each relay": OF_TOPICS,
    "How a relay stands": OF_RELAY,
}


def prometheus_name(spec: InstrumentSpec) -> str:
    """As it stands at `/metrics`; of a histogram, what `_bucket`, `_count` and `_sum` are put after."""
    name = spec.name.replace(".", "_") + {"s": "_seconds", "By": "_bytes"}.get(spec.unit, "")
    return name + ("_total" if spec.kind is InstrumentKind.COUNTER else "")


def table(specs: tuple[InstrumentSpec, ...]) -> list[str]:
    """One line each."""
    lines = ["| at `/metrics` | by OTLP | unit | labels | |", "|---|---|---|---|---|"]
    for spec in specs:
        labels = ", ".join(f"`{name.replace('.', '_')}`" for name in spec.attributes)
        cells = f"`{prometheus_name(spec)}`", f"`{spec.name}`", f"`{spec.unit}`", labels, spec.description
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return lines


def text() -> str:
    """All of the list."""
    parts = [BEGIN, ""]
    for title, specs in TITLES.items():
        parts += [f"### {title}", "", *table(specs), ""]
    return "\n".join([*parts, END])


def main(arguments: list[str]) -> int:
    """Write, or compare."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    fresh = before + text() + after
    if fresh == page:
        return 0
    if "--check" in arguments:
        print("docs/how-to/runbook.md lists other metrics than there are: python tools/metrics_docs.py")
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
