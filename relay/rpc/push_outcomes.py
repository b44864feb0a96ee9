"""What the application says of pushed deliveries, and what the end of a call means for them.

The same for a call that carries one and for one that carries many; `timer_handler.proto` has it in
words for those who write applications.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import anyio
import grpc
from grpc import StatusCode

from relay.api import translate
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.outcomes import Ending, Verb
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import Session
from relay.engine.engine import Engine
from relay.rpc.application import Application

STATE_LAG = 0.05
"""Seconds by which a channel's state may come after the end of the calls on it."""

BREAKS = (StatusCode.CANCELLED, StatusCode.UNAVAILABLE)
"""What gRPC itself says of calls that lost their connection, or found none."""

log = logging.getLogger(__name__)


class Ends:
    """Tells the engine of the deliveries of one topic.

    `starts` and `lives` are called with the number of the connection on which a handler has started, or
    has shown that it lives, `bar` with a reason where the application has no handler.
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
        """Seconds until the first of them is given up."""
        return min(map(self._engine.time_left, leases))

    def received(self, tokens: Iterable[bytes], connection: int) -> None:
        """Handlers have started."""
        held = [token for token in tokens if token in self._session.leases]
        if held:
            self._engine.received(self._session, held)
            self._starts(connection)

    def acknowledged(self, tokens: Sequence[bytes]) -> None:
        """Handlers are done, and nothing is to be said of it."""
        self._engine.acknowledged(self._session, tokens)

    def settled(self, lease: Lease, said: translate.Ended) -> None:
        """A handler is done; what it says may be wrong."""
        try:
            ending = translate.ending(said, self._engine.max_payload_bytes(self.topic))
        except InvalidField as failure:
            log.warning("an answer is wrong", extra={"topic": self.topic, "reason": str(failure)})
            ending = Ending(Verb.NACK, error=str(failure))
        self._engine.end(self._session, lease.token, ending)

    def refused(self, leases: Iterable[Lease], reason: str) -> None:
        """No handler will have them."""
        for lease in leases:
            self._give_back(lease)
        self._bar(reason)

    def nack(self, leases: Iterable[Lease], error: str) -> None:
        """An attempt each, and no outcome."""
        error = translate.shortened(error, validate.MAX_REASON_BYTES)
        for lease in leases:
            self._engine.end(self._session, lease.token, Ending(Verb.NACK, error=error))

    async def failed(
        self, lease: Lease, failure: grpc.aio.AioRpcError, connection: int, *, receipted: bool
    ) -> None:
        """A call that carried this delivery alone has ended with a status other than OK."""
        receipts = {lease.token} if receipted else set()
        if await self._lost([lease], failure, connection, receipts):
            return
        code, words = failure.code(), failure.details() or ""
        if code is StatusCode.INVALID_ARGUMENT:
            error = translate.shortened(words, validate.MAX_REASON_BYTES)
            self._engine.end(self._session, lease.token, Ending(Verb.REJECT, error=error))
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
        """A call that carried several has ended so, before these had their outcomes."""
        if await self._lost(leases, failure, connection, receipts):
            return
        code, words = failure.code(), failure.details() or ""
        if code is StatusCode.DEADLINE_EXCEEDED:
            for lease in leases:
                if self._came(lease, receipts):
                    self.nack([lease], f"{code.name}: {words}")
                else:  # it waited in the application, all the time
                    suspect = lease.timer.suspect
                    self._engine.give_back(self._session, lease.token, received=False, suspect=suspect)
            return
        log.warning(
            "a batch failed; its timers come again one by one",
            extra={"topic": self.topic, "count": len(leases), "reason": f"{code.name}: {words}"},
        )
        self.isolate(leases, receipts)

    def isolate(self, leases: Iterable[Lease], receipts: Collection[bytes]) -> None:
        """One of them may be what made a call fail, and nobody knows which: each comes again alone."""
        for lease in leases:
            self._engine.give_back(
                self._session, lease.token, received=self._came(lease, receipts), suspect=True
            )

    async def _lost(
        self,
        leases: Sequence[Lease],
        failure: grpc.aio.AioRpcError,
        connection: int,
        receipts: Collection[bytes],
    ) -> bool:
        """Whether it was the connection, or for want of one, that a call failed; then they are released."""
        application = self.application
        if failure.code() not in BREAKS:
            return False
        await anyio.sleep(STATE_LAG)
        if application.never_began(failure, connection) or application.stopped(failure, connection):
            # It counts if there was a receipt: the engine knows.
            for lease in leases:
                self._give_back(lease)
        elif application.broke(failure, connection):
            # A handler may have been what broke it; unless it is known not to have started.
            for lease in leases:
                came = self._came(lease, receipts)
                self._engine.give_back(self._session, lease.token, received=came, suspect=came)
        elif application.sends_receipts and not any(lease.token in receipts for lease in leases):
            # It may have been the connection all the same: a channel's state may come later than STATE_LAG.
            for lease in leases:
                self._give_back(lease)
        else:
            return False
        return True

    def _came(self, lease: Lease, receipts: Collection[bytes]) -> bool:
        """Whether it came to a handler, as far as anybody can tell."""
        return lease.token in receipts or not self.application.sends_receipts

    def _give_back(self, lease: Lease) -> None:
        """The call did not come to a handler."""
        suspect = lease.timer.suspect
        self._engine.give_back(self._session, lease.token, received=False, suspect=suspect, began=False)
