"""What operators do: read the state of topics, pause and reshard them, bring dead letters back to life."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime

from relay.client import arguments
from relay.client.arguments import Seconds
from relay.client.calls import topic_calls
from relay.client.calls.channel import SyncWire, Wire
from relay.client.calls.timer_calls import run, run_blocking
from relay.client.calls.topic_values import (
    ALL_DEAD,
    ColdForecast,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterInfo,
    Forecast,
    ForecastInterval,
    GroupInfo,
    RedriveResult,
    TopicInfo,
)

__all__ = [
    "ALL_DEAD",
    "ColdForecast",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterInfo",
    "Forecast",
    "ForecastInterval",
    "GroupInfo",
    "RedriveResult",
    "SyncTopics",
    "TopicInfo",
    "Topics",
]


class Topics:
    """The calls of an operator, on asyncio. `timeout` (seconds) bounds each call with its retries.

    Every method raises `CallError`; an `InvalidArgument` names the field. `durability` says what must hold
    when the method returns, as for `RelayClient.schedule`, and `note` why something is changed, in at most
    1,024 bytes, for the action log.

    >>> async for letter in topics.dead_letters("invoices", DeadLetterFilter(reason="attempts")):
    ...     await topics.redrive("invoices", [letter.dead_id])
    """

    def __init__(self, wire: Callable[[], Wire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    async def list(self, *, page_size: int = 100) -> AsyncIterator[TopicInfo]:
        """Go through all topics in the order of their names. Pages of `page_size` topics (1 to 1,000) are
        fetched as they are needed."""
        arguments.check_count(page_size, "page_size", 1, topic_calls.MAX_TOPICS_PAGE)
        token = ""
        while True:
            found, token = await run(self._wire(), topic_calls.page(page_size, token, self._timeout))
            for each in found:
                yield each
            if not token:
                return

    async def get(self, topic: str) -> TopicInfo:
        """Read the state of a topic. A topic that nobody has heard of is empty."""
        return await run(self._wire(), topic_calls.stats(topic, self._timeout))

    async def pause(
        self,
        topic: str,
        *,
        until: datetime | None = None,
        duration: Seconds | None = None,
        note: str = "",
        durability: str = "",
    ) -> TopicInfo:
        """Stop claims of the topic by every relay. Deliveries that are in flight go on.

        Give `until` (an aware datetime) or `duration` (by the clock of Redis). With neither, the pause lasts
        until somebody resumes the topic.
        """
        return await run(
            self._wire(), topic_calls.pause(topic, until, duration, note, durability, self._timeout)
        )

    async def resume(self, topic: str, *, note: str = "", durability: str = "") -> TopicInfo:
        """End a pause."""
        return await run(self._wire(), topic_calls.resume(topic, note, durability, self._timeout))

    async def reshard(self, topic: str, partitions: int, *, max_rate: int = 0, note: str = "") -> TopicInfo:
        """Begin to move the topic's timers into twice or half as many partitions, whichever comes nearer to
        `partitions` (a power of two from 1 to 1,024), at `max_rate` timers a second at most (0 means no
        bound).

        Relays do the moving, and everything else goes on meanwhile. A move that is under way goes on as it
        is. Call again once `moving_to` is 0, until the topic has as many partitions as wanted.
        """
        return await run(self._wire(), topic_calls.reshard(topic, partitions, max_rate, note, self._timeout))

    async def forecast(
        self, topic: str, *, horizon: Seconds | None = None, resolution: Seconds | None = None
    ) -> Forecast:
        """Count the timers of the topic that fall due in each of the coming intervals.

        `horizon` says how far to look ahead (1 s to 10 years; without it one hour), `resolution` how long an
        interval is (without it a sixtieth of the horizon). A forecast has 200 intervals at most. A topic that
        nobody has heard of has nothing that falls due.
        """
        return await run(self._wire(), topic_calls.forecast(topic, horizon, resolution, self._timeout))

    async def dead_letters(
        self, topic: str, wanted: DeadLetterFilter = ALL_DEAD, *, page_size: int = 100
    ) -> AsyncIterator[DeadLetterInfo]:
        """Go through the dead letters that are `wanted`, the oldest death first, without payloads.

        Pages of `page_size` dead letters (1 to 500) are read as they are needed.
        """
        topic_calls.check_dead_list(topic, wanted, page_size)
        token = ""
        while True:
            found, token = await self.dead_page(topic, wanted, page_size=page_size, token=token)
            for letter in found:
                yield letter
            if not token:
                return

    async def dead_page(
        self, topic: str, wanted: DeadLetterFilter = ALL_DEAD, *, page_size: int = 100, token: str = ""
    ) -> tuple[Sequence[DeadLetterInfo], str]:
        """Look at `page_size` dead letters: return those that are wanted, and the token of the next page,
        which is empty at the end."""
        topic_calls.check_dead_list(topic, wanted, page_size)
        return await run(self._wire(), topic_calls.dead_page(topic, wanted, page_size, token, self._timeout))

    async def dead_letter(self, topic: str, dead_id: str) -> DeadLetter | None:
        """Read a dead letter with its payload; None if it does not exist."""
        return await run(self._wire(), topic_calls.dead_letter(topic, dead_id, self._timeout))

    async def redrive(
        self, topic: str, dead_ids: Sequence[str], *, note: str = "", durability: str = ""
    ) -> Sequence[RedriveResult]:
        """Bring dead letters back to life, due now and with attempts from 1. Returns one result each, in the
        same order."""
        return await run(self._wire(), topic_calls.redrive(topic, dead_ids, note, durability, self._timeout))

    async def purge(
        self, topic: str, dead_ids: Sequence[str], *, note: str = "", durability: str = ""
    ) -> int:
        """Remove dead letters for good. Returns how many were there."""
        return await run(self._wire(), topic_calls.purge(topic, dead_ids, note, durability, self._timeout))

    async def forget_subject(
        self, topic: str, subject: str, *, note: str = "", durability: str = ""
    ) -> datetime:
        """Forget a subject for good: nothing that was sealed with its key opens again, and its name is
        refused. Returns since when it is forgotten; raises `NotFound` if no timer ever named it."""
        return await run(
            self._wire(), topic_calls.forget_subject(topic, subject, note, durability, self._timeout)
        )


class SyncTopics:
    """The same calls, made in the calling thread; see `Topics`."""

    def __init__(self, wire: Callable[[], SyncWire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    def list(self, *, page_size: int = 100) -> Iterator[TopicInfo]:
        """See `Topics.list`."""
        arguments.check_count(page_size, "page_size", 1, topic_calls.MAX_TOPICS_PAGE)
        token = ""
        while True:
            found, token = run_blocking(self._wire(), topic_calls.page(page_size, token, self._timeout))
            yield from found
            if not token:
                return

    def get(self, topic: str) -> TopicInfo:
        """See `Topics.get`."""
        return run_blocking(self._wire(), topic_calls.stats(topic, self._timeout))

    def pause(
        self,
        topic: str,
        *,
        until: datetime | None = None,
        duration: Seconds | None = None,
        note: str = "",
        durability: str = "",
    ) -> TopicInfo:
        """See `Topics.pause`."""
        return run_blocking(
            self._wire(), topic_calls.pause(topic, until, duration, note, durability, self._timeout)
        )

    def resume(self, topic: str, *, note: str = "", durability: str = "") -> TopicInfo:
        """See `Topics.resume`."""
        return run_blocking(self._wire(), topic_calls.resume(topic, note, durability, self._timeout))

    def reshard(self, topic: str, partitions: int, *, max_rate: int = 0, note: str = "") -> TopicInfo:
        """See `Topics.reshard`."""
        return run_blocking(
            self._wire(), topic_calls.reshard(topic, partitions, max_rate, note, self._timeout)
        )

    def forecast(
        self, topic: str, *, horizon: Seconds | None = None, resolution: Seconds | None = None
    ) -> Forecast:
        """See `Topics.forecast`."""
        return run_blocking(self._wire(), topic_calls.forecast(topic, horizon, resolution, self._timeout))

    def dead_letters(
        self, topic: str, wanted: DeadLetterFilter = ALL_DEAD, *, page_size: int = 100
    ) -> Iterator[DeadLetterInfo]:
        """See `Topics.dead_letters`."""
        topic_calls.check_dead_list(topic, wanted, page_size)
        token = ""
        while True:
            found, token = run_blocking(
                self._wire(), topic_calls.dead_page(topic, wanted, page_size, token, self._timeout)
            )
            yield from found
            if not token:
                return

    def dead_letter(self, topic: str, dead_id: str) -> DeadLetter | None:
        """See `Topics.dead_letter`."""
        return run_blocking(self._wire(), topic_calls.dead_letter(topic, dead_id, self._timeout))

    def redrive(
        self, topic: str, dead_ids: Sequence[str], *, note: str = "", durability: str = ""
    ) -> Sequence[RedriveResult]:
        """See `Topics.redrive`."""
        return run_blocking(
            self._wire(), topic_calls.redrive(topic, dead_ids, note, durability, self._timeout)
        )

    def purge(self, topic: str, dead_ids: Sequence[str], *, note: str = "", durability: str = "") -> int:
        """See `Topics.purge`."""
        return run_blocking(self._wire(), topic_calls.purge(topic, dead_ids, note, durability, self._timeout))

    def forget_subject(self, topic: str, subject: str, *, note: str = "", durability: str = "") -> datetime:
        """See `Topics.forget_subject`."""
        return run_blocking(
            self._wire(), topic_calls.forget_subject(topic, subject, note, durability, self._timeout)
        )
