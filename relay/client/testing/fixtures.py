"""What the fixtures of `relay.pytest_plugin` give: relays in memory, and a real one that a test has alone."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Self, TypedDict, Unpack

from relay.client.client import RelayClient
from relay.client.errors import UsageError
from relay.client.sync import SyncRelayClient
from relay.client.testing.relays import End, InMemoryRelay, RetryPolicy, SyncInMemoryRelay
from relay.client.testing.service import at_once


class MemoryOptions(TypedDict, total=False):
    """The arguments of `InMemoryRelay`."""

    now: datetime | None
    lease_ttl: float
    delivery_timeout: float
    max_payload_bytes: int
    max_waiting: int
    retry: RetryPolicy


class TimersInMemory:
    """Makes relays in memory that end with the test. It waits for nothing, so it needs no event loop."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __call__(self, *ends: End, **options: Unpack[MemoryOptions]) -> InMemoryRelay:
        """Join the clients of an application on asyncio to a relay in memory; see `InMemoryRelay`.

        >>> relay = relay_timers(shop.client, retry=RetryPolicy(max_attempts=3))
        """
        relay = InMemoryRelay(*ends, **options)
        at_once(relay.__aenter__())
        self._stack.callback(lambda: at_once(relay.__aexit__(None, None, None)))
        return relay

    def blocking(self, *ends: End, **options: Unpack[MemoryOptions]) -> SyncInMemoryRelay:
        """The same for tests without an event loop, such as Django's; see `SyncInMemoryRelay`.

        >>> relay = relay_timers.blocking(shop.timers, shop.push)
        """
        return self._stack.enter_context(SyncInMemoryRelay(*ends, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class JoinedRelay:
    """A relay that the application's clients dial until the test ends. What the test leaves there goes with
    it: timers, recurrences, dead letters, pauses, calendars."""

    def __init__(self, target: str) -> None:
        self.target = target
        """What a `RelayClient` takes, and `RELAY_TARGET`."""
        self.client = SyncRelayClient(target, timeout=60.0)
        """A client of the test's own, for looks at what the relay holds; it needs no event loop."""
        self._joined: list[tuple[RelayClient | SyncRelayClient, str]] = []

    def join(self, *ends: RelayClient | SyncRelayClient) -> None:
        """Have clients that were made elsewhere dial this relay, from their next opening on. Raises
        `UsageError` for one that is open."""
        for end in ends:
            if isinstance(end, RelayClient):
                if end.begun:
                    raise UsageError("join a client before it is opened")
            else:
                end.close()
            self._joined.append((end, end.target))
            end.target = self.target

    def clear(self) -> None:
        """Remove all that the relay holds. Raises `CallError`."""
        client = self.client
        for topic in [info.topic for info in client.topics.list()]:
            for recurrence in list(client.recurrences.list(topic)):
                client.recurrences.delete(topic, recurrence.recurrence_id)
            for timer in list(client.list(topic)):
                client.cancel(topic, timer.timer_id)
            dead = [letter.dead_id for letter in client.topics.dead_letters(topic)]
            if dead:
                client.topics.purge(topic, dead)
            client.topics.resume(topic)
        for calendar in client.calendars.list():
            client.calendars.delete(calendar.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.clear()
        finally:
            for end, target in reversed(self._joined):
                if isinstance(end, SyncRelayClient):
                    end.close()
                end.target = target
            self.client.close()
