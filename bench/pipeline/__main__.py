"""`make bench-pipeline`, or `python -m bench.pipeline --only load --runs 3 --quick`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.harness.options import names_of, say
from bench.harness.processes import prioritise
from bench.pipeline import publish
from bench.pipeline.measures import MEASURES
from bench.pipeline.world import FULL, QUICK, World, server
from bench.report.machine import conditions
from bench.report.results import Results
from relay.pipeline.spark.session import session

PAGES = Path(__file__).resolve().parents[2] / "docs" / "performance"


def main(argv: list[str] | None = None) -> int:
    """Measure, write, say which targets were reached."""
    options = parse(argv)
    if options.priority is not None:
        prioritise(options.priority)
    results = measure(options)
    publish.say(results)
    if options.out:
        publish.publish(results, options.out)
        print(f"\nWritten to {options.out}")
    return 0


def measure(options: argparse.Namespace) -> Results:
    """All runs of what was asked for."""
    plan = QUICK if options.quick else FULL
    with server() as running, tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        form = f"{'quick' if options.quick else 'full'}: {plan.timers:,} timers"
        results = Results(conditions(running.name, form, options.runs))
        spark = session("bench", master=options.master, conf={"spark.local.dir": folder})
        results.conditions["spark"] = f"{spark.version}, {options.master}, driver 512 MB"
        found: dict[str, float] = {}
        try:
            for run in range(options.runs):
                world = World(plan, spark, running, Path(folder), found)
                for name in options.only:
                    began = time.monotonic()
                    print(f"\nrun {run + 1} of {options.runs}: {name}", flush=True)
                    for row in MEASURES[name](world):
                        results.add(run, row)
                        found[row.name] = row.value or 0.0
                        say(row)
                    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        finally:
            spark.stop()
        return results


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument(
        "--only", type=names_of(MEASURES), default=list(MEASURES), help=f"of: {', '.join(MEASURES)}"
    )
    parser.add_argument("--runs", type=int, default=3, help="how often; the page shows the spread (3)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--master", default="local[2]", help="Spark's (local[2])")
    parser.add_argument("--priority", type=int, help="niceness of all processes, such as -20 (root)")
    parser.add_argument("--out", type=Path, default=PAGES, help="where pipeline.md and the others go")
    parser.add_argument("--no-out", action="store_const", const=None, dest="out", help="write nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
