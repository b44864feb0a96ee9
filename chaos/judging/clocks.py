"""The clocks of the servers during a run, which the judge goes by: what they can at most have shown, and
when.

A reading says that a clock showed `time` somewhere between `sent` and `heard`. So it is ahead of the
monotonic clock by `time - heard` at least and by `time - sent` at most, and the readings of a while together
narrow that down to less than the quickest of them took. A clock that was set shows itself in readings that
contradict each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from chaos.ledger import Entry

LONGEST = 10.0
"""Seconds after which a clock's distance is measured again: clocks are slewed, and drift."""
SILENCE = 0.5
"""Seconds without an answer after which a server counts as away."""
MICROSECOND = 1e-6
"""What a server's clock leaves out when it is read."""


@dataclass
class Stretch:
    """A while in which a clock was not set: at most from the reading before it to the one behind it."""

    begins: float
    ends: float
    least: float
    most: float
    """By how much it was ahead of the monotonic clock."""
    began: float
    """When its first reading was sent."""


class ServerClocks:
    """All that were a master's when they were read, or at the reading before or after that."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        readings: dict[int, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry["kind"] == "clock":
                readings[entry["port"]].append(entry)
        self._stretches = [stretch for of_one in readings.values() for stretch in stretches(of_one)]
        self._gaps = [gap for of_one in readings.values() for gap in gaps(of_one)]

    def latest(self, until: float, since: float = -math.inf) -> float:
        """The latest time (unix seconds) that a master's clock can have shown between two moments of the
        monotonic clock; minus infinity if none was read."""
        return max(
            (
                each.most + min(each.ends, until)
                for each in self._stretches
                if each.begins <= until and each.ends >= since
            ),
            default=-math.inf,
        )

    def monotonic(self, instant: float) -> float:
        """When (by the monotonic clock) a master's clock showed this (unix seconds), as far as is known."""
        found = [instant - each.most for each in self._stretches]
        fitting = (
            at for at, each in zip(found, self._stretches, strict=True) if each.begins <= at <= each.ends
        )
        return next(fitting, found[-1] if found else instant)

    def away(self, since: float, until: float) -> bool:
        """Whether some master did not answer, or took no writes, at some moment between these two."""
        return any(begins <= until and ends >= since for begins, ends in self._gaps)


def gaps(readings: list[Entry]) -> Iterator[tuple[float, float]]:
    """From when to when one server, which was a master before or after it, did not answer, or took no writes.
    It is read some twenty times a second."""
    for before, after in pairwise(readings):
        silent = after["heard"] - before["heard"] > SILENCE
        if (silent or before.get("full")) and (before["master"] or after["master"]):
            yield before["heard"], after["heard"]


def stretches(readings: list[Entry]) -> list[Stretch]:
    """Those of one server, in their order."""
    found: list[Stretch] = []
    masters = [each["master"] for each in readings]
    for n, each in enumerate(readings):
        if not any(masters[max(n - 1, 0) : n + 2]):
            continue
        least, most = each["time"] - each["heard"], each["time"] - each["sent"] + MICROSECOND
        before = readings[n - 1]["sent"] if n else -math.inf
        after = readings[n + 1]["heard"] if n + 1 < len(readings) else math.inf
        last = found[-1] if found else None
        if last and each["sent"] - last.began < LONGEST and least <= last.most and most >= last.least:
            last.least, last.most, last.ends = max(least, last.least), min(most, last.most), after
        else:
            found.append(Stretch(before, after, least, most, each["sent"]))
    return found
