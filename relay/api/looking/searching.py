"""Searches among the timers of a topic, which look at a bounded number of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from relay.api.access import Access
from relay.core.errors import InvalidField
from relay.core.ports import MAX_PER_CALL
from relay.core.timers import StoredTimer, TimerState
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine

MOST_LOOKED_AT = 10_000
"""The timers that one search looks at."""

MOST_FOUND = 500
"""The timers that one search may be asked for."""

MOST_BYTES = 4 << 20
"""The bytes of contents that one call reads where headers are asked for, of all partitions together."""

PATIENCE = 0.06
"""Seconds for which one call looks at timers, or a page of the console at dead letters."""


class LookingTime:
    """Some seconds, in which no call is begun that would end too late if it took as long as the last one."""

    def __init__(self, seconds: float) -> None:
        self._last = time.monotonic()
        self._end = self._last + seconds

    def is_over(self) -> bool:
        """Whether to end, after a call."""
        before, self._last = self._last, time.monotonic()
        return self._last + (self._last - before) >= self._end


@dataclass(frozen=True, slots=True)
class TimerSearch:
    """Which timers of a topic. `since` and `before` bound the time of the next claim: the due time, or where
    an attempt has failed or is under way, the time of the next one. Microseconds since 1970; None is no
    bound. `header` is the name of one, or a name and a value with `=` between them, both exactly."""

    topic: str
    prefix: str = ""
    state: TimerState | None = None
    since: int | None = None
    before: int | None = None
    header: str = ""


@dataclass(frozen=True, slots=True)
class TimersFound:
    """What a search found, in the order of the next claim, and how many timers it looked at. `cursor` goes on
    with the search, and is empty at its end. The headers of `closed` timers do not open here."""

    timers: list[StoredTimer]
    looked_at: int
    cursor: str
    closed: int = 0


class TimerSearches:
    """Searches as `TimerService.ListTimers` pages: by the verb `read`, and without contents; for headers by
    the verb `payload`, too."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    async def find(self, search: TimerSearch, *, limit: int, cursor: str = "") -> TimersFound:
        """Find timers until there are `limit`, 1 to `MOST_FOUND`, or a page's rest of up to 499 more. One
        script call for each 500 that it looks at, and partition; more where headers are asked for and
        contents are large.

        Raises `InvalidField` and `Denied`.
        """
        self._access.require(AccessVerb.READ, search.topic)
        if search.header:
            self._access.require(AccessVerb.PAYLOAD, search.topic)
        max_bytes = MOST_BYTES if search.header else None
        topic = self._engine.admit("topic", search.topic)
        if not 1 <= limit <= MOST_FOUND:
            raise InvalidField("limit", f"is {limit}; give 1 to {MOST_FOUND}")
        if not cursor and search.since is not None:
            cursor = self._engine.cursor_at(search.since)
        looking = LookingTime(PATIENCE)
        found: list[StoredTimer] = []
        looked_at = closed = 0
        any_fits = not search.prefix and search.state is None and not search.header
        while True:
            # Where every timer fits, nothing is read that is not shown.
            most = min(MAX_PER_CALL, limit - len(found)) if any_fits else MAX_PER_CALL
            # Without a state, so that the page has all that was looked at.
            page = await self._engine.page(topic, state=None, limit=most, cursor=cursor, max_bytes=max_bytes)
            closed += page.closed
            for timer in page.timers:
                if search.before is not None and timer.next_claim >= search.before:
                    return TimersFound(found, looked_at, "", closed)
                looked_at += 1
                if _fits(search, timer):
                    found.append(timer)
            cursor = page.cursor
            is_enough = len(found) >= limit or looked_at >= MOST_LOOKED_AT
            if not cursor or is_enough or looking.is_over():
                return TimersFound(found, looked_at, cursor, closed)


def _fits(search: TimerSearch, timer: StoredTimer) -> bool:
    if not timer.timer_id.startswith(search.prefix) or search.state not in (None, timer.state):
        return False
    if not search.header:
        return True
    name, asks_value, value = search.header.partition("=")
    return timer.headers.get(name) == value if asks_value else name in timer.headers
