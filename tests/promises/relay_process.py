"""`relay serve` with a wall clock that is wrong, and with a janitor that makes its rounds in seconds.

    python -m tests.promises.relay_process serve

The variable `WALL_CLOCK_AHEAD` says by how many seconds the process's clock is ahead; a negative number means
that it is behind. All else is the relay as it ships.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

from grpc._cython import cygrpc  # type: ignore[attr-defined]

AHEAD = float(os.environ["WALL_CLOCK_AHEAD"])
_time, _time_ns = time.time, time.time_ns


def main() -> None:
    """Set the clock wrong before anything of Relay is imported, and run the command line."""
    # A machine's clock is wrong for all who read it. gRPC reads it twice for the time that a call has left,
    # first in C, where it can't be set wrong from here. So gRPC keeps the true one for the second time.
    cygrpc.time = SimpleNamespace(**vars(time))
    time.time = lambda: _time() + AHEAD
    time.time_ns = lambda: _time_ns() + int(AHEAD * 1e9)

    from relay.cli import main as command_line
    from relay.engine.upkeep import janitor

    janitor.INTERVAL = janitor.GRACE = 0.5  # seconds; the shipped ones are 300 and 60
    command_line()


if __name__ == "__main__":
    main()
