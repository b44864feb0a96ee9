"""Push: for topics that say so, the relay dials the application's `TimerHandler`.

One `Pusher` a topic has a session with the engine, as a stream has, and turns its deliveries into
calls. It holds no timers while the application can't take them: the session's capacity is 0 while
the channel is not ready, 1 until the first sign of life on a new connection, then `max_concurrent`.

What a call's end says about the attempt is in `proto/relay/v1/timer_handler.proto`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from random import random

import anyio
import grpc

from relay.api import translate
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.outcomes import Ending, Verb
from relay.core.pacing import Backoff, Jitter
from relay.core.wakeup import Wakeup
from relay.engine.engine import Engine
from relay.engine.lease import Lease
from relay.rpc.application import Application
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as pb

RECEIPT = "relay-receipt"
"""Key of the initial metadata by which an application says that its handler has started."""

RECEIPT_AFTER = 0.5
"""Seconds after which a call that is still open on a ready channel counts as received."""

STATE_LAG = 0.05
"""Seconds by which a channel's state may come after the end of the calls on it."""

BREAKS = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
"""What gRPC itself says of calls that lost their connection, or found none."""

MAX_TRACE = 2048
"""Characters of `traceparent` or `tracestate` that go into the metadata, of which servers take
8 KiB in all; a longer one stands in the delivery's headers only. The standard asks for 512."""

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds until an application without a handler is called again."""

log = logging.getLogger(__name__)


async def push(engine: Engine) -> None:
    """Push all topics that are configured so, until the engine drains; one channel a target."""
    targets: dict[str, list[str]] = {}
    for topic, policy in engine.pushed().items():
        targets.setdefault(policy.target, []).append(topic)
    async with anyio.create_task_group() as tasks:
        for target, topics in targets.items():
            tasks.start_soon(_push_to, engine, target, topics)


async def _push_to(engine: Engine, target: str, topics: list[str]) -> None:
    async with Application(target) as application, anyio.create_task_group() as watching:
        watching.start_soon(application.run)
        async with anyio.create_task_group() as pushing:
            for topic in topics:
                pushing.start_soon(Pusher(engine, topic, application).run)
        watching.cancel_scope.cancel()


class Pusher:
    """Pushes the timers of one topic."""

    def __init__(self, engine: Engine, topic: str, application: Application, jitter: Jitter = random) -> None:
        self._engine = engine
        self._topic = topic
        self._application = application
        self._backoff = Backoff(jitter, first=FIRST_RETRY, limit=LAST_RETRY)
        self._session = engine.open([topic], 0)
        self._capacity = engine.pushed()[topic].max_concurrent
        self._queue: deque[Lease] = deque()
        """Deliveries that wait for a place among the calls under way; one whose lease is lost keeps its place
        there, though not in the session."""
        self._calls = 0
        """How many tasks make calls, one after the other."""
        self._barred = False
        """Whether the application has turned out to have no handler for the topic."""
        self._look = Wakeup()
        application.changed.append(self._look.set)

    async def run(self) -> None:
        """Push until the engine drains, and all calls have ended."""
        try:
            self._engine.attach(self._session)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                async with asyncio.TaskGroup() as calls:  # anyio's costs three times as much for each task
                    while not self._session.draining:
                        outgoing = await self._session.next()
                        for lease in outgoing.leases if outgoing else ():
                            self._queue.append(lease)
                            if self._calls < self._capacity:
                                self._calls += 1
                                calls.create_task(self._deliver_in_turn())
                tasks.cancel_scope.cancel()
        finally:
            self._engine.detach(self._session, broken=False)

    async def _follow(self) -> None:
        """Let the session hold as much as the application can take, as that changes."""
        while True:
            if self._barred:
                await anyio.sleep(self._backoff.failed())
                self._barred = False
            if self._application.ready:
                # One call, beside those that may still be under way, shows whether a handler lives.
                self._engine.resize(self._session, min(self._session.in_flight + 1, self._capacity))
            else:
                self._engine.resize(self._session, 0)
            await self._look.wait()

    async def _deliver_in_turn(self) -> None:
        try:
            while self._queue:
                lease = self._queue.popleft()
                if lease.token in self._session.leases and not self._session.draining:
                    await self._deliver(lease)
        finally:
            self._calls -= 1

    async def _deliver(self, lease: Lease) -> None:
        """One call, to its end."""
        connection = self._application.connection
        try:
            request = translate.pushed(lease)
        except ValueError as failure:  # of one odd timer the topic's other calls must not hear
            log.error("a delivery can't be put into a message", extra={"topic": self._topic})
            self._nack(lease, f"it can't be put into a message: {type(failure).__name__}")
            return
        call = self._application.call(
            request, timeout=self._engine.time_left(lease), metadata=_metadata(lease)
        )
        presumed = asyncio.get_running_loop().call_later(RECEIPT_AFTER, self._presume, lease, connection)
        receipted = False
        try:
            receipted = RECEIPT in {key for key, _ in await call.initial_metadata()}
            if receipted:
                self._application.sends_receipts = True
                self._received(lease, connection)
            answer = await call.read()
            await call.read()  # the status: to cancel what ends by itself looks to the server like an attack
            if isinstance(answer, pb.TimerHandlerDeliverResponse):
                self._application.sends_receipts = receipted
                self._answered(lease, answer)
                self._lives(connection)
            else:
                self._nack(lease, "the answer was empty")
        except grpc.aio.AioRpcError as failure:
            await self._failed(lease, failure, connection, receipted=receipted)
        except Exception as failure:
            log.exception("a call to the application failed", extra={"topic": self._topic})
            self._nack(lease, repr(failure))
        finally:
            presumed.cancel()
            call.cancel()

    def _presume(self, lease: Lease, connection: int) -> None:
        """A call that went out and stays open has come to the application."""
        if not self._application.sends_receipts:  # else it may wait there for its handler
            self._received(lease, connection)

    def _received(self, lease: Lease, connection: int) -> None:
        if lease.token in self._session.leases:
            self._engine.received(self._session, (lease.token,))
            self._lives(connection)

    def _lives(self, connection: int) -> None:
        """A handler answers on this connection: no more caution."""
        if connection != self._application.connection or not self._session.max_outstanding:
            return
        self._backoff.worked()
        if self._session.max_outstanding < self._capacity:
            self._engine.resize(self._session, self._capacity)

    def _answered(self, lease: Lease, answer: pb.TimerHandlerDeliverResponse) -> None:
        if answer.outcome == delivery.OUTCOME_UNSPECIFIED:
            answer.outcome = delivery.OUTCOME_ACK
        try:
            ending = translate.ending(answer, self._engine.max_payload_bytes(self._topic))
        except InvalidField as failure:
            log.warning("an answer is wrong", extra={"topic": self._topic, "reason": str(failure)})
            ending = Ending(Verb.NACK, error=str(failure))
        self._engine.end(self._session, lease.token, ending)

    async def _failed(
        self, lease: Lease, failure: grpc.aio.AioRpcError, connection: int, *, receipted: bool
    ) -> None:
        code, words = failure.code(), failure.details() or ""
        application = self._application
        if code in BREAKS:
            await anyio.sleep(STATE_LAG)
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            error = translate.shortened(words, validate.MAX_REASON_BYTES)
            self._engine.end(self._session, lease.token, Ending(Verb.REJECT, error=error))
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            self._bar(lease, words)
        elif application.never_began(failure, connection) or application.stopped(failure, connection):
            # It counts if there was a receipt: the engine knows.
            self._give_back(lease)
        elif application.broke(failure, connection):
            # The handler may have been what broke it; unless it is known not to have started.
            received = receipted or not application.sends_receipts
            self._engine.give_back(self._session, lease.token, received=received, suspect=received)
        elif code in BREAKS and application.sends_receipts and not receipted:
            # It may have been the connection all the same: a channel's state may come later than STATE_LAG.
            self._give_back(lease)
        else:
            self._nack(lease, f"{code.name}: {words}")

    def _bar(self, lease: Lease, words: str) -> None:
        self._give_back(lease)
        # One that is not ready stops or starts, and says nothing of the next one behind the address.
        if self._application.ready and not self._barred:
            self._engine.resize(self._session, 0)
            log.error(
                "the application has no handler for the topic; its timers wait",
                extra={"topic": self._topic, "target": self._application.target, "reason": words},
            )
            self._barred = True
            self._look.set()

    def _give_back(self, lease: Lease) -> None:
        """The call did not come to a handler."""
        suspect = lease.timer.suspect
        self._engine.give_back(self._session, lease.token, received=False, suspect=suspect, began=False)

    def _nack(self, lease: Lease, error: str) -> None:
        error = translate.shortened(error, validate.MAX_REASON_BYTES)
        self._engine.end(self._session, lease.token, Ending(Verb.NACK, error=error))


def _metadata(lease: Lease) -> tuple[tuple[str, str], ...]:
    """The trace context, where gRPC's own instrumentation looks for it."""
    headers: Mapping[str, str] = lease.timer.headers
    return tuple(
        (name, headers[name])
        for name in ("traceparent", "tracestate")
        if name in headers and _fits(headers[name])
    )


def _fits(text: str) -> bool:
    return len(text) <= MAX_TRACE and text.isascii() and text.isprintable()
