"""arq with deferred jobs. It needs an older redis-py than relay, so it lives in a venv of its own.

Its defaults are max_jobs 10, poll_delay 0.5 s, and results kept for an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from bench.applications.tally import Tally
from bench.peers.idle import PAUSE, one_by_one

TOGETHER = 100


async def main(work: str, url: str, timers: int, payload: int, **tuning: Any) -> None:
    """Drain, or wait for single timers."""
    logging.disable()
    tally = Tally(timers)
    content = "p" * payload
    settings = RedisSettings.from_dsn(url)
    pool = await create_pool(settings)

    async def job(context: Any, number: int, due: float, content: str) -> None:
        if work == "idle":
            tally.late(due)
        tally.count(str(number))

    async def store(number: int) -> None:
        due = time.time() + PAUSE
        when = datetime.fromtimestamp(due, UTC)
        await pool.enqueue_job("job", number, due, content, _job_id=str(number), _defer_until=when)

    if work == "drain":
        for start in range(0, timers, TOGETHER):
            await asyncio.gather(*map(store, range(start, min(start + TOGETHER, timers))))
        await asyncio.sleep(PAUSE)
    worker = Worker([func(job, name="job")], redis_settings=settings, handle_signals=False, **tuning)
    working = asyncio.create_task(worker.async_run())
    if work == "idle":
        await one_by_one(tally, timers, store)
    await tally.done.wait()
    working.cancel()
    await asyncio.wait([working])
    with contextlib.suppress(asyncio.CancelledError):  # of jobs whose end it was still writing
        await worker.close()
    await pool.aclose()
    tally.report(tally.seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
