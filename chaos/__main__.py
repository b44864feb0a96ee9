"""`python -m chaos`: the table of faults, all rows or some.

    python -m chaos --short                  a few rows in half a minute each
    python -m chaos --row relay --seed 7     one row, once more as it was
    python -m chaos --resume results.jsonl   the rows that are not in the file yet; each is appended to it

The results of all rows become docs/reliability.md by `python -m chaos.report.page`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.report.page import line_of
from chaos.report.results import read
from chaos.rows import ROWS, SHORT, SHORT_RATE, SHORT_TIMERS, Row, row
from chaos.run import Tell, end_by_sigterm, run

OUT = Path("build/faults.jsonl")


def main(argv: Sequence[str] | None = None) -> int:
    """Play rows. Return 1 if one of them has broken what it promises."""
    options = parse(argv)
    end_by_sigterm()
    done = finished(options.resume) if options.resume else set()
    file = options.resume or options.out
    file.parent.mkdir(parents=True, exist_ok=True)
    failed = False
    for each in chosen(options):
        if each.name in done:
            print(f"{each.name}: is in {file}")
            continue
        seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000
        print(f"{each.name}: {each.breaks}; {each.topology}, {each.level}; seed {seed}", flush=True)
        result = run(each, seed, tell(each), code=options.code, keep=options.keep)
        with file.open("a", encoding="utf-8") as results:
            results.write(json.dumps(result) + "\n")
        print(f"\r{line_of(result)}", flush=True)
        failed |= not result["ok"]
    return int(failed)


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows to play, in the form that was asked for."""
    if options.short:
        return [row(name).sized(SHORT_TIMERS, number, SHORT_RATE) for name, number in SHORT.items()]
    return [sized(row(name), options) for name in options.row or [each.name for each in ROWS]]


def sized(each: Row, options: argparse.Namespace) -> Row:
    """The row in other sizes, if some were given."""
    return each.sized(options.timers or each.timers, options.faults or each.number, options.rate or each.rate)


def finished(file: Path) -> set[str]:
    """The names of the rows in a file."""
    return {result["row"] for result in read(file)}


def tell(each: Row) -> Tell:
    """Says how far the row is, on one line."""
    return lambda what: print(f"\r{each.name}: {what:<60}", end="", flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = ", ".join(each.name for each in ROWS)
    parser.add_argument(
        "--row", action="append", choices=[each.name for each in ROWS], metavar="NAME", help=names
    )
    parser.add_argument("--seed", type=int, help="what decides the faults and the load; else the time does")
    parser.add_argument("--short", action="store_true", help="few timers and few faults")
    parser.add_argument("--timers", type=int, help="instead of the row's own number")
    parser.add_argument("--faults", type=int, help="instead of the row's own number")
    parser.add_argument("--rate", type=float, help="timers a second")
    parser.add_argument(
        "--code", type=Path, help="a folder with other code of Relay (relay/ and lua/) for relays"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the ledgers and logs of the row")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--out", type=Path, default=OUT, help=f"where results are appended ({OUT})")
    files.add_argument("--resume", type=Path, help="the same, and the rows in it are not played again")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
