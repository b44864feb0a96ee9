"""Leases without a store."""

from __future__ import annotations

from relay.core.timers import ClaimedTimer, ClaimedTimers
from relay.engine.delivery.leases import Leases


def leased(*timers: ClaimedTimer, topic: str = "t", nonce: bytes = b"n" * 16, claimed: int = 0) -> Leases:
    """What one claim of these brought at time `claimed`, under leases that last for years; the tokens are
    the timers' ids."""
    leases = Leases.of(
        topic,
        ClaimedTimers.of(timers),
        nonce,
        deadline_time=claimed,
        deadline=1e9,
        silent_until=1e9,
        epoch=0.0,
    )
    leases.tokens = [timer.timer_id.encode() for timer in timers]
    return leases
