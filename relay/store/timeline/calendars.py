"""Calendars in Redis: the contract is that of `relay.core.ports.CalendarStore`."""

from __future__ import annotations

from collections.abc import Sequence

from relay.core.errors import InvalidField
from relay.core.recurring.calendars import MOST_CALENDARS, KnownCalendars, is_name
from relay.core.recurring.recurrence import Put
from relay.store.codec.lease_record import text_of
from relay.store.server.server import Server
from relay.store.verbs import recur

_PUTS = {each.name.encode(): each for each in Put}


class RedisCalendars:
    """The `CalendarStore` of a server; in a Cluster one key of one node."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, known: KnownCalendars) -> KnownCalendars:
        """See `CalendarStore.read`. One script call."""
        revision, *found = await self._server.call(recur.calendars(known.revision))
        if (told := text_of(revision)[0]) == known.revision:
            return known
        pairs = zip(found[::2], found[1::2], strict=True)
        dates = {text_of(name)[0]: frozenset(text_of(days)[0].split()) for name, days in pairs}
        return KnownCalendars(told, {name: days for name, days in dates.items() if is_name(name)})

    async def put(self, name: str, dates: Sequence[str]) -> Put:
        """See `CalendarStore.put`. One script call. Raises `InvalidField`."""
        word = await self._server.call(recur.keep_calendar(name, " ".join(dates), MOST_CALENDARS))
        if word == b"FULL":
            problem = (
                f"would be one more than the {MOST_CALENDARS} calendars that there may be; delete one first"
            )
            raise InvalidField("calendar.name", problem)
        return _PUTS[word]

    async def remove(self, name: str) -> bool:
        """See `CalendarStore.remove`. One script call."""
        return await self._server.call(recur.remove_calendar(name)) == b"REMOVED"
