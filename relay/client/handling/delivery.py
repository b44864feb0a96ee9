"""What a handler gets, and how it answers."""

from __future__ import annotations

import enum
import json
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from relay.client import arguments
from relay.client.arguments import Seconds
from relay.client.errors import DeliveryLost
from relay.client.handling import settlements
from relay.client.handling.lease import DeliveryLease, Sent

CURRENT: ContextVar[Delivery] = ContextVar("relay_delivery")
"""The delivery that is being handled."""


def current_delivery() -> Delivery | None:
    """Return the delivery whose handler runs here: in the handler, what it calls, and its middleware, also in
    a plain handler's thread and in tasks that it starts. None elsewhere.

    >>> current_delivery() is None
    True
    """
    return CURRENT.get(None)


class AckPolicy(enum.Enum):
    """What a handler's end means for its timer.

    In every policy a handler may also settle by itself (`ack`, `nack`, `reject`, `reschedule`, or by
    raising `Nack`, `Reject` or `Reschedule`), and then that counts.
    """

    NACK_ON_ERROR = "nack_on_error"
    """Returning is ACK. An exception is NACK: the timer is delivered again, and the attempt counts."""
    REJECT_ON_ERROR = "reject_on_error"
    """Returning is ACK. An exception is REJECT: the timer is never delivered again."""
    MANUAL = "manual"
    """Neither means anything. A delivery that is not settled stays held until `delivery_timeout`, and
    takes up one of the stream's `concurrency + prefetch` places until then."""


class Nack(Exception):
    """Raise it in a handler: deliver the timer again.

    `retry_after` (seconds or a timedelta) is the pause; without it the topic's retry policy says
    how long to wait. The attempt counts. After the last attempt that the policy allows, the timer is dead;
    with `retryable=False` it is dead after this one, because another attempt would be useless. `reason`
    goes to the relay's log and into the dead letter.

    >>> raise Nack(retry_after=5, reason="mail server is busy")    # doctest: +SKIP
    """

    def __init__(
        self, retry_after: Seconds | None = None, reason: str = "", *, retryable: bool = True
    ) -> None:
        super().__init__(reason)
        self.settlement = settlements.nack(retry_after, reason, retryable=retryable)
        self.retry_after = retry_after
        self.reason = reason
        self.retryable = retryable


class Reject(Exception):
    """Raise it in a handler: the timer is dead, and never delivered again.

    `reason` goes to the relay's log and into the dead letter.

    >>> raise Reject("no such customer")    # doctest: +SKIP
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.settlement = settlements.reject(reason)
        self.reason = reason


class Reschedule(Exception):
    """Raise it in a handler: the timer is done for now, and due again at another time.

    Give `delay` (seconds or a timedelta, by the clock of Redis) or `due_time` (an aware datetime),
    and a new `payload` if the old one is not to stay. The end of this delivery and the new due
    time are one step in Redis, so that a timer that repeats can't be lost. This is a new occurrence,
    with attempts from 1 and without an expiry.

    >>> raise Reschedule(delay=3600)    # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        delay: Seconds | None = None,
        due_time: datetime | None = None,
        payload: bytes | None = None,
    ) -> None:
        super().__init__()
        self.settlement = settlements.reschedule(delay, due_time, payload)


class Delivery:
    """One attempt at handing a timer to this application.

    Delivery is at least once, so a handler must tolerate a second call for one timer;
    it can recognise one by the `occurrence_id`.

    >>> async def remind(delivery: Delivery) -> None:
    ...     invoice = delivery.json()
    ...     await send_mail(invoice["to"], key=delivery.occurrence_id)
    """

    __slots__ = ("_lease", "_message")

    def __init__(self, lease: DeliveryLease) -> None:
        self._lease = lease
        self._message = lease.message

    @property
    def topic(self) -> str:
        """The timer's topic."""
        return self._message.topic

    @property
    def timer_id(self) -> str:
        """The timer's name within its topic."""
        return self._message.timer_id

    @property
    def payload(self) -> bytes:
        """The content."""
        return self._message.payload

    @property
    def headers(self) -> dict[str, str]:
        """What travels beside the payload; a fresh dict at every access."""
        return dict(self._message.headers)

    @property
    def content_type(self) -> str:
        """The media type of the payload; may be empty."""
        return self._message.content_type

    @property
    def due_time(self) -> datetime:
        """When the timer fell due, as an aware datetime in UTC."""
        return arguments.to_datetime(self._message.due_time)

    @property
    def due_time_approximate(self) -> bool:
        """Whether `due_time` is a guess: a foreign worker held the timer before."""
        return self._message.due_time_approximate

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1. The same number may come twice: after a delivery that reached no
        handler, and after the death of a relay that had not yet recorded that one did."""
        return self._message.attempt

    @property
    def lease_deadline(self) -> datetime:
        """The lease's end as it was when the delivery was sent, as an aware datetime in UTC.

        The relay renews the lease by itself, up to `delivery_timeout` after the delivery or the last
        `extend`.
        """
        return arguments.to_datetime(self._message.lease_deadline)

    @property
    def occurrence_id(self) -> str:
        """An id that is the same on every redelivery of this timer, and new once the timer is scheduled
        again."""
        return self._message.occurrence_id

    @property
    def lost(self) -> bool:
        """Whether an outcome would be void by now: somebody else may be handling the timer already."""
        return self._lease.lost

    @property
    def settled(self) -> bool:
        """Whether the delivery has its outcome."""
        return self._lease.settled

    def json(self) -> Any:
        """Parse the payload as JSON. Raises `ValueError` if it is not JSON."""
        return json.loads(self._message.payload)

    async def ack(self) -> None:
        """Say that the timer is done: it leaves Redis. Returns when the outcome is on its way.

        Raises `AlreadySettled` or `DeliveryLost`, as the next four methods do.
        """
        await _sent(self._lease.settle(settlements.ACK))

    async def nack(
        self, *, retry_after: Seconds | None = None, reason: str = "", retryable: bool = True
    ) -> None:
        """Say that this attempt failed, and that the timer is to be delivered again; see `Nack`."""
        await _sent(self._lease.settle(settlements.nack(retry_after, reason, retryable=retryable)))

    async def reject(self, reason: str = "") -> None:
        """Say that the timer is dead, and never to be delivered again; see `Reject`."""
        await _sent(self._lease.settle(settlements.reject(reason)))

    async def reschedule(
        self,
        *,
        delay: Seconds | None = None,
        due_time: datetime | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Say that the timer is done for now, and due again at another time; see `Reschedule`."""
        await _sent(self._lease.settle(settlements.reschedule(delay, due_time, payload)))

    async def extend(self) -> None:
        """Say that the handler is still at work: the lease is renewed now, and `delivery_timeout` starts
        over.

        This may be called any number of times before the outcome. Raises `UsageError` in a `PushHandlers`
        handler, whose call has all of `delivery_timeout`.
        """
        await _sent(self._lease.settle(settlements.EXTEND))

    def __repr__(self) -> str:
        return f"<Delivery {self._lease}>"


async def _sent(sent: Sent) -> None:
    if not await sent.wait():
        raise DeliveryLost("the stream broke before the outcome was written")
