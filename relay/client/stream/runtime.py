"""One period in which a client is open: the channel and the streams, from dialling to the close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from relay.client import errors
from relay.client.calls.channel import NONE, GrpcWire
from relay.client.connection_log import ConnectionLog
from relay.client.credentials import Credentials
from relay.client.handling.handlers import Registration
from relay.client.stream.declaring import declare
from relay.client.stream.subscription import Subscription
from relay.v1.recurrence_service_pb2 import RecurrenceSpec

_log = logging.getLogger("relay.client")


class Runtime:
    """Starts a stream for each registration, and declares recurrences; `on_refused` is called once if the
    relay refuses one of them."""

    def __init__(
        self,
        target: str,
        registrations: Iterable[Registration],
        declarations: Iterable[RecurrenceSpec],
        on_refused: Callable[[], None],
        credentials: Credentials = NONE,
    ) -> None:
        self.wire = GrpcWire(target, credentials)
        self.refusal: BaseException | None = None
        """Why a stream could not be opened or a recurrence declared, if one couldn't."""
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
        self._declaring: asyncio.Task[None] | None = None
        if specs := list(declarations):
            self._declaring = asyncio.create_task(declare(self.wire, specs), name="relay recurrences")
            self._declaring.add_done_callback(self._on_declared)

    def ready(self) -> bool:
        """Whether all streams are open and all recurrences declared."""
        declaring = self._declaring
        declared = declaring is None or (
            declaring.done() and not declaring.cancelled() and declaring.exception() is None
        )
        return declared and all(each.opened.is_set() for each in self._streams.values())

    async def wait_ready(self, timeout: float | None) -> None:
        """Wait until all streams are open and all recurrences declared. Raises the `CallError` of a refusal,
        or `DeadlineExceeded` after `timeout` seconds, or `UsageError` if the client was closed meanwhile."""
        opened = asyncio.ensure_future(self._all_opened())
        waits: list[asyncio.Task[None]] = [opened, *self._streams]
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if not done:
            raise errors.DeadlineExceeded(
                f"the relay at {self._target} did not open all streams, or take all recurrences, "
                f"within {timeout:g} s"
            )
        for task in done - {opened}:
            task.result()
            raise errors.UsageError("the client was closed meanwhile")
        await opened

    async def close(self, shutdown_timeout: float) -> None:
        """Drain the streams and close the channel; a second call waits for the first."""
        async with self._closing:
            tasks = [*self._streams, *([self._declaring] if self._declaring else [])]
            if self._declaring is not None:
                self._declaring.cancel()
            try:
                await asyncio.gather(*(each.stop(shutdown_timeout) for each in self._streams.values()))
                await asyncio.gather(*(each.wait_end(task) for task, each in self._streams.items()))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._streams = {}
                await self.wire.close()

    async def _all_opened(self) -> None:
        if self._declaring is not None:
            await asyncio.wait([self._declaring])
            if self._declaring.cancelled():
                raise errors.UsageError("the client was closed meanwhile")
            self._declaring.result()
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

    def _on_declared(self, task: asyncio.Task[None]) -> None:
        """Keep the refusal of a recurrence and pass it on to the application."""
        if task.cancelled() or (error := task.exception()) is None or self.refusal is not None:
            return
        _log.error("recurrence is refused: %s %s", error, " ".join(getattr(error, "__notes__", ())))
        self.refusal = error
        self._on_refused()
