"""The outcomes of pushed deliveries, and what the end of a call means for them.

This is the same for a call with one delivery and for a call with many. `timer_handler.proto` says it in
words for authors of applications.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import anyio
import grpc
from grpc import StatusCode

from relay.api import settlements, translate
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.outcomes import Ending, Verb
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import Session
from relay.engine.engine import Engine
from relay.rpc.application import Application
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler

STATE_LAG = 0.05
"""Seconds by which a channel's state may change after the end of the calls on it."""

BREAKS = (StatusCode.CANCELLED, StatusCode.UNAVAILABLE)
"""The statuses that gRPC itself gives to calls that lost their connection, or found none."""

log = logging.getLogger(__name__)


class Ends:
    """Reports the outcomes of one topic's deliveries to the engine.

    `starts` and `lives` are called with the number of the connection on which a handler has started, or
    has shown that it is alive. `bar` is called with a reason if the application has no handler.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        topic: str,
        application: Application,
        starts: Callable[[int], None],
        lives: Callable[[int], None],
        bar: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self.application = application
        self._starts = starts
        self.lives = lives
        self._engine = engine
        self._session = session
        self._bar = bar

    def time_left(self, leases: Iterable[Lease]) -> float:
        """Seconds until the first of the leases is given up."""
        return min(map(self._engine.time_left, leases))

    def received(self, tokens: Iterable[bytes], connection: int) -> None:
        """Note that handlers have started."""
        held = [token for token in tokens if token in self._session.leases]
        if held:
            self._engine.received(self._session, held)
            self._starts(connection)

    def settled(self, outcomes: Iterable[delivery.Settlement]) -> None:
        """Note that handlers are done. An outcome may be invalid."""
        settlements.take(self._engine, self._session, outcomes, wrong=self._wrong, extends=False)

    def answered(self, lease: Lease, said: handler.TimerHandlerDeliverResponse) -> None:
        """Note that the handler of a call of its own is done. Its outcome may be invalid."""
        try:
            settlements.end(self._engine, self._session, lease.token, said)
        except InvalidField as failure:
            self._wrong(lease.token, failure)

    def _wrong(self, token: bytes, failure: InvalidField) -> None:
        """Count an attempt for a delivery whose outcome is invalid."""
        log.warning("an answer is wrong", extra={"topic": self.topic, "reason": str(failure)})
        self._engine.end(self._session, [token], Ending(Verb.NACK, error=str(failure)))

    def refused(self, leases: Iterable[Lease], reason: str) -> None:
        """Release deliveries that no handler will take."""
        for lease in leases:
            self._give_back(lease)
        self._bar(reason)

    def nack(self, leases: Iterable[Lease], error: str) -> None:
        """Count an attempt for each delivery, which had no outcome."""
        error = translate.shortened(error, validate.MAX_REASON_BYTES)
        for lease in leases:
            self._engine.end(self._session, [lease.token], Ending(Verb.NACK, error=error))

    async def failed(
        self, lease: Lease, failure: grpc.aio.AioRpcError, connection: int, *, receipted: bool
    ) -> None:
        """Note that the call of this delivery alone has ended with a status other than OK."""
        receipts = {lease.token} if receipted else set()
        if await self._lost([lease], failure, connection, receipts):
            return
        code, words = failure.code(), failure.details() or ""
        if code is StatusCode.INVALID_ARGUMENT:
            error = translate.shortened(words, validate.MAX_REASON_BYTES)
            self._engine.end(self._session, [lease.token], Ending(Verb.REJECT, error=error))
        elif code is StatusCode.UNIMPLEMENTED:
            self.refused([lease], words)
        else:
            self.nack([lease], f"{code.name}: {words}")

    async def batch_failed(
        self,
        leases: Sequence[Lease],
        failure: grpc.aio.AioRpcError,
        connection: int,
        receipts: Collection[bytes],
    ) -> None:
        """Note that the call of several deliveries has ended so, before these had their outcomes."""
        if await self._lost(leases, failure, connection, receipts):
            return
        code, words = failure.code(), failure.details() or ""
        if code is StatusCode.DEADLINE_EXCEEDED:
            for lease in leases:
                if self._came(lease, receipts):
                    self.nack([lease], f"{code.name}: {words}")
                else:
                    self._waited(lease)
            return
        log.warning(
            "a batch failed; its timers come again one by one",
            extra={"topic": self.topic, "count": len(leases), "reason": f"{code.name}: {words}"},
        )
        self.isolate(leases, receipts)

    def isolate(self, leases: Iterable[Lease], receipts: Collection[bytes]) -> None:
        """Let each delivery come again alone: one of them may have made the call fail, and nobody knows
        which."""
        for lease in leases:
            came = self._came(lease, receipts)
            self._engine.give_back(self._session, lease.token, received=came, alone=True)

    async def _lost(
        self,
        leases: Sequence[Lease],
        failure: grpc.aio.AioRpcError,
        connection: int,
        receipts: Collection[bytes],
    ) -> bool:
        """Release the deliveries if the call failed because its connection broke, or because there was none.
        Returns whether it did."""
        application = self.application
        if failure.code() not in BREAKS:
            return False
        await anyio.sleep(STATE_LAG)
        if application.never_began(failure, connection) or application.stopped(failure, connection):
            # It counts if there was a receipt: the engine knows.
            for lease in leases:
                self._give_back(lease)
        elif application.broke(failure, connection):
            # A handler may have broken the connection, unless it is known not to have started.
            for lease in leases:
                if self._came(lease, receipts):
                    self._engine.give_back(self._session, lease.token, received=True, broken=True)
                else:
                    self._waited(lease)
        elif application.sends_receipts and not any(lease.token in receipts for lease in leases):
            # It may have been the connection even so: a channel's state may change later than STATE_LAG.
            for lease in leases:
                self._give_back(lease)
        else:
            return False
        return True

    def _came(self, lease: Lease, receipts: Collection[bytes]) -> bool:
        """Whether the delivery reached a handler, as far as anybody can tell."""
        return lease.token in receipts or not self.application.sends_receipts

    def _waited(self, lease: Lease) -> None:
        """Note that the delivery waited in the application for a handler until its call ended."""
        self._engine.give_back(self._session, lease.token, alone=lease.timer.suspect)

    def _give_back(self, lease: Lease) -> None:
        """Note that the call did not reach a handler."""
        self._engine.give_back(self._session, lease.token, began=False)
