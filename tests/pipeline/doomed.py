"""Ends a driver as its machine would: with its JVM and all Python workers.

SIGKILL for the driver alone leaves the others at work for as long as they take to notice, and by then a job
may be done. So what a job must not reach is held on its line to Redis (`tests.ghosts.slow_line`), for as long
as the killing takes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from tests.ghosts.slow_line import SlowLine
    from tests.servers import RunningServer
    from tests.worlds.relay.processes import Process

LONGEST = 400.0
"""Seconds for a driver on a busy machine to come to its first batches."""


def end(pid: int) -> None:
    """SIGKILL for a process, such as a driver, and for all that it has started."""
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a worker may end with its driver
            each.kill()


def kill(driver: Process, line: SlowLine, server: RunningServer) -> None:
    """End a driver, and lose what the line holds. What has come through it is run when this returns."""
    end(driver.pid)
    assert driver.wait(60) == -9
    line.close()
    with server.client() as client:
        eventually(
            lambda: all(each["name"] != "relay-pipeline" for each in client.client_list()),
            "no worker is left",
        )
