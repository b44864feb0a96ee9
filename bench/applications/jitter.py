"""How late this machine wakes anybody: a bare loop of `asyncio.sleep`.

Argument: `seconds` to go on. Says how much longer than asked for each sleep took, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench.applications.tally import say
from bench.harness.quantiles import milliseconds

SLEEP = 0.01


async def main(seconds: float) -> None:
    """Sleep again and again."""
    over: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        await asyncio.sleep(SLEEP)
        over.append(time.perf_counter() - began - SLEEP)
    say(lateness=milliseconds(over))


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
