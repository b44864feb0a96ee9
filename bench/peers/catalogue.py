"""Which peers there are, and which tunings of each are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.peers.install import Installed, apart, beside, by_go, by_npm

Tuning = Mapping[str, Any]
WHOLE_SECONDS = "; its due times are whole seconds, so it comes up to one too early"


@dataclass(frozen=True)
class Peer:
    """One peer. `install` raises `Missing` where it can't be had.

    `tunings` are tried beside its defaults; the fastest is measured. `share` is the part of the plan's
    timers that it drains, `defaults_share` at its defaults: the slow ones get fewer, so that all end in
    time. `tidy` says that nothing of it may be left in Redis once it has drained. `punctual` is the
    tuning by which it looks as often as it may, if it looks at intervals. `remark` goes into the note of its
    lateness.
    """

    name: str
    install: Callable[[], Installed]
    tunings: tuple[Tuning, ...]
    share: float = 1.0
    defaults_share: float = 1.0
    tidy: bool = False
    punctual: Tuning = field(default_factory=dict)
    remark: str = ""


PEERS = (
    Peer(
        "faststream-redis-timers",
        partial(beside, "faststream", "faststream-redis-timers"),
        tunings=tuple(
            {"max_concurrent": concurrent, "polling_interval": 0.001}
            for concurrent in (50, 200, 1_000, 5_000)
        ),
        defaults_share=1 / 12,
        tidy=True,
        punctual={"max_concurrent": 50, "polling_interval": 0.001},
    ),
    Peer(
        "arq",
        partial(apart, "arq", "arq==0.28.0"),
        tunings=tuple({"max_jobs": jobs, "poll_delay": 0.01, "keep_result": 0} for jobs in (50, 200, 1_000)),
        share=1 / 2,
        defaults_share=1 / 12,
        punctual={"poll_delay": 0.01},
    ),
    Peer(
        "rq",
        partial(beside, "rq", "rq"),
        tunings=({"simple": True},),
        share=1 / 6,
        defaults_share=1 / 60,
        remark=WHOLE_SECONDS,
    ),
    Peer(
        "bullmq",
        partial(by_npm, "bullmq"),
        tunings=tuple({"concurrency": jobs, "remove": True} for jobs in (50, 200, 1_000)),
        defaults_share=1 / 3,
    ),
    Peer(
        "asynq",
        partial(by_go, "asynq", "github.com/hibiken/asynq"),
        tunings=tuple({"concurrency": tasks, "check_interval": 0.1} for tasks in (50, 200, 1_000)),
        defaults_share=1 / 3,
        punctual={"check_interval": 0.1},
        remark=WHOLE_SECONDS,
    ),
)
