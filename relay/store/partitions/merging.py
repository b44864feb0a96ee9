"""One answer for a topic, of those of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.core.timers import DeadPage, TopicStats
from relay.store.partitions.dead_ids import DeadId


def stats_of(topic: str, parts: Sequence[TopicStats]) -> TopicStats:
    """The state of a topic. It counts as paused while any of its partitions is, as after a call of which a
    part failed."""
    return TopicStats(
        topic=topic,
        now=max(each.now for each in parts),
        timers=sum(each.timers for each in parts),
        due=sum(each.due for each in parts),
        first=min((each.first for each in parts if each.first is not None), default=None),
        dead=sum(each.dead for each in parts),
        oldest_death=min(
            (each.oldest_death for each in parts if each.oldest_death is not None), default=None
        ),
        paused_until=max(
            (each.paused_until for each in parts if each.paused_until is not None), default=None
        ),
        partitions=len(parts),
    )


def page_of(pages: Sequence[DeadPage], limit: int) -> DeadPage:
    """Up to `limit` letters of the pages of all partitions, in their order.

    A partition whose page is not its last says nothing of what comes behind that page, so the letters of the
    others end there, too.
    """
    found = {
        DeadId.of(letter.dead_id, number): letter
        for number, page in enumerate(pages)
        for letter in page.letters
    }
    ends = [DeadId.of(page.cursor, number) for number, page in enumerate(pages) if page.cursor]
    order = sorted(dead_id for dead_id in found if not ends or dead_id <= min(ends))
    more = bool(ends) or len(order) > limit
    letters = [replace(found[dead_id], dead_id=str(dead_id)) for dead_id in order[:limit]]
    return DeadPage(letters, letters[-1].dead_id if more else "")
