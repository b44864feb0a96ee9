"""The contract between the engine and what keeps timers.

`relay.store` has two implementations, Redis and memory; `tests/contract` holds both to this page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from relay.core.outcomes import Extension, Settlement, Verdict
from relay.core.timers import Claim, NewTimer, Page, Scheduled, StoredTimer, TimerState

MAX_PER_CALL = 500
"""At most so many timers go into one store call."""


class TimerStore(Protocol):
    """Keeps the timers of all topics.

    Every call is atomic, speaks of one topic, and takes at most `MAX_PER_CALL` timers. "Now" is
    the store's own clock, never the caller's.

    A **token** is (timer_id, nonce). It is valid while the timer's lease is the one that was
    taken under that nonce and nobody has given the timer a new due time since. Calls with tokens
    answer per timer: OK, STALE (the token is not valid; nothing changed) or GONE (there is no
    such timer). One timer_id comes at most once in a call.

    Errors: `StoreUnavailable` says that nothing is known about the call; it may have happened.
    `StoreFull`, `WrongKeyType` and `StoreRefused` say that it did not.
    """

    async def schedule(self, topic: str, timers: Sequence[NewTimer]) -> list[Scheduled]:
        """Store timers, replacing those that live under the same id, whatever their state.

        A replaced timer starts anew: attempts 0, and a lease on it is void. Where an id comes
        twice, the later one stands. Raises `InvalidField` where a delay ends after 9999.
        """
        ...

    async def cancel(self, topic: str, timer_ids: Sequence[str]) -> list[bool]:
        """Remove timers, whatever their state; answers which were there."""
        ...

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """One timer with its payload."""
        ...

    async def claim(self, topic: str, *, limit: int, lease: int, nonce: bytes, max_bytes: int) -> Claim:
        """Lease up to `limit` timers that can be claimed now, the earliest first.

        A timer whose score is not after now can be claimed: a pending one that is due, and one
        whose lease (`lease`: microseconds) has run out. `nonce` has never been used before, not
        even by a try of this call that failed. Payloads sum up to about `max_bytes`; the first
        timer is taken whatever its size.
        """
        ...

    async def settle(self, topic: str, settlements: Sequence[Settlement]) -> list[Verdict]:
        """End leases (see `Settlement`). The timer is removed (ACK, REJECT), due again
        `retry_after` from now or when its lease would have ended (NACK), or due now (RELEASE);
        never before its due time. NACK counts an attempt, RELEASE does where a receipt came."""
        ...

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """Let leases end `lease` microseconds from now, never sooner than they would have."""
        ...

    async def list(self, topic: str, *, state: TimerState | None, limit: int, cursor: str) -> Page:
        """A page in the order of `next_claim`; `cursor` is that of the page before, or empty.

        Raises `InvalidField("page_token", …)` for a cursor that no page gave.
        """
        ...


class WakeHints(Protocol):
    """Tells that a topic's first timer has become an earlier one, through another relay too.

    Hints may get lost; who waits for one also polls now and then.
    """

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """Call `woken(due)` (microseconds) for each hint from now on."""
        ...

    async def unwatch(self, topic: str) -> None:
        """Stop."""
        ...


Probe = Callable[[], Awaitable[None]]
"""Asks the store for a sign of life; raises `StoreError`."""
