"""A process goes by the clock that is under it, and its monotonic clock is the machine's."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from chaos.under.clocks import Clocks
from tests.servers import start_server
from tests.worlds.relay.processes import environment
from tests.worlds.waiting import eventually

HOUR = 3_600
MINUTE = 60.0
"""Seconds: no machine is so slow that two looks at a clock are that far apart."""


def test_a_server_goes_by_its_clock(tmp_path: Path) -> None:
    """It keeps what it had when the clock was put under it."""
    with start_server("valkey", config={"appendonly": "yes"}) as server:
        server.control.set("kept", "1")
        clocks = Clocks(tmp_path, [server])
        assert server.control.get("kept") == b"1"
        (clock,) = clocks.of["server"]
        for ahead in (HOUR, -HOUR, 0):
            clock.step(ahead)
            eventually(lambda: abs(server.control.time()[0] - time.time() - ahead) < MINUTE, "it is set")  # noqa: B023


def test_a_program_goes_by_its_clock(tmp_path: Path) -> None:
    variables = environment({})
    clock = Clocks(tmp_path).give("relay", "one", variables)
    clock.step(-HOUR)
    says = "import time; print(time.time(), time.monotonic())"
    done = subprocess.run([sys.executable, "-c", says], env=variables, capture_output=True, check=True)
    wall, monotonic = map(float, done.stdout.split())
    assert abs(wall - (time.time() - HOUR)) < MINUTE
    assert abs(monotonic - time.monotonic()) < MINUTE
