"""Push: for topics with `delivery.mode: push`, the relay dials the application's `TimerHandler`.

Each topic has a `Pusher` with a session of the engine, as a stream has. It turns deliveries into
calls: a batch a call, or one by one if the application has no `DeliverBatch`. It holds no timers
while the application can't take them: the session's capacity is 0 while the channel is not ready, 1
until the first sign of life on a new connection, then `max_concurrent`.

`proto/relay/v1/timer_handler.proto` and `relay/rpc/push_outcomes.py` say what the end of a call means for
attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from random import random

import anyio
import grpc

from relay.core.loop.wakeup import Wakeup
from relay.core.pacing import FailureBackoff, Jitter
from relay.core.policy import TargetTls
from relay.engine.delivery.leases import Lease
from relay.engine.engine import Engine
from relay.rpc.application import Application
from relay.rpc.push_calls import PushBatch, deliver
from relay.rpc.push_outcomes import Ends
from relay.rpc.unreadable import Count
from relay.trust.files import read

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds until an application without a handler is called again."""

SHORTLY = 0.005
"""Seconds that a receipt waits for its outcome before it counts as a sign of life. If the other timers were
claimed before the first one ends, batches of one and batches of all others would alternate without end."""

log = logging.getLogger(__name__)


async def push(engine: Engine, unreadable: Count) -> None:
    """Push all topics that are configured for it until the engine drains, with one channel for each target.

    `unreadable` is called with the method of each answer that can't be parsed.
    """
    targets: dict[tuple[str, TargetTls], list[str]] = {}
    for topic, policy in engine.pushed().items():
        targets.setdefault((policy.target, policy.target_tls), []).append(topic)
    async with anyio.create_task_group() as tasks:
        for (target, tls), topics in targets.items():
            application = Application(target, unreadable, credentials(tls))
            tasks.start_soon(_push_to, engine, application, topics)


def credentials(tls: TargetTls) -> grpc.ChannelCredentials | None:
    """What the channel to an application is made with; None for one in the clear. Raises `BadFile`."""
    if not tls.ca:
        return None

    def content(name: str, file: str) -> bytes | None:
        return read(f"delivery.tls.{name}", Path(file)) if file else None

    made: grpc.ChannelCredentials = grpc.ssl_channel_credentials(
        content("ca", tls.ca), content("key", tls.key), content("certificate", tls.certificate)
    )
    return made


async def _push_to(engine: Engine, application: Application, topics: list[str]) -> None:
    async with application, anyio.create_task_group() as watching:
        watching.start_soon(application.run)
        async with anyio.create_task_group() as pushing:
            for topic in topics:
                pushing.start_soon(Pusher(engine, topic, application).run)
        watching.cancel_scope.cancel()


class Pusher:  # see 0017
    """Pushes the timers of one topic."""

    def __init__(self, engine: Engine, topic: str, application: Application, jitter: Jitter = random) -> None:
        self._engine = engine
        self._topic = topic
        self._application = application
        self._backoff = FailureBackoff(jitter, first=FIRST_RETRY, limit=LAST_RETRY)
        self._session = engine.open([topic], 0)
        self._capacity = engine.pushed()[topic].max_concurrent
        self._ends = Ends(engine, self._session, topic, application, self._starts, self._lives, self._bar)
        self._frames: deque[list[Lease]] = deque()
        """Deliveries that wait for places in the application."""
        self._taken = 0
        """The places that are taken in the application. A delivery whose lease is lost keeps its place there,
        though not in the session."""
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
                    try:
                        while not self._session.draining:
                            outgoing = await self._session.next()
                            if outgoing and outgoing.leases:
                                self._frames.append(outgoing.leases)
                                self._send(calls)
                    finally:
                        self._frames.clear()  # deliveries that are still here make no more calls
                tasks.cancel_scope.cancel()
        finally:
            self._engine.detach(self._session, broken=False)

    async def _follow(self) -> None:
        """Let the session hold as many deliveries as the application can take, whenever that changes."""
        while True:
            if self._barred:
                await anyio.sleep(self._backoff.failed())
                self._barred = False
            if self._application.ready:
                # One delivery, beside those that may still be under way, shows whether a handler lives.
                self._engine.resize(self._session, min(self._session.in_flight + 1, self._capacity))
            else:
                self._engine.resize(self._session, 0)
            await self._look.wait()

    def _send(self, calls: asyncio.TaskGroup) -> None:
        """Call with as many of the waiting deliveries as there are places for."""
        while self._frames and self._taken < self._capacity and not self._session.draining:
            frame = self._frames.popleft()
            count = self._capacity - self._taken
            if frame[count:]:
                self._frames.appendleft(frame[count:])
            leases = [lease for lease in frame[:count] if self._holds(lease)]
            if leases:
                self._taken += len(leases)
                calls.create_task(self._deliver(leases, calls))

    async def _deliver(self, leases: list[Lease], calls: asyncio.TaskGroup) -> None:
        """Make one call and await its end; or a call for each delivery, if the application has no
        `DeliverBatch`."""

        def ended(count: int) -> None:
            self._taken -= count
            self._send(calls)

        if self._topic not in self._application.one_by_one:
            leases = await PushBatch(self._ends, leases, ended).run()
        wanted = [lease for lease in leases if not self._session.draining and self._holds(lease)]
        ended(len(leases) - len(wanted))
        for lease in wanted[1:]:
            calls.create_task(deliver(self._ends, lease, ended))
        if wanted:
            await deliver(self._ends, wanted[0], ended)

    def _holds(self, lease: Lease) -> bool:
        """Whether the delivery's lease is not lost."""
        return lease.token in self._session.leases

    def _starts(self, connection: int) -> None:
        """Note that a handler has started on this connection."""
        if self._session.max_outstanding < self._capacity:
            asyncio.get_running_loop().call_later(SHORTLY, self._lives, connection)

    def _lives(self, connection: int) -> None:
        """Note that a handler answers on this connection, and raise the capacity to `max_concurrent`."""
        if connection != self._application.connection or not self._session.max_outstanding:
            return
        self._backoff.worked()
        if self._session.max_outstanding < self._capacity:
            self._engine.resize(self._session, self._capacity)

    def _bar(self, reason: str) -> None:
        """Note that the application refuses deliveries because it has no handler for them."""
        # An application that is not ready is stopping or starting, and the next one behind the address may
        # differ.
        if self._application.ready and not self._barred:
            self._engine.resize(self._session, 0)
            log.error(
                "the application has no handler for the topic; its timers wait",
                extra={"topic": self._topic, "target": self._application.target, "reason": reason},
            )
            self._barred = True
            self._application.one_by_one.discard(self._topic)
            self._look.set()
