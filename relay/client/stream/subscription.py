"""Keeps one topic's stream open for as long as the client lives."""

from __future__ import annotations

import asyncio
import logging

import grpc

from relay.client.calls.backoff import RetryBackoff
from relay.client.calls.channel import GrpcWire
from relay.client.connection_log import ConnectionLog
from relay.client.errors import CallError
from relay.client.handling.handlers import Registration
from relay.client.handling.invocation import Invocation
from relay.client.handling.options import shortfall
from relay.client.handling.workers import Workers
from relay.client.stream.delivery_stream import DeliveryStream
from relay.v1 import delivery_service_pb2 as pb

_log = logging.getLogger("relay.client")
FATAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
"""What no second try mends."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
TOKEN_PATIENCE = 120.0
"""Seconds that a stream which was open before waits for another token in the file of its token. Kubernetes
brings a new one within about a minute."""
_END_PATIENCE = 5.0
"""Seconds to wait, once all is settled, for the relay to end the stream."""


class Subscription:  # see 0011
    """Opens a stream, reads it to its end, and opens the next one."""

    def __init__(self, registration: Registration, wire: GrpcWire, lines: ConnectionLog) -> None:
        self._registration = registration
        self._wire = wire
        self._lines = lines
        self._handling = Invocation(registration)
        self._workers = Workers(self._handling.handle, registration.places, self._on_free)
        self._backoff = RetryBackoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._session: DeliveryStream | None = None
        self._known_until: float | None = None
        """The event loop's time at which the patience for another token ends; None before the first open."""
        self._stopping = asyncio.Event()
        self._told = ""
        """What of the handler's wishes does not hold, as it was logged last."""
        self.opened = asyncio.Event()
        """Set while the stream is open."""

    @property
    def topic(self) -> str:
        """The topic."""
        return self._registration.topic

    async def run(self) -> None:
        """Reconnect until `stop`. Raises `CallError` if the relay refuses to open the stream."""
        while not self._stopping.is_set():
            session = DeliveryStream(self._registration, self._wire.deliver(), self._workers, self._on_opened)
            self._session = session
            failure: CallError | None = None
            try:
                await session.run()
            except CallError as error:
                failure = error
            finally:
                self._session = None
                self.opened.clear()
            if session.opened:
                self._known_until = asyncio.get_running_loop().time() + TOKEN_PATIENCE
            elif failure is not None and failure.code in FATAL and not self._awaits_token(failure):
                raise failure
            if not self._stopping.is_set():
                pause = max(self._backoff.next(), getattr(failure, "retry_after", None) or 0.0)
                self._lines.lost(failure, _then(pause), self.topic)
                await self._pause(pause)

    def _awaits_token(self, failure: CallError) -> bool:
        """Whether the relay knew this client by a token that it does not take any more, and that may be
        replaced: the next try reads its file again."""
        return (
            failure.code is grpc.StatusCode.UNAUTHENTICATED
            and self._wire.reads_token
            and self._known_until is not None
            and asyncio.get_running_loop().time() < self._known_until
        )

    async def stop(self, timeout: float) -> None:
        """Drain: let running handlers end within `timeout` seconds, settle, then end the stream.

        Call it while `run` runs in another task; `run` then returns.
        """
        self._stopping.set()
        if self._session is not None:
            self._session.drain(tell=True)
        try:
            async with asyncio.timeout(timeout):
                await self._workers.idle()
        except TimeoutError:
            cut_off = await self._workers.cancel(_END_PATIENCE)
            _log.warning(
                "%d handlers did not end within %g s and were cancelled: topic=%s",
                cut_off,
                timeout,
                self.topic,
            )
        finally:
            self._handling.close()

    async def wait_end(self, running: asyncio.Task[None]) -> None:
        """Give the relay a moment to end the stream by itself, then cut it."""
        done, _ = await asyncio.wait([running], timeout=_END_PATIENCE)
        if not done and self._session is not None:
            _log.warning("relay did not end the stream in time: topic=%s", self.topic)
            self._session.cut()
            await asyncio.wait([running])

    def _on_free(self) -> None:
        if self._session is not None:
            self._session.wake()

    def _on_opened(self, answer: pb.Opened) -> None:
        asked = self._registration.asked
        short = "" if asked is None else shortfall(asked, answer)
        if short and short != self._told:
            _log.warning("the handler's settings do not all hold: topic=%s: %s", self.topic, short)
        self._told = short
        self._backoff.reset()
        self.opened.set()
        self._lines.opened(self.topic)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _then(pause: float) -> str:
    return f"trying again in {pause:.2f} s, then at longer intervals of at most {_LONGEST_PAUSE:g} s"
