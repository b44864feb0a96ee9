"""The exclusive right to deliver one timer, as the client's own parts see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from relay.client.errors import AlreadySettled, DeliveryLost
from relay.client.handling import settlements
from relay.client.handling.delivery_columns import Row
from relay.v1 import delivery_service_pb2 as pb


class Sent(Protocol):
    """A settlement on its way."""

    async def wait(self) -> bool:
        """Wait until it has left; return False if the stream broke before."""
        ...


class Stream(Protocol):
    """What a lease needs of the stream or call by which it came."""

    def settle(self, token: bytes, settlement: pb.Settlement) -> Sent | None:
        """Queue a settlement and return what carries it; None if the stream is gone."""
        ...

    def finished(self, lease: DeliveryLease) -> None:
        """Note that the handler has ended."""
        ...

    @property
    def closed(self) -> bool:
        """Whether outcomes are void by now."""
        ...


class DeliveryLease:
    """One delivery on its way through the client: its message, its token, its end."""

    __slots__ = ("_given_back", "_lost", "message", "on_extend", "outcome", "settled", "stream", "token")

    def __init__(self, message: pb.Delivery | Row, stream: Stream) -> None:
        self.message = message
        self.token = message.token
        self.stream = stream
        self.settled = False
        self.outcome: pb.Settlement | None = None
        """How it was settled, if it is."""
        self.on_extend: Callable[[], None] | None = None
        """Called with each EXTEND."""
        self._lost = False
        self._given_back = False

    @property
    def lost(self) -> bool:
        """Whether an outcome would be void: the timer moved on, or the stream broke."""
        return self._lost or (not self.settled and self.stream.closed)

    def lose(self) -> None:
        """Note that the relay reported the loss."""
        self._lost = True

    def settle(self, settlement: pb.Settlement) -> Sent:
        """Queue a settlement, one of `outcomes`. Raises `AlreadySettled` or `DeliveryLost`."""
        if self.settled:
            raise AlreadySettled(f"{self} has its outcome already")
        if self._lost:
            if settlement is not settlements.EXTEND:
                self._give_back(settlement)
            raise DeliveryLost(f"{self} was lost: its timer was rescheduled, cancelled or taken")
        sent = self.stream.settle(self.token, settlement)
        if sent is None:
            raise DeliveryLost(f"{self} was lost: its stream ended")
        if settlement is not settlements.EXTEND:
            self.settled, self.outcome = True, settlement
        elif self.on_extend is not None:
            self.on_extend()
        return sent

    def give_back(self) -> None:
        """Note that the handler has ended: what was lost meanwhile must have an outcome, too."""
        if self._lost and not self.settled:
            self._give_back(settlements.ABANDONED)

    def _give_back(self, settlement: pb.Settlement) -> None:
        """Send the outcome of a delivery that was lost. It changes nothing, but until it comes the relay
        keeps the delivery's place: for the rest of the lease, at most."""
        if not self._given_back:
            self._given_back = True
            self.stream.settle(self.token, settlement)

    def __str__(self) -> str:
        message = self.message
        return f"topic={message.topic} timer_id={message.timer_id} attempt={message.attempt}"
