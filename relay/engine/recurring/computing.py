"""Where rules are computed that take long: in a thread, beside the event loop.

Most rules are compiled within a millisecond, and have their next instant within another. A few take up to a
second: an RRULE with a COUNT is followed to its end once, and a rule that is put is held to its topic's pace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from relay.core.recurring.rule import Rule
from relay.rules import compile_rule

MOST = 10_000
"""Rules that are known to be compiled, at most; the compiler keeps more."""

T = TypeVar("T")


class Computing:
    """Computes one thing at a time, so that the thread takes no more than a part of a processor from the
    loop, whatever callers ask for."""

    def __init__(self) -> None:
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self._compiled: set[Rule] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Do what may take long, and return or raise what it does. Once begun, it is waited for."""
        return await anyio.to_thread.run_sync(work, limiter=self._one_at_a_time)

    async def compile(self, rule: Rule) -> None:
        """Have a rule compiled, so that the loop can compute its next instants at once."""
        if "COUNT" not in rule.rrule.upper() or rule in self._compiled:
            return
        try:
            await self.run(lambda: compile_rule(rule))
        except Exception:  # noqa: BLE001  (whoever computes it meets the same; others must not wait for it)
            return
        if len(self._compiled) >= MOST:
            self._compiled.clear()
        self._compiled.add(rule)
