"""The long form of the proofs of rules.

python -m tests.rules.prove --instants 1000000      # `make prove-rules`
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from multiprocessing import get_context

from relay.rules import TZDATA
from tests.rules import proof, rrule_proof

PIECE = 10_000
"""Instants that one process proves before it takes the next piece."""


REFERRED = 0.3
"""The share of cases that libraries are asked, too: they take most of the time."""


def piece(work: tuple[str, int]) -> Counter[str]:
    kind, seed = work
    warnings.simplefilter("error")
    return proof.prove(seed, PIECE, REFERRED) if kind == "cron" else rrule_proof.prove(seed, PIECE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Hold the instants of rules to their judge and to libraries."
    )
    parser.add_argument(
        "--instants", type=int, default=1_000_000, help="of cron expressions; a fifth more of RRULEs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    began = time.monotonic()
    counts = Counter[str]()
    pieces = -(-given.instants // PIECE)
    works = [("cron", given.seed + n) for n in range(pieces)]
    works += [("rrule", given.seed + n) for n in range(-(-pieces // 5))]
    with get_context("spawn").Pool(given.processes) as pool:
        for number, each in enumerate(pool.imap_unordered(piece, works), 1):
            counts.update(each)
            told = f"{counts['instants']:,} instants of cron, {counts['RRULE: instants']:,} of RRULEs"
            print(f"{number} of {len(works)} pieces, {told}", file=sys.stderr, flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:>10,} {name}")
    print(f"tzdata {TZDATA}, {time.monotonic() - began:.0f} s")
    if any("elsewhere" in name or name.endswith(": not as known") for name in counts):
        sys.exit("a reference differs in a way that is not known")


if __name__ == "__main__":
    main()
