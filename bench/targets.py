"""What Relay wants to reach, as ratios and bounds within one run, and whether it did."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.harness.rows import Key
from bench.measures import drain, peers, schedule

Run = Mapping[Key, float]


@dataclass(frozen=True)
class Target:
    """`figure` reads one run; a KeyError says that the run did not measure it."""

    name: str
    figure: Callable[[Run], float]
    bound: float
    unit: str = ""
    at_least: bool = False


@dataclass(frozen=True)
class Outcome:
    """A target beside what the runs found."""

    target: Target
    values: tuple[float, ...]

    @property
    def median(self) -> float | None:
        """Of the runs that measured it."""
        return statistics.median(self.values) if self.values else None

    @property
    def reached(self) -> bool | None:
        """By the median; None if no run measured it."""
        if self.median is None:
            return None
        bound = self.target.bound
        return self.median >= bound if self.target.at_least else self.median <= bound

    @property
    def word(self) -> str:
        """For people."""
        return {True: "reached", False: "**missed**", None: "not measured"}[self.reached]


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    """All targets, held against all runs."""
    return [Outcome(target, tuple(_figures(target, runs))) for target in TARGETS]


def _figures(target: Target, runs: Sequence[Run]) -> list[float]:
    found = []
    for run in runs:
        try:
            found.append(target.figure(run))
        except KeyError:
            continue
    return found


def of(measure: str, name: str, stat: str = "") -> Callable[[Run], float]:
    """One figure as it is."""
    return lambda run: run[measure, name, stat]


def ratio(measure: str, name: str, other: str) -> Callable[[Run], float]:
    """One figure over another of the same measure."""
    return lambda run: run[measure, name, ""] / run[measure, other, ""]


TARGETS = (
    Target(
        "drain by stream, of its ceiling", ratio("drain", drain.STREAM, drain.CEILING), 0.5, at_least=True
    ),
    Target(
        "drain by stream, concurrency 500, of its ceiling",
        ratio("drain", drain.WIDE, drain.CEILING_WIDE),
        0.5,
        at_least=True,
    ),
    Target(
        "drain by stream, of the best-tuned faststream-redis-timers",
        lambda run: run["drain", drain.STREAM, ""] / run["peers", peers.best("faststream-redis-timers"), ""],
        20,
        "times",
        at_least=True,
    ),
    Target("drain by stream", of("drain", drain.STREAM), 60_000, "timers/s", at_least=True),
    Target(
        "drain by unary push, of bare grpc.aio", ratio("drain", drain.PUSH, drain.BARE), 0.8, at_least=True
    ),
    Target(
        "drain with tracing 1 %, of the same without",
        ratio("drain", drain.TRACED, drain.CONTEXTS),
        0.95,
        at_least=True,
    ),
    Target(
        "ScheduleBatch, of its ceiling",
        ratio("schedule", schedule.BATCH, schedule.CEILING),
        0.5,
        at_least=True,
    ),
    Target(
        "unary schedule, concurrency 100, of bare grpc.aio",
        ratio("schedule", schedule.unary(100), schedule.bare(100)),
        0.8,
        at_least=True,
    ),
)
