"""The calendars that a relay has read: those who need them have them read again once they are old."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import anyio

from relay.core.errors import StoreRefused, StoreUnavailable
from relay.core.ports import CalendarStore
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.recurrence import Put, Recurrence
from relay.core.recurring.rule import Rule
from relay.engine.clock import Clock

FRESH = 1.0
"""Seconds for which ticks go by calendars that were read."""

PATIENCE = 2.0
"""Seconds that a tick waits for calendars: in a Cluster they may be at a node that hangs, while the topic's
answers."""

RETRY = 5.0
"""Seconds after a failure for which no tick asks again."""

log = logging.getLogger(__name__)


class KeptCalendars:  # see 0097
    """Reads calendars, and changes them.

    Nothing that a relay computes ahead depends on a calendar, since a nominal instant on one of its dates
    stays one. So calendars are looked at when an instant has come, and by nobody in the meantime.
    """

    def __init__(self, store: CalendarStore | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: KnownCalendars | None = None
        self._read_at = -math.inf
        self._retry_at = -math.inf
        self._lock = anyio.Lock()
        self._in_trouble = False
        self._warned: set[str] = set()
        """Calendars of this revision that are known to be missing."""

    async def read(self, *, fresh: float = 0.0) -> KnownCalendars:
        """Return all calendars: as they are now, or as they were up to `fresh` seconds ago. Raises
        `StoreError`."""
        asked = self._clock.now()
        async with self._lock:
            if self._known is not None and self._read_at > asked - fresh:
                return self._known
            began = self._clock.now()
            known = await self._stored.read(self._known or KnownCalendars())
            if known is not self._known:
                self._warned.clear()
            self._known, self._read_at, self._retry_at = known, began, -math.inf
        if self._in_trouble:
            log.warning("calendars can be read again")
            self._in_trouble = False
        return known

    @property
    def _stored(self) -> CalendarStore:
        if self._store is None:
            raise StoreRefused("this store keeps no calendars")
        return self._store

    async def of(self, rule: Rule) -> KnownCalendars:
        """Return what a tick of this rule would go by; see `for_tick`. Raises `StoreError` if no calendars
        were ever read."""
        return (await self.for_tick() or await self.read(fresh=FRESH)) if rule.calendars else NO_CALENDARS

    async def for_tick(self) -> KnownCalendars | None:
        """Return what a tick goes by: calendars as they were a second ago at most, so that an instant goes by
        what was put a second before. Where they can't be read, those that were read last; None if none ever
        were. Ticks go on in any case, so this raises nothing, and takes `PATIENCE` at most."""
        if self._clock.now() < self._retry_at:
            return self._known
        try:
            with anyio.fail_after(PATIENCE):
                return await self.read(fresh=FRESH)
        except TimeoutError:
            self._failed(StoreUnavailable(f"no answer within {PATIENCE:g} s"))
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._failed(failure)
        return self._known

    def _failed(self, failure: Exception) -> None:
        self._retry_at = self._clock.now() + RETRY
        if not self._in_trouble:
            so = "ticks go by those that were read last" if self._known else "recurrences that name some wait"
            log.error("calendars can't be read; %s", so, extra={"reason": str(failure)})
        self._in_trouble = True

    def note_missing(self, topic: str, wanted: Recurrence, known: KnownCalendars) -> None:
        """Log that a recurrence that ticks names a calendar that does not exist, once for each calendar."""
        for name in known.missing(wanted.rule.calendars):
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "a recurrence names a calendar that does not exist, which leaves out nothing; put it, or "
                    "change the rule",
                    extra={"calendar": name, "topic": topic, "recurrence": wanted.recurrence_id},
                )

    async def put(self, name: str, dates: Sequence[str]) -> Put:
        """Keep a calendar with these dates, which ascend. Raises `InvalidField`, `StoreError`."""
        result = await self._stored.put(name, dates)
        self._read_at = -math.inf
        return result

    async def remove(self, name: str) -> bool:
        """Remove a calendar; return whether there was one. Rules that name it leave out nothing for it from
        then on. Raises `StoreError`."""
        removed = await self._stored.remove(name)
        self._read_at = -math.inf
        return removed
