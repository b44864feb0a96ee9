"""A lease as an object: one delivery of one timer, from claim to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.core.timers import ClaimedTimer

if TYPE_CHECKING:  # the client's testing borrows leases, and must not load OpenTelemetry with them
    from relay.telemetry.spans import DeliveryTrace


class Lease:
    """The exclusive right to deliver one timer.

    `deadline` and `silent_until` are instants of the engine's clock (seconds): the end of the
    lease as far as the relay knows, and when a delivery without a sign of life is given up.
    `deadline_time` is the deadline as the server told it (microseconds). `lost` says that the
    store called the token stale or the timer gone while the delivery was under way. `trace` is its
    span, if it has one.
    """

    __slots__ = (
        "deadline",
        "deadline_time",
        "lost",
        "nonce",
        "received",
        "sent",
        "silent_until",
        "timer",
        "token",
        "topic",
        "trace",
    )

    def __init__(
        self,
        topic: str,
        timer: ClaimedTimer,
        nonce: bytes,
        token: bytes,
        deadline: float,
        deadline_time: int,
        silent_until: float,
    ) -> None:
        self.topic = topic
        self.timer = timer
        self.nonce = nonce
        self.token = token
        self.deadline = deadline
        self.deadline_time = deadline_time
        self.silent_until = silent_until
        self.received = False
        self.sent = False
        self.lost = False
        self.trace: DeliveryTrace | None = None
