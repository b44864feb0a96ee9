"""A worker for a topic with `dispatch: list`. It uses redis-py and nothing of Relay.

    relay dev -c relay.yaml          # topics: {thumbnails: {dispatch: list, list: {processing_timeout: 60}}}
    python examples/workers/worker.py thumbnails redis://127.0.0.1:6379/0
    relay schedule thumbnails --in 2s --payload hello

It moves each job to the processing list and removes it when the work is done: if it dies in between, a relay
gives the job to another worker after `processing_timeout`. So the work may be done twice; `occurrence_id`
shows that.
"""

from __future__ import annotations

import json
import sys
import time
from typing import cast

import redis


def work(head: dict[str, object], payload: bytes) -> None:
    """Do the work: this function is yours."""
    late = time.time() - float(cast("float", head["due_time"]))
    print(f"{head['timer_id']}: {payload.decode(errors='replace')} ({late * 1000:.0f} ms late)", flush=True)


def main(topic: str, url: str, jobs: int | None = None) -> None:
    """Work without end, or for a number of jobs."""
    ready, processing = f"timers_ready:{topic}", f"timers_processing:{topic}"
    with redis.Redis.from_url(url) as server:
        while jobs is None or jobs > 0:
            entry = cast("bytes | None", server.blmove(ready, processing, 1, "RIGHT", "LEFT"))
            if entry is None:
                continue
            head, _, payload = entry.partition(b"\n")
            work(json.loads(head), payload)
            server.lrem(processing, 1, cast("str", entry))
            jobs = None if jobs is None else jobs - 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
