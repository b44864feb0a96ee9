"""Values that break readers of CSV, for tests that hold writers and the reader together."""

from __future__ import annotations

import itertools
import random

PARTS = ('"', ",", "\n", "\r", "\r\n", "\t", "a", "é", "😀", "\\", " ", ";", "'", "\\N", "NULL", '""')
NUL = "\0"

BY_HAND = (
    "",
    '{"a": 1, "b": "x"}',
    "one\ntwo\r\nthree\rfour",
    '"',
    '""',
    ',"\n',
    "\\",
    '\\"',
    "ends in a backslash\\",
    " spaces around ",
    "\ttabs\t",
    "\ufeffmark",
    "=1+1",
    "#comment",
    "x" * 70_000,
    '"\n' * 5_000,
)


def values(*, nul: bool = False, returns: bool = True) -> list[str]:
    """Some hundred: those made by hand, all pairs of `PARTS`, and longer ones at random, the same each time.

    `nul`: with NULs. `returns`: with lone carriage returns.
    """
    dice = random.Random(24)
    parts = (*PARTS, NUL) if nul else PARTS
    longer = ["".join(dice.choices(parts, k=dice.randrange(3, 12))) for _ in range(400)]
    pairs = ["".join(pair) for pair in itertools.product(parts, repeat=2)]
    found = [*BY_HAND, *parts, *pairs, *longer]
    if returns:
        return found
    return [each for each in found if "\r" not in each.replace("\r\n", "")]
