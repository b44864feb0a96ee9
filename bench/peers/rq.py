"""rq with its own scheduler: `enqueue_at`, and a worker with a scheduler process beside it.

By default the worker forks for each job; the scheduler looks every second. The tuning `simple` takes rq's
SimpleWorker, which runs jobs in its own process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from bench.applications.tally import say
from bench.harness.quantiles import milliseconds
from bench.harness.timers import TOPIC
from bench.peers.idle import PAUSE, pause

JOB = "bench.peers.rq.job"


def job(log: str, number: int, due: float, content: str) -> None:
    """Note that it ran, whichever process this is."""
    line = json.dumps([number, due, time.time(), time.perf_counter()]) + "\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def ran(log: Path) -> list[list[float]]:
    """What the jobs have noted so far."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def store(queue: Queue, log: Path, number: int, payload: int) -> None:
    """A timer that is due in a moment."""
    due = datetime.now(UTC) + timedelta(seconds=PAUSE)
    queue.enqueue_at(due, JOB, str(log), number, due.timestamp(), "p" * payload)


def one_by_one(queue: Queue, log: Path, timers: int, payload: int) -> None:
    """Each after the one before."""
    for number in range(timers):
        time.sleep(pause())
        store(queue, log, number, payload)
        while len(ran(log)) <= number:
            time.sleep(0.02)


def main(work: str, url: str, timers: int, payload: int, *, simple: bool = False) -> None:
    """Drain, or wait for single timers."""
    log = Path(tempfile.mkstemp(prefix="bench-rq-")[1])
    redis = Redis.from_url(url)
    queue = Queue(TOPIC, connection=redis)
    if work == "drain":
        for number in range(timers):
            store(queue, log, number, payload)
        time.sleep(PAUSE)
    else:
        arguments = Queue(TOPIC, connection=Redis.from_url(url)), log, timers, payload
        threading.Thread(target=one_by_one, args=arguments, daemon=True).start()
    worker = (SimpleWorker if simple else Worker)([queue], connection=redis)
    worker.work(with_scheduler=True, max_jobs=timers, logging_level="ERROR")
    lines = ran(log)
    log.unlink()
    at = [line[3] for line in lines]
    handled = len({line[0] for line in lines})
    say(
        seconds=max(at) - min(at),
        handled=handled,
        again=len(lines) - handled,
        cpu=0.0,
        lateness=milliseconds([line[2] - line[1] for line in lines]),
    )


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    main(**argument)
