"""One answer for a topic, of those of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.core.partitions import Layout
from relay.core.timers import DeadPage, TopicStats
from relay.store.partitions.entry_ids import EntryId


def stats_of(layout: Layout, parts: Sequence[TopicStats]) -> TopicStats:
    """The state of a topic. It counts as paused while any of its partitions is, as after a call of which a
    part failed. Timers that are on their way between partitions are not counted."""
    return TopicStats(
        topic=layout.topic,
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
        partitions=layout.count,
        moving_to=layout.towards,
        coming=tuple(map(sum, zip(*(each.coming for each in parts), strict=True))),
        cold=parts[0].cold,  # it lies beside the first one
    )


def in_order(pages: Sequence[Sequence[str]], goes_on: Sequence[bool]) -> list[EntryId]:
    """The entries of a page of each partition, in their order. `goes_on`: whether more comes behind the page.

    Nothing is known of what comes behind a page, so the entries of the other partitions end there, too.
    """
    ends = [EntryId.of(page[-1], n) for n, page in enumerate(pages) if page and goes_on[n]]
    order = sorted(EntryId.of(entry, n) for n, page in enumerate(pages) for entry in page)
    return [entry for entry in order if entry <= min(ends)] if ends else order


def page_of(pages: Sequence[DeadPage], limit: int) -> DeadPage:
    """Up to `limit` letters of the pages of all partitions, in their order."""
    found = {EntryId.of(letter.dead_id, n): letter for n, page in enumerate(pages) for letter in page.letters}
    entries = [[letter.dead_id for letter in page.letters] for page in pages]
    order = in_order(entries, [bool(page.cursor) for page in pages])
    more = any(page.cursor for page in pages) or len(order) > limit
    letters = [replace(found[entry], dead_id=str(entry)) for entry in order[:limit]]
    return DeadPage(letters, letters[-1].dead_id if more else "")
