"""A coalescer for each durability, since a wait for the disk is to delay those who asked for it, and nobody
else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import anyio

from relay.core.durability import STORED, Durability
from relay.engine.coalescing.batch import Items, Result
from relay.engine.coalescing.coalescer import Coalescer
from relay.engine.loop_starter import LoopStarter


class Levels(Generic[Items, Result]):  # see 0096
    """The coalescers of all levels, each made when it is first asked for."""

    def __init__(self, make: Callable[[Durability], Coalescer[Items, Result]]) -> None:
        self._make = make
        self._made = {STORED: make(STORED)}
        self._loops: LoopStarter | None = None

    def __getitem__(self, level: Durability) -> Coalescer[Items, Result]:
        """The one of a level."""
        coalescer = self._made.get(level)
        if coalescer is None:
            coalescer = self._made[level] = self._make(level)
            if self._loops is not None:
                self._loops.start(coalescer.run)
        return coalescer

    async def run(self) -> None:
        """Let all of them work until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._loops = LoopStarter(tasks)
                for coalescer in self._made.values():
                    self._loops.start(coalescer.run)
                await anyio.sleep_forever()
        finally:
            self._loops = None
