"""What a relay does whose time zones are other ones than those by which recurrences were computed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from relay.core.errors import InvalidField, OtherLayout
from relay.core.partitions import Layout
from relay.core.ports import MAX_PER_CALL, RecurrenceStore
from relay.core.recurring.recurrence import Standing, StoredRecurrence
from relay.engine.recurring.computing import Computing
from relay.engine.redis_health import RedisHealth
from relay.rules import TZDATA, compile_rule

REFUSED = "Redis refuses what recurrences with new time zones need"


class ZoneUpdates:
    """Computes next nominal instants again by this relay's time zones, once for each topic.

    A zone that changes its rules may bring an instant forward, which nobody would look for before the one
    that was computed by the old ones. One that is put off needs nothing: the look that comes too early finds
    it. Where two relays have different zones, the one decides that ticks.
    """

    def __init__(self, store: RecurrenceStore, redis_health: RedisHealth, computing: Computing) -> None:
        self._store = store
        self._computing = computing
        self._redis_health = redis_health

    async def run(self, layout: Layout) -> None:
        """Go through a topic's recurrences; one call for each page, and one for each that changes. It ends
        when the topic turns out to have another layout: then it is called again."""
        cursor: str | None = ""
        while cursor is not None:
            update = partial(self._update_page, layout, cursor)
            cursor = await self._redis_health.insist(layout.topic, update, REFUSED)

    async def _update_page(self, layout: Layout, cursor: str) -> str | None:
        """Go through one page; return the cursor of the next one, None at the end."""
        try:
            page = await self._store.page(layout, prefix="", limit=MAX_PER_CALL, cursor=cursor)
            for each in page.kept:
                await self._update(layout, each)
        except OtherLayout:
            return None
        return page.cursor or None

    async def _update(self, layout: Layout, kept: StoredRecurrence) -> None:
        """Compare and change; whoever was quicker has done the same, or has gone on from there."""
        if is_current(kept):
            return
        await self._computing.compile(kept.recurrence.rule)
        updated = updated_standing(kept)
        if updated is not None:
            name = kept.recurrence.recurrence_id
            # With 0 for now, one that keeps an occurrence back is looked at at once.
            await self._store.keep(layout.partition(name), kept, kept.recurrence, updated, 0, reason="tzdata")


def is_current(kept: StoredRecurrence) -> bool:
    """Whether other time zones make no difference to where a recurrence stands."""
    standing = kept.standing
    return not kept.recurrence.rule.zone or standing.tzdata == TZDATA or standing.next is None


def updated_standing(kept: StoredRecurrence) -> Standing | None:
    """Where a recurrence stands by these time zones; None if as before."""
    standing = kept.standing
    if is_current(kept) or standing.next is None:
        return None
    try:
        first = next(iter(compile_rule(kept.recurrence.rule).after(standing.settled)), None)
    except InvalidField:  # as a rule from a newer version, or a zone that was dropped
        return None
    if first is None or first.instant >= standing.next:
        return None
    return replace(standing, next=first.instant, tzdata=TZDATA)
