"""A clock under each process, by libfaketime, and all of them can be set. The monotonic clock goes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Literal

from chaos.under.preloaded import preload
from tests.servers import RunningServer
from tests.stepping import SteppingClock

Owner = Literal["server", "relay", "application"]


class Clocks:
    """Those of a world. Servers that run already are restarted with theirs, on what their files have."""

    def __init__(self, directory: Path, servers: Sequence[RunningServer] = ()) -> None:
        self._directory = directory
        self.of: dict[Owner, list[SteppingClock]] = defaultdict(list)
        """All clocks by whose they are."""
        for server in servers:
            server.shut_down()
            self.give("server", str(server.port), server.environment)
            server.start()

    def give(self, owner: Owner, name: str, environment: MutableMapping[str, str]) -> SteppingClock:
        """Have the process with these variables go by a clock of its own, from its next start on."""
        folder = self._directory / name
        folder.mkdir(parents=True)
        clock = SteppingClock(folder)
        others = dict(clock.environment)
        preload(environment, Path(others.pop("LD_PRELOAD")))
        environment.update(others)
        self.of[owner].append(clock)
        return clock
