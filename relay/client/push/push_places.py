"""The places that pushed deliveries wait for, and what a delivery needs of its call."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence

from relay.client.errors import UsageError
from relay.client.handling import settlements
from relay.client.handling.delivery import AckPolicy
from relay.client.handling.handlers import Registration
from relay.client.handling.invocation import Invocation
from relay.client.handling.lease import DeliveryLease, Sent
from relay.client.handling.workers import Workers
from relay.v1 import delivery_service_pb2 as delivery_pb

_log = logging.getLogger("relay.client")


class PushPlace:
    """One topic's handler, the deliveries that run, and those that wait for a place."""

    def __init__(self, registration: Registration) -> None:
        self.topic = registration.topic
        self.is_async = registration.is_async
        self.is_manual = registration.ack_policy is AckPolicy.MANUAL
        self.handling = Invocation(registration)
        self.workers = Workers(self.handling.handle, registration.places, self._begin_waiting)
        self._waiting: deque[tuple[PushCall, DeliveryLease]] = deque()
        self._closed = False

    def admit(self, call: PushCall, leases: Sequence[DeliveryLease]) -> None:
        """Begin each lease as soon as there is room, in order."""
        if self._closed:
            call.refuse(leases)
            return
        self._waiting.extend((call, lease) for lease in leases)
        self._begin_waiting()

    def dismiss(self, call: PushCall) -> None:
        """Begin no more leases of a call."""
        if any(entry[0] is call for entry in self._waiting):
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not call)

    def give_back(self) -> None:
        """Take back a place that was kept for a delivery and won't be used."""
        self.workers.give_back(1)
        self._begin_waiting()

    def close(self) -> None:
        """Refuse the deliveries that wait, and all that come."""
        self._closed = True
        while self._waiting:
            call, lease = self._waiting.popleft()
            call.refuse([lease])

    def _begin_waiting(self) -> None:
        while self._waiting and self.workers.reserve(1):
            call, lease = self._waiting.popleft()
            if not call.begin(lease):  # a loop, and not `give_back`: any number may have been cut off at once
                self.workers.give_back(1)


class PushCall:
    """What the leases of one call have in common; see `lease.Stream`.

    `over` is done once the call has ended and none of its handlers runs.
    """

    def __init__(self, place: PushPlace, messages: Iterable[delivery_pb.Delivery]) -> None:
        self.open = {message.token: DeliveryLease(message, self) for message in messages}
        """The leases without an outcome yet."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._place = place
        self._begun: set[DeliveryLease] = set()
        """The leases that have a place: their handlers run, or are about to."""
        self._ended = False

    @property
    def pending(self) -> int:
        """The number of handlers that it waits for."""
        return len(self._begun | set(self.open.values()))

    @property
    def closed(self) -> bool:
        """Whether outcomes are void by now."""
        raise NotImplementedError

    def begin(self, lease: DeliveryLease) -> bool:
        """Use a place: send the receipt, and only then start the handler. Returns False if the call was cut
        off, so that the place is not used."""
        raise NotImplementedError

    def refuse(self, leases: Sequence[DeliveryLease]) -> None:
        """Refuse these leases, whose handlers will not start because the application stops."""
        raise NotImplementedError

    def cut_off(self, lease: DeliveryLease) -> None:
        """Give up a lease whose handler has no time left for an outcome. The timer comes again, and the
        attempt counts."""
        raise NotImplementedError

    def settle(self, token: bytes, settlement: delivery_pb.Settlement) -> Sent | None:
        """Answer; return None if nobody waits for the answer any more. Raises `UsageError` for EXTEND."""
        if settlement is settlements.EXTEND:
            raise UsageError("a pushed delivery can't be extended: its call has delivery_timeout, all of it")
        if self.closed:
            return None
        del self.open[token]
        return self._say(token, settlement)

    def finished(self, lease: DeliveryLease) -> None:
        """Note that a handler has ended. Without an outcome it was cut off, or died of a BaseException; under
        MANUAL somebody else may still settle the delivery."""
        self._begun.discard(lease)
        if lease.token in self.open and not self._place.is_manual:
            self.cut_off(lease)
        self._look()

    def _say(self, token: bytes, settlement: delivery_pb.Settlement) -> Sent:
        raise NotImplementedError

    def _end(self) -> None:
        """Note that the call has ended. If its deadline passed, or the connection broke, outcomes are void. A
        thread can't be cancelled and keeps its place, so that no receipt is sent for a handler that would
        only wait for the thread."""
        self._ended = True
        if self.open:
            first = next(iter(self.open.values()))
            _log.warning("call ended before %d of its handlers; the first: %s", len(self.open), first)
            late = self._begun & set(self.open.values())
            self.open.clear()
            self._place.dismiss(self)
            if self._place.is_async:
                self._place.workers.cut(late)
        self._look()

    def _look(self) -> None:
        if self._ended and not self._begun and not self.over.done():
            self.over.set_result(None)
