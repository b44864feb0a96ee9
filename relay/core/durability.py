"""What an OK means: which losses a change outlives that was answered so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

MOST_REPLICAS = 5
"""The most replicas that a call may wait for: each level has connections and a queue of its own."""

FORMS = f"stored, fsync, replicas:1 to replicas:{MOST_REPLICAS}, or both as in fsync+replicas:1"


@dataclass(frozen=True, slots=True)
class Durability:  # see 0096
    """A level: the server has the change, its disk has it (`fsync`), a number of `replicas` has it; with
    both, the disks of those replicas have it, too.

    As text: `stored`, `fsync`, `replicas:1`, `fsync+replicas:1`.
    """

    fsync: bool = False
    replicas: int = 0

    @classmethod
    def parse(cls, text: str) -> Durability:
        """The level that a text says. Raises `ValueError`, which says what to write."""
        if text == "stored":
            return STORED
        found = re.fullmatch(r"(fsync)?(?:(?(1)\+)replicas:([0-9]{1,9}))?", text)
        if not text or found is None:
            raise ValueError(f"{text!r} is not a durability; give {FORMS}")
        level = cls(found[1] is not None, int(found[2] or 0))
        if found[2] is not None and not 1 <= level.replicas <= MOST_REPLICAS:
            raise ValueError(f"{text!r} asks for {level.replicas} replicas; give {FORMS}")
        return level

    def __str__(self) -> str:
        parts = ("fsync",) * self.fsync + (f"replicas:{self.replicas}",) * (self.replicas > 0)
        return "+".join(parts) or "stored"

    @property
    def waits(self) -> bool:
        """Whether there is more to wait for than the server's OK."""
        return self.fsync or self.replicas > 0

    def joined(self, other: Durability) -> Durability:
        """The weakest level that is at least as strong as both."""
        return Durability(self.fsync or other.fsync, max(self.replicas, other.replicas))

    def common(self, other: Durability) -> Durability:
        """The strongest level that both have."""
        return Durability(self.fsync and other.fsync, min(self.replicas, other.replicas))


STORED = Durability()


def needed() -> Durability:
    """The durability that changes must have here; see `needing`."""
    return _needed.get()


@contextmanager
def needing(level: Durability) -> Iterator[None]:
    """Have every change that is written within the block reach a level before it counts as done. What only
    reads does not wait."""
    before = _needed.set(level)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away is closed in another context
            _needed.reset(before)


_needed: ContextVar[Durability] = ContextVar("needed", default=STORED)
