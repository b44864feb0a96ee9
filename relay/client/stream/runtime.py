"""One period in which a client is open: the channel and the streams, from dialling to the close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from relay.client import errors
from relay.client.calls.channel import GrpcWire
from relay.client.connection_log import ConnectionLog
from relay.client.handling.handlers import Registration
from relay.client.stream.subscription import Subscription

_log = logging.getLogger("relay.client")


class Runtime:
    """Starts a stream for each registration; `on_refused` is called once if one can't be opened."""

    def __init__(
        self,
        target: str,
        registrations: Iterable[Registration],
        on_refused: Callable[[], None],
    ) -> None:
        self.wire = GrpcWire(target)
        self.refusal: BaseException | None = None
        """Why a stream could not be opened, if one couldn't."""
        self._target = target
        self._on_refused = on_refused
        self._closing = asyncio.Lock()
        self._streams: dict[asyncio.Task[None], Subscription] = {}
        registrations = list(registrations)
        lines = ConnectionLog(target, [each.topic for each in registrations])
        for registration in registrations:
            subscription = Subscription(registration, self.wire, lines)
            task = asyncio.create_task(subscription.run(), name=f"relay {registration.topic}")
            task.add_done_callback(self._on_end)
            self._streams[task] = subscription

    def ready(self) -> bool:
        """Whether all streams are open."""
        return all(each.opened.is_set() for each in self._streams.values())

    async def wait_ready(self, timeout: float | None) -> None:
        """Wait until all streams are open. Raises the `CallError` of a refusal, or `DeadlineExceeded` after
        `timeout` seconds, or `UsageError` if the client was closed meanwhile."""
        opened = asyncio.ensure_future(self._all_opened())
        waits: list[asyncio.Task[None]] = [opened, *self._streams]
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if not done:
            raise errors.DeadlineExceeded(
                f"the relay at {self._target} did not open all streams within {timeout:g} s"
            )
        for task in done - {opened}:
            task.result()
            raise errors.UsageError("the client was closed meanwhile")

    async def close(self, shutdown_timeout: float) -> None:
        """Drain the streams and close the channel; a second call waits for the first."""
        async with self._closing:
            try:
                await asyncio.gather(*(each.stop(shutdown_timeout) for each in self._streams.values()))
                await asyncio.gather(*(each.wait_end(task) for task, each in self._streams.items()))
            finally:
                for task in self._streams:
                    task.cancel()
                await asyncio.gather(*self._streams, return_exceptions=True)
                self._streams = {}
                await self.wire.close()

    async def _all_opened(self) -> None:
        for subscription in self._streams.values():
            await subscription.opened.wait()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Keep a stream's refusal and pass it on to the application."""
        if task.cancelled() or (error := task.exception()) is None or self.refusal is not None:
            return
        error.add_note(f"({task.get_name()}: the stream could not be opened)")
        _log.error("stream is not retried: %s: %s", task.get_name(), error)
        self.refusal = error
        self._on_refused()
