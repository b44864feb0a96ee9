"""The order of what several journals tell of one timer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from relay.core.history.events import TimerEvent
from relay.core.journal import RecordKind


def newest_first(streams: Mapping[int, Sequence[TimerEvent]]) -> list[TimerEvent]:
    """Put the events of several partitions in one order; each partition's own come with the newest first.

    They go by time, as far as hand-overs don't say otherwise. The clocks of two nodes may differ: a timer
    seems to leave a partition after it has arrived in the next one, or a former life to come between the two.
    """
    left = {number: list(reversed(events)) for number, events in streams.items() if events}
    arrivals = Counter(_about(event, RecordKind.ARRIVED) for events in left.values() for event in events)
    departures = {
        _about(event, RecordKind.LEFT): number for number, events in left.items() for event in events
    }
    order: list[TimerEvent] = []
    followed: int | None = None  # the partition that it came from: all of its life there comes next
    while left:
        if followed not in left:
            tops = {number: _about(events[-1], RecordKind.LEFT) for number, events in left.items()}
            free = [number for number, name in tops.items() if not (name and arrivals[name])]
            followed = None
            source = max(free or left, key=lambda number: (left[number][-1].millisecond, number))
        else:
            source = followed
        event = left[source].pop()
        order.append(event)
        if not left[source]:
            del left[source]
        if event.kind is RecordKind.ARRIVED:
            arrivals[event.record.hand_over] -= 1
            followed = departures.get(event.record.hand_over)
        elif event.kind is RecordKind.SCHEDULED:
            followed = None  # what lies before is another life
    return order


def _about(event: TimerEvent, kind: RecordKind) -> str:
    """The hand-over that an event of this kind is about; empty for all others."""
    return event.record.hand_over if event.kind is kind else ""
