"""The blocking client, for producers without an event loop: Django, Flask, scripts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, Unpack

from relay.client import arguments, timer_history
from relay.client.calls import batches, recurrence_calls, timer_calls
from relay.client.calls.calendars import SyncCalendars
from relay.client.calls.change_values import OnConflict, TimerChange
from relay.client.calls.channel import SyncGrpcWire, SyncWire, target_or_default
from relay.client.calls.recurrence_values import PutRecurrence, RecurOptions
from relay.client.calls.recurrences import SyncRecurrences
from relay.client.calls.timer_values import (
    NewTimer,
    ScheduledTimer,
    ScheduleOptions,
    ScheduleResult,
    Timer,
    TimerInfo,
    TimerState,
)
from relay.client.calls.topics import SyncTopics
from relay.client.credentials import Credentials
from relay.client.timer_history import TimerHistory
from relay.client.typed_topics import SyncTypedTopic

_T = TypeVar("_T")


class _Dialled:
    """One process's channel. After a fork, the thread that held the parent's lock is not there to release
    it."""

    __slots__ = ("lock", "wire")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wire: SyncWire | None = None


class SyncRelayClient:
    """Schedules timers with plain blocking calls. It has no handlers: `RelayClient` has.

    Make one when a module is imported and use it from any thread. It dials at the first call, and
    again in a process that was forked since. Arguments, results, errors and retries are those of
    `RelayClient`, call by call.

    >>> timers = SyncRelayClient()
    >>> def order_placed(order_id: int) -> None:
    ...     timers.schedule("reminders", b"%d" % order_id, delay=3600, timer_id=f"order-{order_id}")
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: float = 10.0,
        credentials: Credentials | None = None,
    ) -> None:
        self.target = target_or_default(target)
        self._credentials = (credentials or Credentials.from_environment()).check(self.target)
        self._timeout = timeout
        self._dialled: dict[int, _Dialled] = {}  # by process id
        self.double: SyncWire | None = None
        """What stands in for the channel in tests; `relay.client.testing` sets it."""
        self.topics = SyncTopics(self._wire, timeout)
        """See `RelayClient.topics`."""
        self.recurrences = SyncRecurrences(self._wire, timeout)
        """See `RelayClient.recurrences`."""
        self.calendars = SyncCalendars(self._wire, timeout)
        """See `RelayClient.calendars`."""

    def topic(self, name: str, of: type[_T], *, version: int = 1) -> SyncTypedTopic[_T]:
        """See `RelayClient.topic`. The topic has no handlers here: `PushHandlers.topic` and
        `RelayClient.topic` take them."""
        return SyncTypedTopic(self._wire, self._timeout, name, of, version)

    def schedule(
        self,
        topic: str,
        payload: bytes,
        *,
        timeout: float | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduledTimer:
        """See `RelayClient.schedule`."""
        return self._run(timer_calls.schedule(topic, payload, timeout=self._limit(timeout), **options))

    def schedule_batch(
        self,
        timers: Iterable[NewTimer],
        *,
        create_only: bool = False,
        on_conflict: OnConflict | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> list[ScheduleResult]:
        """See `RelayClient.schedule_batch`."""
        limit = self._limit(timeout)
        return self._run(
            batches.schedule_batch(
                timers,
                create_only=create_only,
                on_conflict=on_conflict,
                durability=durability,
                timeout=limit,
            )
        )

    def cancel(
        self,
        topic: str,
        timer_id: str,
        *,
        only_if_pending: bool = False,
        only_if_due_at: datetime | None = None,
        only_if_leased: bool = False,
        durability: str = "",
        timeout: float | None = None,
    ) -> TimerChange:
        """See `RelayClient.cancel`."""
        return self._run(
            timer_calls.cancel(
                topic,
                timer_id,
                only_if_pending=only_if_pending,
                only_if_due_at=only_if_due_at,
                only_if_leased=only_if_leased,
                durability=durability,
                timeout=self._limit(timeout),
            )
        )

    def run_timer(
        self, topic: str, timer_id: str, *, note: str = "", durability: str = "", timeout: float | None = None
    ) -> TimerChange:
        """See `RelayClient.run_timer`."""
        return self._run(timer_calls.run_timer(topic, timer_id, note, durability, self._limit(timeout)))

    def recur(
        self,
        recurrence_id: str,
        *,
        topic: str,
        if_version: int | None = None,
        note: str = "",
        durability: str = "",
        timeout: float | None = None,
        **options: Unpack[RecurOptions],
    ) -> PutRecurrence:
        """See `RelayClient.recur`."""
        return self._run(
            recurrence_calls.put(
                topic, recurrence_id, options, if_version, note, durability, self._limit(timeout)
            )
        )

    def get(self, topic: str, timer_id: str, *, timeout: float | None = None) -> Timer | None:
        """See `RelayClient.get`."""
        return self._run(timer_calls.get(topic, timer_id, self._limit(timeout)))

    def history(
        self,
        topic: str,
        timer_id: str,
        *,
        page_size: int = 100,
        page_token: str = "",
        timeout: float | None = None,
    ) -> TimerHistory:
        """See `RelayClient.history`."""
        return self._run(timer_history.history(topic, timer_id, page_size, page_token, self._limit(timeout)))

    def list(
        self,
        topic: str,
        *,
        state: TimerState | None = None,
        page_size: int = 100,
        timeout: float | None = None,
    ) -> Iterator[TimerInfo]:
        """See `RelayClient.list`."""
        timer_calls.check_list(topic, state, page_size)
        return self._pages(topic, state, page_size, self._limit(timeout))

    def close(self) -> None:
        """Close this process's channel. Calls under way in other threads end with `CallError`.

        This is not needed at the end of a process. A later call dials again.
        """
        dialled = self._here()
        with dialled.lock:
            wire, dialled.wire = dialled.wire, None
        if wire is not None:
            wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pages(
        self, topic: str, state: TimerState | None, page_size: int, timeout: float
    ) -> Iterator[TimerInfo]:
        token = ""
        while True:
            timers, token = self._run(timer_calls.page(topic, state, page_size, token, timeout))
            yield from timers
            if not token:
                return

    def _run(self, steps: timer_calls.Steps[_T]) -> _T:
        return timer_calls.run_blocking(self._wire(), steps)

    def _wire(self) -> SyncWire:
        if self.double is not None:
            return self.double
        dialled = self._here()
        with dialled.lock:
            if dialled.wire is None:
                dialled.wire = SyncGrpcWire(self.target, self._credentials)
            return dialled.wire

    def _here(self) -> _Dialled:
        """The channel of this process. A parent's channel stays beside it untouched, since it belongs to the
        parent."""
        process = os.getpid()
        return self._dialled.get(process) or self._dialled.setdefault(process, _Dialled())

    def _limit(self, timeout: float | None) -> float:
        return arguments.to_timeout(self._timeout if timeout is None else timeout)
