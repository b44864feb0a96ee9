"""Recurrences: what comes again and again, and what people do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Unpack

from relay.client import arguments
from relay.client.arguments import Seconds
from relay.client.calls import recurrence_calls as calls
from relay.client.calls.channel import SyncWire, Wire
from relay.client.calls.recurrence_values import (
    Backfilled,
    BackfillOverlap,
    DeletedRecurrence,
    NominalInstant,
    Recurrence,
    RecurrenceHistory,
    RecurrenceInfo,
    RuleFields,
)
from relay.client.calls.timer_calls import run, run_blocking

__all__ = ["Recurrences", "SyncRecurrences"]


class Recurrences:
    """The recurrences of all topics, on asyncio; `RelayClient.recur` makes one. `timeout` (seconds) bounds
    each call with its retries.

    Every method raises `CallError`; an `InvalidArgument` names the argument. Those that are about one
    recurrence raise `NotFound` where there is no such recurrence, but for `get` and `delete`. `durability`
    says what must hold when the method returns, as for `RelayClient.schedule`, and `note` why something is
    changed, in at most 1,024 bytes, for the action log.

    >>> async for recurrence in client.recurrences.list("reports", paused=True):
    ...     await client.recurrences.resume("reports", recurrence.recurrence_id)
    """

    def __init__(self, wire: Callable[[], Wire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    async def get(self, topic: str, recurrence_id: str) -> Recurrence | None:
        """Read a recurrence with its payload; None if it does not exist."""
        return await run(self._wire(), calls.get(topic, recurrence_id, self._timeout))

    async def list(
        self, topic: str, *, prefix: str = "", paused: bool | None = None, page_size: int = 100
    ) -> AsyncIterator[RecurrenceInfo]:
        """Go through a topic's recurrences in the order of their ids, without payloads: those whose ids begin
        with `prefix`, and with `paused` only those that are, or are not.

        Pages of `page_size` recurrences (1 to 500) are read as they are needed.
        """
        calls.check_list(topic, prefix, page_size)
        token = ""
        while True:
            found, token = await run(
                self._wire(), calls.page(topic, prefix, paused, page_size, token, self._timeout)
            )
            for each in found:
                yield each
            if not token:
                return

    async def preview(
        self,
        *,
        topic: str = "",
        count: int = 10,
        after_time: datetime | None = None,
        **rule: Unpack[RuleFields],
    ) -> Sequence[NominalInstant]:
        """Read the first `count` instants (1 to 1,000) of a rule after `after_time`, or from now on. Fewer
        come if the rule ends. The arguments of the rule are those of `RelayClient.recur`. With a `topic`, a
        rule that `recur` would refuse there, since it fires too often or never, is refused."""
        return await run(self._wire(), calls.preview(rule, topic, count, after_time, self._timeout))

    async def pause(
        self, topic: str, recurrence_id: str, note: str = "", *, durability: str = ""
    ) -> Recurrence:
        """Let no occurrence come until `resume`; what waits already stays. `note` says why, in at most 1,024
        bytes."""
        return await run(self._wire(), calls.pause(topic, recurrence_id, note, durability, self._timeout))

    async def resume(
        self, topic: str, recurrence_id: str, *, note: str = "", durability: str = ""
    ) -> Recurrence:
        """End a pause."""
        return await run(self._wire(), calls.resume(topic, recurrence_id, note, durability, self._timeout))

    async def trigger(self, topic: str, recurrence_id: str, *, note: str = "", durability: str = "") -> str:
        """Make an occurrence now, beside the rule. Return its timer_id; empty if none is made, since the last
        occurrence has not ended and `overlap` is neither `allow` nor `cancel`.

        A call that a relay has got is not repeated: an error may mean that the occurrence was made.
        """
        return await run(self._wire(), calls.trigger(topic, recurrence_id, note, durability, self._timeout))

    async def backfill(
        self,
        topic: str,
        recurrence_id: str,
        start_time: datetime,
        end_time: datetime,
        *,
        interval: Seconds = 0.0,
        overlap: BackfillOverlap | None = None,
        note: str = "",
        durability: str = "",
    ) -> Backfilled:
        """Make occurrences for the instants from `start_time` to before `end_time`, which has passed,
        whatever has come of them before: at most 500, each due `interval` after the one before.

        With the overlap `allow` all are made at once. With `buffer` they come one after another: the next one
        when the last occurrence has ended as well. Without it they come at once if the recurrence itself has
        `allow`, and otherwise one after another. `Recurrence.to_fill` tells how many still wait.

        A call that a relay has got is not repeated, as with `trigger`.
        """
        steps = calls.backfill(
            topic, recurrence_id, start_time, end_time, interval, overlap, note, durability, self._timeout
        )
        return await run(self._wire(), steps)

    async def delete(
        self,
        topic: str,
        recurrence_id: str,
        *,
        cancel_waiting: bool = False,
        note: str = "",
        durability: str = "",
    ) -> DeletedRecurrence:
        """Remove a recurrence. What is returned is true if it was there. With `cancel_waiting`, its
        occurrences that have not ended are cancelled, too, also if it was gone already; otherwise they are
        left."""
        steps = calls.delete(topic, recurrence_id, cancel_waiting, note, durability, self._timeout)
        return await run(self._wire(), steps)

    async def history(
        self, topic: str, recurrence_id: str, *, limit: int = calls.MAX_REMEMBERED
    ) -> RecurrenceHistory:
        """Read what came of the latest `limit` nominal instants (1 to 16), the latest one at the end: the
        occurrence and how it ended, or why there is none.

        What waits, is being delivered, or is kept as a dead letter, is always known; how other occurrences
        ended, the topic's journal tells. `outcomes_missing` says if it has none.
        """
        return await run(self._wire(), calls.history(topic, recurrence_id, limit, self._timeout))


class SyncRecurrences:
    """The same calls, made in the calling thread; see `Recurrences`."""

    def __init__(self, wire: Callable[[], SyncWire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    def get(self, topic: str, recurrence_id: str) -> Recurrence | None:
        """See `Recurrences.get`."""
        return run_blocking(self._wire(), calls.get(topic, recurrence_id, self._timeout))

    def list(
        self, topic: str, *, prefix: str = "", paused: bool | None = None, page_size: int = 100
    ) -> Iterator[RecurrenceInfo]:
        """See `Recurrences.list`."""
        calls.check_list(topic, prefix, page_size)
        token = ""
        while True:
            found, token = run_blocking(
                self._wire(), calls.page(topic, prefix, paused, page_size, token, self._timeout)
            )
            yield from found
            if not token:
                return

    def preview(
        self,
        *,
        topic: str = "",
        count: int = 10,
        after_time: datetime | None = None,
        **rule: Unpack[RuleFields],
    ) -> Sequence[NominalInstant]:
        """See `Recurrences.preview`."""
        return run_blocking(self._wire(), calls.preview(rule, topic, count, after_time, self._timeout))

    def pause(self, topic: str, recurrence_id: str, note: str = "", *, durability: str = "") -> Recurrence:
        """See `Recurrences.pause`."""
        return run_blocking(self._wire(), calls.pause(topic, recurrence_id, note, durability, self._timeout))

    def resume(self, topic: str, recurrence_id: str, *, note: str = "", durability: str = "") -> Recurrence:
        """See `Recurrences.resume`."""
        return run_blocking(self._wire(), calls.resume(topic, recurrence_id, note, durability, self._timeout))

    def trigger(self, topic: str, recurrence_id: str, *, note: str = "", durability: str = "") -> str:
        """See `Recurrences.trigger`."""
        return run_blocking(
            self._wire(), calls.trigger(topic, recurrence_id, note, durability, self._timeout)
        )

    def backfill(
        self,
        topic: str,
        recurrence_id: str,
        start_time: datetime,
        end_time: datetime,
        *,
        interval: Seconds = 0.0,
        overlap: BackfillOverlap | None = None,
        note: str = "",
        durability: str = "",
    ) -> Backfilled:
        """See `Recurrences.backfill`."""
        steps = calls.backfill(
            topic, recurrence_id, start_time, end_time, interval, overlap, note, durability, self._timeout
        )
        return run_blocking(self._wire(), steps)

    def delete(
        self,
        topic: str,
        recurrence_id: str,
        *,
        cancel_waiting: bool = False,
        note: str = "",
        durability: str = "",
    ) -> DeletedRecurrence:
        """See `Recurrences.delete`."""
        steps = calls.delete(topic, recurrence_id, cancel_waiting, note, durability, self._timeout)
        return run_blocking(self._wire(), steps)

    def history(
        self, topic: str, recurrence_id: str, *, limit: int = calls.MAX_REMEMBERED
    ) -> RecurrenceHistory:
        """See `Recurrences.history`."""
        return run_blocking(self._wire(), calls.history(topic, recurrence_id, limit, self._timeout))
