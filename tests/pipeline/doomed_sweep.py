"""A sweep in a process of its own that kills itself with SIGKILL at a chosen instant.

    python -m tests.pipeline.doomed_sweep URL COLD TOPIC INSTANT

The instants: before a plan is published, before its staged rows are,
behind that, while batches are loaded, and behind the word that all is done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relay.pipeline.cold import guarded_load
from relay.pipeline.cold.plans import Plans
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import Sweep
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import session
from relay.store.keys import KeyNames
from tests.pipeline.cold_world import OPTIONS
from tests.pipeline.small_jvm import SMALL_AND_QUICK

BATCHES = 12
RATE = 10_000.0


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def behind(step: Callable[..., Any]) -> Callable[..., Any]:
    def doomed(*args: Any) -> None:
        step(*args)
        die()

    return doomed


def die_while_loading(target: Target, topic: str) -> None:
    """Once some batches are in the ledger."""
    with target.open() as store:
        while store.server.ask("HLEN", KeyNames().key("marks", topic)) < 7 + BATCHES:
            time.sleep(0.001)
    die()


def main(url: str, path: str, topic: str, instant: str) -> None:
    target = Target(url)
    spark = session("doomed", master="local[2]", conf=SMALL_AND_QUICK)
    if instant == "planning":
        Plans.begin = die  # type: ignore[method-assign]
    elif instant == "staging":
        Plans.stage = die  # type: ignore[method-assign]
    elif instant == "staged":
        guarded_load.load = die
    elif instant == "loading":
        threading.Thread(target=die_while_loading, args=(target, topic), daemon=True).start()
    else:
        Plans.end = behind(Plans.end)  # type: ignore[method-assign]
    Sweep(spark, ColdStore(spark, path), target, [topic], replace(OPTIONS, rate=RATE)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
