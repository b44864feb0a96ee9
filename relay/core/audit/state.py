"""The memory of an audit: timers that live, and for a while those that have ended."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from relay.core.journal import RecordKind


@dataclass(slots=True)
class OpenLease:
    """A claim that has not ended. `until` and `since` are in microseconds."""

    nonce: bytes
    until: int
    since: int
    approximate: bool
    """Whether the due time by which it was claimed is a guess."""
    received: bool = False
    void: bool = False
    """Whether a foreign writer has ended it, as a refused token showed."""


@dataclass(slots=True)
class Living:
    """A timer as the journal knows it. Numbers that are None are unknown: earlier records are missing."""

    epoch: int
    entry: str
    time: int
    due: int | None = None
    attempts: int | None = 0
    claims: int | None = 0
    occurrence: bytes | None = b""
    """The nonce of its first claim; empty if there was none yet."""
    recorded: bool = False
    """Whether Redis holds a record of ours: then `adopted` or TAKEN shows what a foreign writer does to the
    timer."""
    accepted: bool = False
    """Whether the journal has seen it scheduled."""
    lease: OpenLease | None = None
    voided: bytes = b""
    """The nonce of a lease that the newest intent made void."""
    deliveries: int = 0
    """The leases of this occurrence under which the application had the timer."""
    nacked: bool = False
    """Whether the previous delivery was answered NACK, so that the next one is a retry."""
    missed: bool | None = None
    """Whether Redis had no such timer when it was asked; None means that it was not asked since the last
    record."""
    remembered: bool = False
    """Whether Redis had a record of ours then."""

    @property
    def live_lease(self) -> OpenLease | None:
        """The lease, unless it is known to be void."""
        return self.lease if self.lease is not None and not self.lease.void else None


@dataclass(frozen=True, slots=True)
class LastEnd:
    """The last end of a timer."""

    kind: RecordKind
    occurrence: bytes
    entry: str
    voided: bytes
    """The nonce of the lease that ended with it."""
    dead_id: str
    """The dead letter that was made."""


class Memory:
    """The last ends, at most a given number. They distinguish a late write to an ended timer from one to an
    unknown timer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[Hashable, LastEnd] = {}

    def add(self, timer_id: Hashable, ended: LastEnd) -> None:
        """Note an end, the last of all."""
        self._ends.pop(timer_id, None)
        self._ends[timer_id] = ended
        if len(self._ends) > self._most:
            del self._ends[next(iter(self._ends))]

    def get(self, timer_id: Hashable) -> LastEnd | None:
        """Return how the timer ended, if that is remembered."""
        return self._ends.get(timer_id)

    def forget(self, timer_id: Hashable) -> None:
        """Forget the end of a timer that lives again."""
        self._ends.pop(timer_id, None)

    def clear(self) -> None:
        """Forget all ends."""
        self._ends.clear()


class Nonces:
    """Recognises a nonce that was used before. It remembers the last nonces of each relay, and the highest
    one that it has forgotten: sequences rise, but a call may overtake another one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[bytes, dict[int, str]] = {}
        self._forgotten: dict[bytes, int] = {}

    def use(self, nonce: bytes, entry: str) -> str | None:
        """Return the entry in which a nonce was used before; None if it is fresh, empty if that is
        unknown."""
        relay, number = nonce[:8], int.from_bytes(nonce[8:], "big")
        seen = self._seen.setdefault(relay, {})
        if number in seen:
            return seen[number]
        if number <= self._forgotten.get(relay, -1):
            return ""
        seen[number] = entry
        if len(seen) > self._most:
            oldest = next(iter(seen))
            del seen[oldest]
            self._forgotten[relay] = max(oldest, self._forgotten.get(relay, -1))
        return None
