"""`make bench`, or `python -m bench --only drain,lateness --runs 3 --quick`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from bench.harness.options import names_of, say
from bench.harness.plan import FULL, QUICK, Plan
from bench.harness.processes import prioritise
from bench.harness.server import NotEmpty, server
from bench.harness.world import World
from bench.measures import MEASURES
from bench.report import headline
from bench.report.machine import conditions
from bench.report.publish import RESULTS, publish, say_figures, say_targets
from bench.report.results import Results, read

FORMS = {"quick": QUICK, "default": Plan(), "full": FULL}
PAGES = Path(__file__).resolve().parent.parent / "docs" / "performance"


def main(argv: list[str] | None = None) -> int:
    """Measure, write, say which targets were reached."""
    options = parse(argv)
    if options.headline:
        headline.write(read(options.out / RESULTS), options.out)
        return 0
    if options.priority is not None:
        prioritise(options.priority)
    try:
        results = asyncio.run(measure(options))
    except NotEmpty as refusal:
        print(f"bench: {refusal}", file=sys.stderr)
        return 2
    say_figures(results)
    say_targets(results)
    if options.out:
        publish(results, options.out)
        print(f"\nWritten to {options.out}")
    return 0


async def measure(options: argparse.Namespace) -> Results:
    """All runs of what was asked for."""
    async with server(options.redis_url) as running:
        results = Results(conditions(running.name, options.form, options.runs))
        found: dict[str, Any] = {}
        for run in range(options.runs):
            world = World(FORMS[options.form], running, run, found)
            for name in options.only:
                began = time.monotonic()
                print(f"\nrun {run + 1} of {options.runs}: {name}", flush=True)
                async for row in MEASURES[name](world):
                    results.add(run, row)
                    say(row)
                print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        return results


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        type=names_of(MEASURES),
        default=list(MEASURES),
        metavar="NAMES",
        help=f"with commas, of: {', '.join(MEASURES)}",
    )
    parser.add_argument("--runs", type=int, default=3, help="how often; the page shows the spread (3)")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--quick", action="store_const", const="quick", dest="form", help="smaller sizes")
    forms.add_argument("--full", action="store_const", const="full", dest="form", help="the largest sizes")
    parser.add_argument("--redis-url", help="a server with an empty database; else an embedded Valkey")
    parser.add_argument("--priority", type=int, help="niceness of all processes, such as -20 (root)")
    parser.add_argument("--out", type=Path, default=PAGES, help="where results.json and the page go")
    parser.add_argument("--no-out", action="store_const", const=None, dest="out", help="write nothing")
    parser.add_argument("--headline", action="store_true", help="measure nothing; draw the README's picture")
    parser.set_defaults(form="default")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
