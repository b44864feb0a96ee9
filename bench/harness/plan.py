"""How much is measured: the sizes of everything, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """The default form. Counts are timers, times are seconds."""

    payload: int = 200
    """bytes"""
    turns: int = 2
    """in which the sides of a ratio are measured in one run"""
    drain: int = 200_000
    """due timers: the drain that counts, and the one whose cost is taken"""
    drain_beside: int = 60_000
    """for what stands beside it: its ceilings, and relay in other settings"""
    push: int = 10_000
    """for what handles one timer a call"""
    unary: Mapping[int, int] = field(default_factory=lambda: {1: 500, 10: 2_000, 100: 5_000})
    """calls, by concurrency"""
    batch: int = 100_000
    """timers scheduled in one call of the client"""
    durable: int = 600_000
    """timers of a batch that waits for the disk; a second or two is always spent on waiting"""
    durable_unary: int = 10_000
    """calls at least, where one takes no second"""
    durable_rounds: int = 8
    """calls of each caller at least"""
    peer: int = 4_000
    """for peers; each one's module says by how much it takes less"""
    idle_timers: int = 100
    """scheduled one by one into an idle topic"""
    peer_idle_timers: int = 5
    rates: tuple[int, ...] = (100, 1_000, 5_000, 20_000)
    """timers a second"""
    rate_time: float = 3.0
    burst: int = 100_000
    """timers due in the same second"""
    idle_topics: tuple[int, ...] = (1, 10, 100)
    idle_time: float = 10.0
    starts: int = 3
    waiting: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    """far-future timers in the topic that is drained"""
    waiting_drain: int = 50_000
    relays: tuple[int, ...] = (1, 2, 4, 8)
    relays_drain: int = 50_000
    pollers: int = 100
    payloads: Mapping[int, int] = field(default_factory=lambda: {0: 50_000, 1_024: 50_000, 65_536: 3_000})
    """timers, by bytes of payload"""
    cluster: int = 40_000
    """timers that go through each Cluster, and through the plain server beside them"""
    recurrences: int = 100_000
    """that fall on one minute"""
    recurring_time: float = 30.0
    pages_timers: int = 1_000_000
    """in the topic whose pages are asked for"""
    pages_dead: int = 100_000
    pages_recurrences: int = 10_000
    pages_topics: int = 497
    """beside the three that there are: a relay looks at 500"""
    pages_settled: float = 5.0
    """seconds until a relay that starts has looked at its recurrences"""
    pages_asked: int = 60
    """requests for each page"""
    pages_rate: int = 5_000
    """timers a second that pass beside"""
    pages_time: float = 10.0


QUICK = Plan(
    drain=40_000,
    drain_beside=20_000,
    push=3_000,
    unary={1: 200, 10: 1_000, 100: 3_000},
    batch=30_000,
    durable_unary=5_000,
    durable_rounds=4,
    peer=2_000,
    idle_timers=40,
    peer_idle_timers=3,
    rate_time=2.0,
    burst=30_000,
    idle_time=5.0,
    starts=1,
    waiting=(1_000, 10_000, 100_000),
    waiting_drain=20_000,
    relays_drain=20_000,
    payloads={0: 20_000, 1_024: 20_000, 65_536: 1_000},
    cluster=15_000,
    recurrences=20_000,
    recurring_time=10.0,
    pages_timers=200_000,
    pages_dead=20_000,
    pages_asked=20,
)

FULL = Plan(
    drain_beside=200_000,
    push=30_000,
    peer=12_000,
    rate_time=10.0,
    waiting=(1_000, 10_000, 100_000, 1_000_000, 5_000_000),
    cluster=200_000,
    recurring_time=90.0,
    pages_timers=10_000_000,
)

TINY = Plan(
    turns=1,
    drain=600,
    drain_beside=600,
    push=40,
    unary={1: 5, 100: 100},
    batch=600,
    durable=600,
    durable_unary=100,
    durable_rounds=1,
    peer=24,
    idle_timers=3,
    peer_idle_timers=1,
    rates=(5_000,),
    rate_time=0.05,
    burst=300,
    idle_topics=(1, 10),
    idle_time=0.5,
    starts=1,
    waiting=(1_000,),
    waiting_drain=300,
    relays=(1, 2),
    relays_drain=300,
    pollers=100,
    payloads={0: 100, 65_536: 20},
    cluster=300,
    recurrences=600,
    recurring_time=0.5,
    pages_timers=2_000,
    pages_dead=60,
    pages_recurrences=40,
    pages_topics=20,
    pages_settled=0.0,
    pages_asked=2,
    pages_rate=200,
    pages_time=0.2,
)
"""For the suite, which looks at counts and at no time."""
