"""`RelayClient`: what an application opens, schedules through and registers handlers with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from relay.client import arguments, connection_log, errors, timer_history
from relay.client.calls import batches, recurrence_calls, timer_calls
from relay.client.calls.calendars import Calendars
from relay.client.calls.change_values import OnConflict, TimerChange
from relay.client.calls.channel import Wire, target_or_default
from relay.client.calls.recurrence_values import PutRecurrence, RecurOptions
from relay.client.calls.recurrences import Recurrences
from relay.client.calls.timer_values import (
    NewTimer,
    ScheduledTimer,
    ScheduleOptions,
    ScheduleResult,
    Timer,
    TimerInfo,
    TimerState,
)
from relay.client.calls.topics import Topics
from relay.client.credentials import Credentials
from relay.client.signals import stop_signals
from relay.client.stream.recurring_handlers import RecurringHandlers
from relay.client.stream.runtime import Runtime
from relay.client.timer_history import TimerHistory
from relay.client.typed_topics import TypedTopic

_T = TypeVar("_T")


class RelayClient(RecurringHandlers):
    """A connection to the relay beside this application.

    `target` is `host:port` or `unix:/path`. Without it the environment's `RELAY_TARGET` counts, and without
    that `127.0.0.1:7451`. `timeout` (seconds) bounds each call including its retries. `shutdown_timeout`
    (seconds) bounds how long running handlers may take to end at the close. `credentials` are what the client
    shows; without them those that the environment's `RELAY_CA` and its neighbours name.

    >>> client = RelayClient()
    >>> @client.on("invoices", concurrency=50)
    ... async def remind(delivery):
    ...     print(delivery.timer_id)
    >>> async def main():
    ...     async with client:
    ...         await client.schedule("invoices", b"42", delay=5.0)
    ...         await client.run()

    Leaving the `async with` closes in order: no new handlers start, and running ones end and settle. If the
    relay refuses to open a stream (because of a wrong topic, say), the body is cancelled and the `async with`
    raises that `CallError`. All methods belong to the event loop that opened the client.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: float = 10.0,
        shutdown_timeout: float = 30.0,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__()
        self.target = target_or_default(target)
        self._credentials = (credentials or Credentials.from_environment()).check(self.target)
        self._timeout = timeout
        self._shutdown_timeout = shutdown_timeout
        self._runtime: Runtime | None = None
        self._stop = asyncio.Event()
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_body = False
        self.double: Wire | None = None
        """What stands in for the channel in tests; `relay.client.testing` sets it."""
        self.topics = Topics(self._wire, timeout)
        """The calls of an operator: the state of topics, pauses, dead letters."""
        self.recurrences = Recurrences(self._wire, timeout)
        """Read, preview, pause, trigger, fill in and delete what `recur` keeps."""
        self.calendars = Calendars(self._wire, timeout)
        """Keep and read the calendars that rules name."""

    def topic(self, name: str, of: type[_T], *, version: int = 1) -> TypedTopic[_T]:
        """Name a topic whose payloads have a type: a pydantic model, a dataclass, a msgspec struct, a
        TypedDict, `dict`, `str` or `bytes`. What is returned schedules and cancels timers and takes the
        topic's handler.

        `version` is that of the payloads, written in their header `payload-version` from 2 on; `upcast` says
        how older ones become newer. Raises `InvalidArgument` for a type that no payload can be read as.

        >>> invoices = client.topic("invoices", Invoice)
        >>> await invoices.schedule(Invoice(to="a@example.org"), delay=3600)
        """
        return TypedTopic(self, self._wire, self._timeout, name, of, version)

    # --------------------------------------------------------------------- calls

    async def schedule(
        self,
        topic: str,
        payload: bytes,
        *,
        timeout: float | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduledTimer:
        """Store one timer. When this returns, the timer will be delivered, whatever dies meanwhile.

        Give `delay` (seconds or a timedelta, by the clock of Redis) or `due_time` (an aware
        datetime). A timer that exists under the `timer_id` is replaced; without a `timer_id`, a random one is
        made. From `expire_time` on, or from `expire_after` its due time, no delivery of it begins.

        `create_only` leaves an existing timer as it is; `on_conflict` says which of the two stands instead,
        such as the one that is due earlier. `debounce` is a delay that begins again with each call under the
        `timer_id`, until `at_most` after the first one. `spread` moves the due time back by less than that,
        to a place that the id decides. `only_if_pending` replaces only a timer that is not
        being delivered, `only_if_due_at` only one with this due time; both raise `NotFound` if there is
        none. The `result` says what became of the call, and `delivery_under_way` whether the timer that
        existed was being delivered, so that its handler may still be running.

        `durability` says what must hold when this returns, if the topic does not ask for more: `stored`,
        `fsync` (the server's disk has it), `replicas:1` to `replicas:5`, or both as in `fsync+replicas:1`.
        `NotDurable` says that it was not so in time: the timer may stand. `FailedPrecondition` says what the
        server can't give, and that nothing was stored.

        `seal_with` names whom the payload is about, in a topic that is sealed: `topics.forget_subject` makes
        all that was scheduled with the same name unreadable for good.

        `expected_load` asks how late the timer will be by what else is due: see `ExpectedLoad`. That needs
        the right to read the topic.

        `occurrence_id` is your own name for this life of the timer, such as `f"{timer_id}/{uuid4().hex}"`.
        Its deliveries carry it. While it lives, a call that names it again changes nothing, and is answered
        UNCHANGED.

        While the relay is away the call is repeated under the same id for `timeout` seconds. After
        an answer that got lost, UNCHANGED may be the call's own doing. Raises `CallError`:
        `InvalidArgument` names the field, `ResourceExhausted` says that the topic or Redis is full,
        `Unavailable` and `DeadlineExceeded` leave open whether the timer was stored; from then on it won't
        be.

        >>> await client.schedule("invoices", b"42", delay=5.0, timer_id="invoice-42")
        """
        return await self._run(timer_calls.schedule(topic, payload, timeout=self._limit(timeout), **options))

    async def schedule_batch(
        self,
        timers: Iterable[NewTimer],
        *,
        create_only: bool = False,
        on_conflict: OnConflict | None = None,
        durability: str = "",
        timeout: float | None = None,
    ) -> list[ScheduleResult]:
        """Store many timers, of one topic or several. Returns one result each, in the same order.

        Big batches are split into several calls, and `timeout` bounds each. `create_only` leaves
        existing timers as they are, `on_conflict` says which of two stands, `durability` is that of
        `schedule`. A timer that the relay refuses
        has its `error` set and does not affect the others. Raises `CallError` if a call as a whole fails,
        once those beside it have ended: then it is safe to schedule the same `NewTimer`s again.

        >>> await client.schedule_batch(
        ...     [NewTimer(topic="invoices", payload=b"%d" % n, delay=n) for n in range(1000)]
        ... )
        """
        limit = self._limit(timeout)
        return await self._run(
            batches.schedule_batch(
                timers,
                create_only=create_only,
                on_conflict=on_conflict,
                durability=durability,
                timeout=limit,
            )
        )

    async def cancel(
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
        """Remove a timer, even while it is being delivered. What is returned is true if the timer was there.

        `only_if_pending` leaves a timer that is being delivered (IN_FLIGHT), `only_if_due_at` one with
        another due time (UNCHANGED), `only_if_leased` one that is not being delivered (UNCHANGED).
        `durability` is that of `schedule`. `delivery_under_way` says whether the handler may still be
        running. A retry after a lost answer says NOT_FOUND, and nothing under way, although the call removed
        the timer.

        >>> cancelled = await client.cancel("invoices", "invoice-42")
        >>> if cancelled.delivery_under_way:
        ...     print("too late to be sure")
        """
        return await self._run(
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

    async def run_timer(
        self, topic: str, timer_id: str, *, note: str = "", durability: str = "", timeout: float | None = None
    ) -> TimerChange:
        """Make a waiting timer due now, even one that waits for its next attempt.

        The `result` is RUN, IN_FLIGHT if the timer is being delivered, or NOT_FOUND, which is never raised.
        `note` says why, in at most 1,024 bytes, for the action log.
        """
        return await self._run(timer_calls.run_timer(topic, timer_id, note, durability, self._limit(timeout)))

    async def recur(
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
        """Keep a recurrence: from now on each nominal instant of its rule has an occurrence, which is a timer
        of the topic, or is counted under the reason why it has none.

        The rule is `cron`, `rrule` or `every` (seconds, a timedelta, or a text such as `10 minutes`), counted
        from `anchor_time`, by the clocks of `zone`, between `start_time` and `end_time` and not on the dates
        of `leave_out` and of its `calendars`, by their names; `gap` and `fold` say what happens where clocks
        are turned. `payload`, `headers` and `content_type` are those of each occurrence, `overlap` says what
        happens while the one before has not ended, `catch_up` what happens after an outage. An occurrence is
        due up to `jitter` after its nominal instant and becomes useless `expire_after` that. It ends after
        `max_runs` occurrences.

        A recurrence with this id is replaced, and one that is like this already is left as it is: any number
        of replicas may call this as they start. With `if_version` it is replaced only if it has that version
        (0: only if there is none); otherwise `FailedPrecondition` is raised, which after an answer that got
        lost may be the call's own doing. `InvalidArgument` names the argument. `note` says why, in at most
        1,024 bytes, for the action log.

        >>> await client.recur("nightly", topic="reports", cron="0 3 * * *", zone="Europe/Berlin")
        """
        limit = self._limit(timeout)
        return await self._run(
            recurrence_calls.put(topic, recurrence_id, options, if_version, note, durability, limit)
        )

    async def get(self, topic: str, timer_id: str, *, timeout: float | None = None) -> Timer | None:
        """Read a timer with its payload. Returns None if it does not exist, and never raises `NotFound`."""
        return await self._run(timer_calls.get(topic, timer_id, self._limit(timeout)))

    async def history(
        self,
        topic: str,
        timer_id: str,
        *,
        page_size: int = 100,
        page_token: str = "",
        timeout: float | None = None,
    ) -> TimerHistory:
        """Tell a timer's life: how it stands, and what the topic's journal has of it, the newest first.

        One page has about `page_size` events (1 to 500). It may have fewer, and even none, while there are
        more: its `next_page_token` leads on, as `page_token`, until it is empty. Without a journal there are
        no events, and `events_missing` says what to do. It is not an error if there is no such timer.

        >>> life = await client.history("invoices", "invoice-42")
        >>> for event in life.events:
        ...     print(event.time, event.kind, event.relay, event.error)
        """
        return await self._run(
            timer_history.history(topic, timer_id, page_size, page_token, self._limit(timeout))
        )

    def list(
        self,
        topic: str,
        *,
        state: TimerState | None = None,
        page_size: int = 100,
        timeout: float | None = None,
    ) -> AsyncIterator[TimerInfo]:
        """Go through a topic in the order of `next_claim_time`, without payloads.

        Pages of `page_size` timers (1 to 500) are fetched as they are needed; `timeout` bounds each page.

        >>> async for timer in client.list("invoices", state=TimerState.PENDING):
        ...     print(timer.timer_id, timer.due_time)
        """
        timer_calls.check_list(topic, state, page_size)
        return self._pages(self._wire(), topic, state, page_size, self._limit(timeout))

    # ------------------------------------------------------------- opening, closing

    async def open(self) -> None:
        """Dial, start the handlers' streams and declare their recurrences; `async with` does it for you.

        Returns at once; `wait_ready` waits for all of it. Raises `UsageError` if the client is open.
        """
        if self._runtime is not None:
            raise errors.UsageError("the client is open already")
        self._stop = asyncio.Event()
        self._cancelled_body = False
        real = self.double is None
        self._runtime = Runtime(
            self.target,
            self.registrations.values() if real else (),
            self.declarations.values() if real else (),
            self._on_refused,
            self._credentials,
        )

    async def aclose(self) -> None:
        """Drain and close: no new handlers start, running ones end and settle, then the channel closes.

        Handlers that take longer than `shutdown_timeout` are cancelled and left unsettled: the
        relay delivers their timers again. Closing twice is harmless. A handler must not call this,
        since it would wait for itself: call `stop` there.
        """
        runtime = self._runtime
        if runtime is None:
            return
        try:
            await runtime.close(self._shutdown_timeout)
        finally:
            if self._runtime is runtime:
                self._runtime = None

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`, then close. Opens the client if it is not open.

        Raises the `CallError` with which the relay refused to open a stream. While it runs, the logger
        `relay.client` writes to standard error when the relay is reached, lost and reached again, and what
        is wrong, unless the application has configured logging or does so later.
        """
        with connection_log.shown():
            await self._serve()

    async def _serve(self) -> None:
        if self._runtime is None:
            await self.open()
        runtime = self._runtime
        assert runtime is not None
        body, self._body = self._body, None  # a refusal is raised here, not by cancelling
        try:
            if runtime.refusal is None:
                with stop_signals(self._stop.set):
                    await self._stop.wait()
        finally:
            await self.aclose()
            self._body = body
        if runtime.refusal is not None:
            raise runtime.refusal

    def stop(self) -> None:
        """Make `run` return, as a SIGTERM does; may be called in a handler."""
        self._stop.set()

    def ready(self) -> bool:
        """Whether the client is open and the relay has opened the streams of all handlers, and has their
        recurrences."""
        return self._runtime is not None and self._runtime.ready()

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until `ready`; raises `DeadlineExceeded` after `timeout` seconds.

        Raises the `CallError` with which the relay refused to open a stream, or a recurrence.
        """
        await self._opened().wait_ready(timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        body, self._body = self._body, None
        refusal = None if self._runtime is None else self._runtime.refusal
        await self.aclose()
        if self._cancelled_body and body is not None and body.uncancel() > 0:
            return  # somebody else cancelled the task, too, and that takes precedence
        ours = self._cancelled_body and isinstance(error, asyncio.CancelledError)
        if refusal is not None and (ours or error is None):
            raise refusal from None

    @property
    def begun(self) -> bool:
        """Whether the client is open."""
        return self._runtime is not None

    def _on_refused(self) -> None:
        """A stream can't be opened: end `run`, or the body of the `async with`."""
        self._stop.set()
        if self._body is not None:
            self._cancelled_body = self._body.cancel()

    def _opened(self) -> Runtime:
        if self._runtime is None:
            raise errors.UsageError("the client is not open: use it inside `async with client`")
        return self._runtime

    def _wire(self) -> Wire:
        return self.double if self.double is not None else self._opened().wire

    async def _run(self, steps: timer_calls.Steps[_T]) -> _T:
        return await timer_calls.run(self._wire(), steps)

    async def _pages(
        self, wire: Wire, topic: str, state: TimerState | None, page_size: int, timeout: float
    ) -> AsyncIterator[TimerInfo]:
        token = ""
        while True:
            timers, token = await timer_calls.run(
                wire, timer_calls.page(topic, state, page_size, token, timeout)
            )
            for timer in timers:
                yield timer
            if not token:
                return

    def _limit(self, timeout: float | None) -> float:
        return arguments.to_timeout(self._timeout if timeout is None else timeout)
