"""Counts what a process's handlers do, in the form that the process above adds up."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TypedDict

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of a handler's time, in seconds."""


class TopicCounts(TypedDict):
    """One topic's: `buckets` has a number for each of `BUCKETS`, and one for all that took longer."""

    running: int
    outcomes: dict[str, int]
    buckets: list[int]
    seconds: float


def nothing() -> TopicCounts:
    """Return counts of which all are 0."""
    return TopicCounts(running=0, outcomes={}, buckets=[0] * (len(BUCKETS) + 1), seconds=0.0)


class HandledCounts:
    """An `Observer` that counts. The event loop alone calls it."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}

    def began(self, topic: str) -> None:
        """See `Observer`."""
        self.topics.setdefault(topic, nothing())["running"] += 1

    def ended(self, topic: str, outcome: str, seconds: float) -> None:
        """See `Observer`."""
        counts = self.topics[topic]
        counts["running"] -= 1
        counts["outcomes"][outcome] = counts["outcomes"].get(outcome, 0) + 1
        counts["buckets"][bisect.bisect_left(BUCKETS, seconds)] += 1
        counts["seconds"] += seconds


def added(all_counts: Iterable[dict[str, TopicCounts]]) -> dict[str, TopicCounts]:
    """Return the sums of several processes' counts."""
    total: dict[str, TopicCounts] = {}
    for counts in all_counts:
        for topic, each in counts.items():
            sums = total.setdefault(topic, nothing())
            sums["running"] += each["running"]
            sums["seconds"] += each["seconds"]
            sums["buckets"] = [a + b for a, b in zip(sums["buckets"], each["buckets"], strict=True)]
            for outcome, count in each["outcomes"].items():
                sums["outcomes"][outcome] = sums["outcomes"].get(outcome, 0) + count
    return total
