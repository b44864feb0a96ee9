"""Calendars: dates under a name, on which rules that name it do not fire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date

from relay.client import arguments
from relay.client.calls import calendar_calls as calls
from relay.client.calls.calendar_calls import Calendar
from relay.client.calls.channel import SyncWire, Wire
from relay.client.calls.recurrence_values import PutResult
from relay.client.calls.timer_calls import run, run_blocking

__all__ = ["Calendars", "SyncCalendars"]


class Calendars:
    """The calendars, which belong to no topic, on asyncio. `timeout` (seconds) bounds each call with its
    retries. Every method raises `CallError`; an `InvalidArgument` names the argument. `durability` says what
    must hold when the method returns, if the defaults of the relay's settings do not ask for more; see
    `RelayClient.schedule`. `note` says why something is changed, in at most 1,024 bytes.

    >>> await client.calendars.put("de-holidays", ["2026-12-25", "2026-12-26"])
    """

    def __init__(self, wire: Callable[[], Wire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    async def put(
        self, name: str, dates: Iterable[date | str], *, note: str = "", durability: str = ""
    ) -> PutResult:
        """Keep a calendar with these dates (at most 1,000), in the place of the one that has its name. Rules
        that name it go by it a second later at most. Putting the same again changes nothing."""
        return await run(self._wire(), calls.put(name, dates, note, durability, self._timeout))

    async def get(self, name: str) -> Calendar | None:
        """Read a calendar; None if it does not exist."""
        return await run(self._wire(), calls.get(name, self._timeout))

    async def list(self) -> Sequence[Calendar]:
        """Read all calendars, in the order of their names."""
        return await run(self._wire(), calls.page(self._timeout))

    async def delete(self, name: str, *, note: str = "", durability: str = "") -> bool:
        """Remove a calendar; return whether there was one. Rules that name it leave out nothing for it from
        then on."""
        return await run(self._wire(), calls.delete(name, note, durability, self._timeout))


class SyncCalendars:
    """The same calls, made in the calling thread; see `Calendars`."""

    def __init__(self, wire: Callable[[], SyncWire], timeout: float) -> None:
        self._wire = wire
        self._timeout = arguments.to_timeout(timeout)

    def put(
        self, name: str, dates: Iterable[date | str], *, note: str = "", durability: str = ""
    ) -> PutResult:
        """See `Calendars.put`."""
        return run_blocking(self._wire(), calls.put(name, dates, note, durability, self._timeout))

    def get(self, name: str) -> Calendar | None:
        """See `Calendars.get`."""
        return run_blocking(self._wire(), calls.get(name, self._timeout))

    def list(self) -> Sequence[Calendar]:
        """See `Calendars.list`."""
        return run_blocking(self._wire(), calls.page(self._timeout))

    def delete(self, name: str, *, note: str = "", durability: str = "") -> bool:
        """See `Calendars.delete`."""
        return run_blocking(self._wire(), calls.delete(name, note, durability, self._timeout))
