"""What an audit remembers: timers that live, and for a while those that have ended."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.journal import RecordKind


@dataclass(slots=True)
class OpenLease:
    """A claim that has not ended. `until` and `since` are microseconds."""

    nonce: bytes
    until: int
    since: int
    approximate: bool
    """The due time that it was claimed by is a guess."""
    received: bool = False
    void: bool = False
    """A foreign writer has ended it, as a refused token has told."""


@dataclass(slots=True)
class Living:
    """A timer as the journal knows it. Numbers that are None are not known: records before are missing."""

    epoch: int
    entry: str
    time: int
    due: int | None = None
    attempts: int | None = 0
    claims: int | None = 0
    occurrence: bytes | None = b""
    """That of its first claim; empty if there was none yet."""
    recorded: bool = False
    """Redis holds a record of ours: what a foreign writer does to it is told by `adopted` or TAKEN."""
    accepted: bool = False
    """The journal has seen it scheduled."""
    lease: OpenLease | None = None
    voided: bytes = b""
    """The nonce of a lease that the newest intent made void."""
    deliveries: int = 0
    """Of this occurrence: leases of which the application had the timer."""
    nacked: bool = False
    """The delivery before was answered NACK, and so the next one is a retry."""
    missed: bool | None = None
    """Whether Redis had no such timer when it was asked; None: not asked since the last record."""
    remembered: bool = False
    """Redis had a record of ours then."""

    @property
    def live_lease(self) -> OpenLease | None:
        """The lease, unless it is known to be void."""
        return self.lease if self.lease is not None and not self.lease.void else None


@dataclass(frozen=True, slots=True)
class LastEnd:
    """How a timer ended, last."""

    kind: RecordKind
    occurrence: bytes
    entry: str
    voided: bytes
    """The nonce of the lease that ended with it."""
    dead_id: str
    """The dead letter that was made."""


class Memory:
    """The last ends, at most so many. They tell a late write to an ended timer from one to a timer that was
    never heard of."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[str, LastEnd] = {}

    def add(self, timer_id: str, ended: LastEnd) -> None:
        """It has ended, the last of all."""
        self._ends.pop(timer_id, None)
        self._ends[timer_id] = ended
        if len(self._ends) > self._most:
            del self._ends[next(iter(self._ends))]

    def get(self, timer_id: str) -> LastEnd | None:
        """How it ended, if that is remembered."""
        return self._ends.get(timer_id)

    def forget(self, timer_id: str) -> None:
        """It lives again."""
        self._ends.pop(timer_id, None)

    def clear(self) -> None:
        """Nothing of what was is certain any more."""
        self._ends.clear()


class Nonces:
    """Tells a nonce that was used before. Of each relay it remembers the last so many, and the highest one
    that it has forgotten: sequences rise, but a call may overtake another one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[bytes, dict[int, str]] = {}
        self._forgotten: dict[bytes, int] = {}

    def use(self, nonce: bytes, entry: str) -> str | None:
        """The entry in which it was used before; None if it is fresh, empty where that can't be told."""
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
