"""docs/reliability.md, from results.

python -m chaos.report.page build/faults.jsonl     take over what is in there, row by row, and write the page
python -m chaos.report.page                        write it again
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from chaos import seeded
from chaos.report.results import Result, read, write
from chaos.rows import ROWS, Row

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
"""The last result of each row, in the order of the table."""
PAGE = HERE.parents[1] / "docs" / "reliability.md"
TEMPLATE = HERE / "template.md"


def main(argv: Sequence[str]) -> int:
    """Write the page."""
    found = {result["row"]: result for file in (RESULTS, *map(Path, argv)) for result in read(file)}
    results = [found[each.name] for each in ROWS if each.name in found]
    write(RESULTS, results)
    PAGE.write_text(page(results), encoding="utf-8")
    print(f"{len(results)} of {len(ROWS)} rows are in {PAGE}")
    return 0


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    rows = {each.name: each for each in ROWS}
    known = [(rows[result["row"]], result) for result in results if result["row"] in rows]
    left = [each for each in ROWS if each.name not in {result["row"] for result in results}]
    parts = {
        "table": table(known),
        "explained": explained(known),
        "conditions": conditions(known),
        "seeded": bugs({told["bug"]: told for told in read(seeded.RESULTS)}),
        "left": [*(f"- {told(each)}: this row was not run." for each in left), *unmet(known)],
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    return text


TITLES = (
    "what breaks", "servers", "durability", "acknowledged", "lost", "early", "undone", "twice", "not counted",
    "counted unseen", "stretch", "redelivery", "instants lost, double", "errors that callers saw",
)  # fmt: skip


def table(known: Iterable[tuple[Row, Result]]) -> Iterator[str]:
    yield f"| {' | '.join(TITLES)} |"
    yield "|" + "---|" * len(TITLES)
    for row, result in known:
        yield f"| {' | '.join(cells(row, result))} |"


def cells(row: Row, result: Result) -> Iterator[str]:
    """One row of the table."""
    verdict = result["verdict"]
    yield row.breaks if result["ok"] else f"**failed**: {row.breaks}"
    yield ", ".join([TOPOLOGIES[result["topology"]], *settings(row.config)])
    yield f"`{result['level']}`"
    yield f"{verdict['acknowledged']:,}"
    yield zero(verdict["lost"], verdict["timers"], verdict["lost_explained"])
    yield zero(verdict["early"], verdict["deliveries"])
    yield zero(verdict["undone"], verdict["changes"], verdict["undone_explained"])
    yield f"{verdict['twice']:,}"
    yield beside(f"{verdict['uncounted']:,}", verdict["uncounted_explained"])
    yield f"{verdict['overcounted']:,}"
    yield f"{verdict['stretch']:.1f} s"
    first, last = verdict["redelivery_first"], verdict["redelivery"]
    yield f"{first:.1f} to {last:.1f} s" if verdict["redelivered"] else ""
    yield f"{verdict['instants_lost']}, {verdict['instants_double']} of {verdict['instants']:,}"
    yield ", ".join(f"{number:,} {code}" for code, number in sorted(verdict["errors"].items())) or "none"


TOPOLOGIES = {
    "single": "one server",
    "sentinel": "master, 2 replicas, 3 Sentinels",
    "cluster": "Cluster of 3 + 3",
}


def zero(number: int, of: int, explained: int = 0) -> str:
    """A number, its bound if it is 0, and what is explained beside it."""
    return beside(f"{number:,}" if number else f"0 (<{300 / max(of, 1):.2g} %)", explained)


def beside(said: str, explained: int) -> str:
    """A cell, and what is explained beside it."""
    return f"{said}; {explained:,} explained" if explained else said


REASONS = {
    "lag": "the replica lagged by {:.2f} s at most",
    "split": "a replaced master kept answering for up to {:.1f} s, until it learned of that",
}


def explained(known: Iterable[tuple[Row, Result]]) -> Iterator[str]:
    """One line for each row in which servers may lose something, or timers were run by hand."""
    for row, result in known:
        lags, verdict = result["verdict"]["lags"], result["verdict"]
        if lags:
            lost = verdict["lost_explained"] + verdict["undone_explained"]
            reasons = [REASONS.get(why, why + ": up to {:.2f} s").format(lag) for why, lag in lags.items()]
            yield f"- {told(row)}: {lost:,} changes lost; {', '.join(reasons)}."
        if by_hand := verdict.get("by_hand"):
            waited = f"{by_hand:,} timers waited for a retry by the clock of before, and were run by hand"
            yield f"- {told(row)}: {waited}."


def conditions(known: Iterable[tuple[Row, Result]]) -> Iterator[str]:
    """What each row was run with."""
    titles = ("row", "timers", "faults", "`appendfsync`", "seed", "took", "busy", "waiting", "stolen", "day")
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row, result in known:
        machine = result["machine"]
        parts = [
            row.name,
            f"{result['verdict']['timers']:,} of {row.timers:,}",
            f"{sum(result['faults'].values())} of {row.number}: "
            + ", ".join(f"{name} {number}" for name, number in sorted(result["faults"].items())),
            result["asked"]["sync"],
            str(result["seed"]),
            f"{result['seconds'] / 60:.0f} min",
            *(f"{100 * machine[what]['median']:.0f} %" for what in ("busy", "waiting", "stolen")),
            result["when"][:10],
        ]
        yield f"| {' | '.join(parts)} |"


def unmet(known: Iterable[tuple[Row, Result]]) -> Iterator[str]:
    """One line for each row that has faults which its last run did not have."""
    for row, result in known:
        if names := [each.name for each in row.faults() if each.name not in result["faults"]]:
            yield f"- In the row `{row.name}`, when it ran last: {', '.join(names)}."


def bugs(found: Mapping[str, Result]) -> Iterator[str]:
    """What the judge made of each seeded bug."""
    yield "| bug | row | shows as | the journal's audit | tries | took |"
    yield "|---|---|---|---|---|---|"
    for bug in seeded.BUGS:
        told = found.get(bug.name)
        if told is None:
            yield f"| {bug.name} | {bug.row} | not looked for yet | | | |"
            continue
        shows = f"{told['found']:,} {bug.shows.replace('_', ' ')}" if told["found"] else "**not found**"
        took = f"{told['tries']} | {told['seconds']} s"
        yield f"| {bug.name} | {bug.row} | {shows} | {told['journal']} | {took} |"


def told(row: Row) -> str:
    servers = [TOPOLOGIES[row.topology], f"`{row.level}`", *settings({"appendfsync": row.sync, **row.config})]
    return f"{row.breaks} ({', '.join(servers)})"


def settings(config: Mapping[str, str]) -> Iterator[str]:
    """A server's settings, one after the other."""
    return (f"`{name} {value}`" for name, value in config.items())


def line_of(result: Result) -> str:
    """A result in one line, for a terminal."""
    verdict = result["verdict"]
    words = [
        "ok" if result["ok"] else "FAILED",
        f"{verdict['acknowledged']:,} acknowledged",
        f"lost {verdict['lost']} (explained {verdict['lost_explained']})",
        f"early {verdict['early']}",
        f"undone {verdict['undone']} (explained {verdict['undone_explained']})",
        f"twice {verdict['twice']}",
        f"redelivery {verdict['redelivery_first']:.1f} to {verdict['redelivery']:.1f} s",
        f"journal: {result['second']['verdict']}",
        f"{result['seconds']:.0f} s",
    ]
    odd = [*verdict["examples"], *result["second"]["refuted"], *result["second"]["differences"]]
    return "\n  ".join([f"{result['row']}: {', '.join(words)}", *(odd if not result["ok"] else ())])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
