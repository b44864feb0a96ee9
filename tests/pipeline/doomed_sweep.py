"""A sweep in a process of its own that kills itself with SIGKILL at a chosen instant, or is killed.

    python -m tests.pipeline.doomed_sweep URL COLD TOPIC INSTANT

The instants: before a plan is published (`planning`), before its staged rows are (`staging`), behind that
(`staged`), and behind the word that all is done (`finalising`). With `loading` somebody else kills it while
batches are loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relay.pipeline.cold import guarded_load
from relay.pipeline.cold.plans import Plans
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import Sweep
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import session
from tests.pipeline.cold_world import OPTIONS
from tests.pipeline.small_jvm import SMALL_AND_QUICK
from tests.worlds.waiting import PATIENCE

RATE = 10_000.0


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def behind(step: Callable[..., Any]) -> Callable[..., Any]:
    def doomed(*args: Any) -> None:
        step(*args)
        die()

    return doomed


def main(url: str, path: str, topic: str, instant: str) -> None:
    target = Target(url, timeout=PATIENCE)  # it is to be killed before it gives up what is held
    spark = session("doomed", master="local[2]", conf=SMALL_AND_QUICK)
    if instant == "planning":
        Plans.begin = die  # type: ignore[method-assign]
    elif instant == "staging":
        Plans.stage = die  # type: ignore[method-assign]
    elif instant == "staged":
        guarded_load.load = die
    elif instant == "finalising":
        Plans.end = behind(Plans.end)  # type: ignore[method-assign]
    Sweep(spark, ColdStore(spark, path), target, [topic], replace(OPTIONS, rate=RATE)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
