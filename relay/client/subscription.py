"""Keeps one topic's stream open for as long as the client lives."""

from __future__ import annotations

import asyncio
import logging

import grpc

from relay.client.backoff import Backoff
from relay.client.errors import CallError
from relay.client.handlers import Registration
from relay.client.handling import Handling
from relay.client.session import Session
from relay.client.wire import GrpcWire
from relay.client.workers import Workers

_log = logging.getLogger("relay.client")
_FATAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_END_PATIENCE = 5.0
"""Seconds to wait, once all is settled, for the relay to end the stream."""


class Subscription:
    """Opens a stream, reads it to its end, opens the next one."""

    def __init__(self, registration: Registration, wire: GrpcWire) -> None:
        self._registration = registration
        self._wire = wire
        self._handling = Handling(registration)
        self._workers = Workers(self._handling.handle, registration.concurrency, self._on_free)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._session: Session | None = None
        self._stopping = asyncio.Event()
        self._away = False
        self.opened = asyncio.Event()
        """Set while the stream is open."""

    @property
    def topic(self) -> str:
        """The topic."""
        return self._registration.topic

    async def run(self) -> None:
        """Reconnect until `stop`; raises `CallError` if the relay refuses to open the stream."""
        while not self._stopping.is_set():
            session = Session(self._registration, self._wire.deliver(), self._workers, self._on_opened)
            self._session = session
            failure: CallError | None = None
            try:
                await session.run()
            except CallError as error:
                failure = error
            finally:
                self._session = None
                self.opened.clear()
            if failure is not None and not session.opened and failure.code in _FATAL:
                raise failure
            self._tell_away(failure)
            await self._pause()

    async def stop(self, timeout: float) -> None:
        """Drain: let running handlers end within `timeout` seconds, settle, end the stream.

        To be called while `run` runs in another task, which then returns.
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

    def _on_opened(self) -> None:
        self._backoff.reset()
        self._away = False
        self.opened.set()
        _log.info("stream opened: topic=%s", self.topic)

    def _tell_away(self, failure: CallError | None) -> None:
        """Log that the stream is gone; once, however many tries it takes to reopen it."""
        if self._away or self._stopping.is_set():
            return
        self._away = True
        cause = "the relay ended it" if failure is None else str(failure)
        level = logging.INFO if failure is None else logging.WARNING
        _log.log(level, "stream is away, reconnecting: topic=%s: %s", self.topic, cause)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._backoff.next()):
                await self._stopping.wait()
        except TimeoutError:
            pass
