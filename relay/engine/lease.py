"""A lease as an object: one delivery of one timer, from claim to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.core.timers import ClaimedTimer, content_size

if TYPE_CHECKING:  # the client's testing borrows leases, and must not load OpenTelemetry with them
    from relay.telemetry.spans import DeliveryTrace


class Lease:
    """The exclusive right to deliver one timer.

    `deadline` and `silent_until` are instants of the engine's clock (seconds): the end of the
    lease as far as the relay knows, and when a delivery without a sign of life is given up.
    `deadline_time` is the deadline as the server told it (microseconds). `due` is the timer's due time by the
    engine's clock, as well as the claim's round trip tells. `lost` says that the
    store called the token stale or the timer gone while the delivery was under way. `trace` is its
    span, if it has one. `sent_at` and `ended_at` are instants of the engine's clock, 0.0 until then: when it
    went out, and when the application said how it ended. `size` is about how many bytes its content has; the
    payload itself goes once it is written to a stream.
    """

    __slots__ = (
        "deadline",
        "deadline_time",
        "due",
        "ended_at",
        "lost",
        "nonce",
        "received",
        "sent",
        "sent_at",
        "silent_until",
        "size",
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
        due: float,
    ) -> None:
        self.topic = topic
        self.timer = timer
        self.nonce = nonce
        self.token = token
        self.deadline = deadline
        self.deadline_time = deadline_time
        self.silent_until = silent_until
        self.due = due
        self.size = content_size(timer)
        self.received = False
        self.sent = False
        self.sent_at = 0.0
        self.ended_at = 0.0
        self.lost = False
        self.trace: DeliveryTrace | None = None
