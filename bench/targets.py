"""What Relay wants to reach, as ratios and bounds within one run, and whether it did."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.harness.rows import Key
from bench.measures import (
    cluster,
    cost,
    drain,
    durability,
    lateness,
    pages,
    peers,
    persistence,
    recurrences,
    relays,
    schedule,
    sealing,
)

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


def late(run: Run, name: str) -> float:
    """The p99 of a lateness, in milliseconds."""
    return run["lateness", name, "p99"]


def last_of_burst(run: Run) -> float:
    """How late the last of those was that were due at once, against the time that draining them takes."""
    timers = run["lateness", lateness.BURST, "timers"]
    seconds = run["lateness", lateness.BURST, "max"] / 1000
    return seconds / (timers / run["drain", drain.STREAM, ""])


def idle_commands(run: Run) -> float:
    """The most commands that a topic costs while nothing is due, of all counts of topics."""
    counts = [n for n in range(1, 1001) if ("cost", cost.commands(n), "") in run]
    if not counts:
        raise KeyError(cost.commands(1))
    return max(run["cost", cost.commands(n), ""] / n for n in counts)


def sent_on(run: Run) -> float:
    """The commands that came to a wrong node, in all Clusters."""
    return sum(run["cluster", cluster.redirects(cluster.nodes(count)), ""] for count in cluster.NODES)


def slowest_page(run: Run) -> float:
    """The p99 of that page of the console which takes longest beside timers, in milliseconds."""
    beside = tuple(pages.BESIDES)
    took = [
        value
        for (measure, name, stat), value in run.items()
        if (measure, stat) == ("pages", "p99") and name.endswith(beside)
    ]
    if not took:
        raise KeyError("pages")
    return max(took)


def over_stored(synced: str, callers: int) -> Callable[[Run], float]:
    """How much longer a call waits at `fsync` than at `stored`, beyond what the disk takes: of the p99s, in
    milliseconds."""

    def figure(run: Run) -> float:
        fsync, stored = (
            run["durability", durability.unary(level, synced, callers), "p99"]
            for level in ("fsync", "stored")
        )
        return fsync - stored - run["durability", durability.DISK, "p99"]

    return figure


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
    Target("drain by push, of bare grpc.aio", ratio("drain", drain.PUSH, drain.BARE), 0.8, at_least=True),
    Target(
        "drain by unary push, of bare grpc.aio",
        ratio("drain", drain.UNARY_PUSH, drain.BARE),
        0.8,
        at_least=True,
    ),
    Target(
        "drain with tracing 1 %, of the same without",
        ratio("drain", drain.TRACED, drain.CONTEXTS),
        0.95,
        at_least=True,
    ),
    Target(
        "ScheduleColumns, by which relay's client sends a batch, of its ceiling",
        ratio("schedule", schedule.COLUMNS, schedule.CEILING),
        0.5,
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
    Target(
        "drain of a sealed topic, of a plain one",
        ratio("sealing", sealing.SEALED_DRAIN, sealing.DRAIN),
        0.85,
        at_least=True,
    ),
    Target(
        "load of a sealed topic, of a plain one",
        ratio("sealing", sealing.SEALED_LOAD, sealing.LOAD),
        0.85,
        at_least=True,
    ),
    Target(
        "lateness p99, idle queue, over the machine's own",
        lambda run: late(run, lateness.IDLE) - late(run, lateness.JITTER),
        5,
        "ms",
    ),
    Target(
        "lateness p99, idle queue, set through another relay, over the machine's own",
        lambda run: late(run, lateness.ELSEWHERE) - late(run, lateness.JITTER),
        5,
        "ms",
    ),
    Target("lateness p99 at 5,000/s", lambda run: late(run, lateness.steady(5_000)), 20, "ms"),
    Target("due at once: the last one, over timers ÷ drain rate", last_of_burst, 1.5, "times"),
    *(
        Target(
            f"batch at fsync, of stored, appendfsync {synced}",
            ratio("durability", durability.batch("fsync", synced), durability.batch("stored", synced)),
            0.8,
            at_least=True,
        )
        for synced in durability.SYNCED
    ),
    *(
        Target(
            f"unary p99 at fsync over stored and the disk, appendfsync {synced}, {callers:,} callers",
            over_stored(synced, callers),
            {"everysec": 1_100, "always": 3}[synced],
            "ms",
        )
        for synced in durability.SYNCED
        for callers in durability.CALLERS
    ),
    *(
        Target(
            f"drain by stream with appendfsync {file}, of the same without a file",
            ratio(
                "persistence",
                persistence.on(persistence.DRAIN, file),
                persistence.on(persistence.DRAIN, "no file"),
            ),
            0.85,
            at_least=True,
        )
        for file in ("everysec", "always")
    ),
    Target("idle: commands a topic", idle_commands, 1, "a second"),
    Target("idle: CPU with 10 topics", of("cost", cost.share(10)), 0.3, "% of a core"),
    Target("memory, idle", of("cost", cost.RSS_IDLE), 90, "MiB"),
    Target("memory, draining", of("cost", cost.RSS_PEAK), 160, "MiB"),
    Target("exec to SERVING", of("cost", cost.START), 1.0, "s"),
    Target("claim calls for each useful one, 8 relays", of("relays", relays.calls(8)), 1.1),
    *(
        Target(
            f"throughput of {more} relays, of {fewer}",
            ratio("relays", relays.rate(more), relays.rate(fewer)),
            0.95,
            at_least=True,
        )
        for fewer, more in pairwise((1, 2, 4, 8))
    ),
    Target("script calls of 100 idle relays for one timer", of("relays", relays.one_timer(100)), 200),
    *(
        Target(
            f"CPU of all servers, {cluster.nodes(count)}, of {cluster.PLAIN}",
            ratio("cluster", cluster.servers(cluster.nodes(count)), cluster.servers(cluster.PLAIN)),
            1.1,
        )
        for count in cluster.NODES
    ),
    Target(
        f"CPU of all servers, {cluster.nodes(3)}, of {cluster.ALONE}",
        ratio("cluster", cluster.servers(cluster.nodes(3)), cluster.servers(cluster.ALONE)),
        1.1,
    ),
    Target("commands to a wrong node of a Cluster", sent_on, 0),
    Target(
        "ticks: lateness p99 beside 5,000 timers/s",
        lambda run: run["recurrences", recurrences.LATE, "p99"],
        50,
        "ms",
    ),
    Target("the slowest page of the console beside 5,000 timers/s, p99", slowest_page, 100, "ms"),
    Target("50 open pages", of("pages", pages.open_pages(pages.OPEN), pages.SHARE), 3, "% of a core"),
)
